//! What clients say in the channels that they have joined.

use std::borrow::Cow;
use std::mem;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_core::access::Right;
use switchboard_core::types::{EventName, IdempotencyKey, Payload, Position};

use super::action::{Action, SubscriptionId};
use super::channels::{Phase, ReplyTo};
use super::params::read_object;
use super::{Empty, Now, Pending, Reason, Refusal, Session};
use crate::bytes_as_json;
use crate::codec::{Broadcast, BroadcastPayload, ClientMessage, ClientPayload, Frame};
use crate::dialect::{Dialect, is_control};
use crate::presence;

/// Something to publish.
struct Publication<'a> {
    event: Cow<'a, str>,
    payload: Payload,
    options: Options,
}

#[derive(Default, Deserialize)]
struct Options {
    #[serde(default)]
    durable: bool,
    #[serde(default)]
    key: Option<String>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
    #[serde(default)]
    durable: bool,
    #[serde(default)]
    key: Option<String>,
}

impl Session {
    pub(super) fn push(&mut self, message: &ClientMessage<'_>, now: Now) {
        let joined = self.channels.by_topic(&message.topic).and_then(|id| Some((id, self.channels.get(id)?)));
        let Some((id, joined)) = joined else { return self.refuse_unmatched(message) };
        if !self.is_current(id, message) {
            return;
        }
        if !matches!(joined.phase, Phase::Joined) {
            return self.hold(id, message);
        }
        let reference = message.reference.as_deref().map(Box::from);
        let reply = ReplyTo { address: joined.address.clone(), reference };
        let result = match (self.config.dialect, &*message.event) {
            (_, "access_token") => self.refresh(Some(id), &reply, &message.payload),
            (_, "presence") => self.presence(id, &reply, &message.payload, now),
            (_, "publish") | (Dialect::Supabase, "broadcast") => {
                enveloped(&message.payload).and_then(|publication| self.publish(id, &reply, publication, now))
            }
            (Dialect::Phoenix, event) => bare(event, &message.payload)
                .and_then(|publication| self.publish(id, &reply, publication, now)),
            (Dialect::Supabase, event) => {
                let event: String = event.escape_debug().take(64).collect();
                let message =
                    format!("there is no event {event}; use broadcast, presence, publish or access_token");
                Err(Refusal::new(Reason::UnknownEvent, message))
            }
        };
        if let Err(refusal) = result {
            self.refuse(&reply, refusal);
        }
    }

    /// Keeps what is said before the join has succeeded: clients need not wait for its reply.
    fn hold(&mut self, id: SubscriptionId, message: &ClientMessage<'_>) {
        let limits = &self.config.limits;
        let Some(frame) = message.encode(self.config.version) else { return };
        let (count, bytes) = self.channels.held();
        if count >= limits.pending || bytes + frame.bytes().len() > limits.message_bytes {
            let refusal = Refusal::new(Reason::Busy, "the join is not finished; wait for its reply");
            return self.refuse(&ReplyTo::sender_of(message), refusal);
        }
        if let Some(joined) = self.channels.get_mut(id) {
            joined.held.push(frame);
        }
    }

    /// The join has succeeded.
    pub(super) fn release(&mut self, id: SubscriptionId, now: Now) {
        let held = self.channels.get_mut(id).map(|joined| mem::take(&mut joined.held)).unwrap_or_default();
        for frame in &held {
            if let Some(message) = ClientMessage::from_frame(self.config.version, frame) {
                self.push(&message, now);
            }
        }
    }

    /// The join has failed.
    pub(super) fn refuse_held(&mut self, held: &[Frame]) {
        for frame in held {
            if let Some(message) = ClientMessage::from_frame(self.config.version, frame) {
                self.refuse_unmatched(&message);
            }
        }
    }

    fn publish(
        &mut self,
        id: SubscriptionId,
        reply: &ReplyTo,
        publication: Publication<'_>,
        now: Now,
    ) -> Result<(), Refusal> {
        let Publication { event, payload, options } = publication;
        let event = EventName::parse(&event)?;
        if self.config.dialect == Dialect::Phoenix && is_control(event.as_str()) {
            let message = format!("clients must not publish under {event}");
            return Err(Refusal::new(Reason::ReservedEvent, message));
        }
        let key = options.key.as_deref().map(IdempotencyKey::parse).transpose()?;
        if key.is_some() && !options.durable {
            return Err(Refusal::new(Reason::BadPayload, "only a durable event can have a key"));
        }
        self.permit(id, if options.durable { Right::Durable } else { Right::Publish }, now)?;
        let Some(joined) = self.channels.get(id) else { return Ok(()) };
        let (channel, ack) = (joined.channel.clone(), joined.params.ack);
        let request = self.ask(Pending::Request { reply: reply.clone(), ack })?;
        self.actions.push_back(if options.durable {
            Action::PublishDurable { request, subscription: id, channel, event, payload, key }
        } else {
            Action::PublishEphemeral { request, subscription: id, channel, event, payload }
        });
        Ok(())
    }

    pub(super) fn published(
        &mut self,
        reply: &ReplyTo,
        ack: bool,
        result: Result<Option<Position>, Refusal>,
    ) {
        #[derive(Serialize)]
        struct Stored {
            position: Position,
        }
        match result {
            Ok(Some(position)) => self.reply(reply, &Stored { position }),
            Ok(None) if ack => self.reply(reply, &Empty {}),
            Ok(None) => {}
            Err(refusal) => self.refuse(reply, refusal),
        }
    }

    fn presence(
        &mut self,
        id: SubscriptionId,
        reply: &ReplyTo,
        payload: &ClientPayload<'_>,
        now: Now,
    ) -> Result<(), Refusal> {
        let Envelope { event, payload, .. } = read_object(json(payload)?)?;
        match &*event {
            "track" => {
                let meta = presence::meta(payload.map_or("{}", RawValue::get))?;
                self.permit(id, Right::Presence, now)?;
                let key = self.presence_key(id)?;
                let request = self.ask(Pending::Request { reply: reply.clone(), ack: true })?;
                let Some(joined) = self.channels.get_mut(id) else { return Ok(()) };
                joined.tracks = Some(key.clone());
                let channel = joined.channel.clone();
                self.actions.push_back(Action::Track { request, subscription: id, channel, key, meta });
            }
            "untrack" => {
                self.stop_tracking(id);
                self.reply(reply, &Empty {});
            }
            _ => {
                return Err(Refusal::new(
                    Reason::BadPayload,
                    "the event of presence must be track or untrack",
                ));
            }
        }
        Ok(())
    }

    pub(super) fn stop_tracking(&mut self, id: SubscriptionId) {
        if self.channels.get_mut(id).and_then(|joined| joined.tracks.take()).is_some() {
            self.actions.push_back(Action::Untrack { subscription: id });
        }
    }
}

/// A push of `phoenix`: the event is the message's own.
fn bare<'a>(event: &'a str, payload: &ClientPayload<'_>) -> Result<Publication<'a>, Refusal> {
    let payload = match payload {
        ClientPayload::Json(json) => Payload::parse(json.get())?,
        ClientPayload::Bytes(bytes) => bytes_as_json::to_payload(bytes)?,
        ClientPayload::Broadcast(_) => {
            return Err(Refusal::new(Reason::BadPayload, "a binary push must be a frame of kind 0"));
        }
    };
    Ok(Publication { event: Cow::Borrowed(event), payload, options: Options::default() })
}

/// A broadcast of `@supabase/realtime-js`, as text or as a binary frame, or a `publish` of either dialect.
fn enveloped<'a>(payload: &ClientPayload<'a>) -> Result<Publication<'a>, Refusal> {
    if let ClientPayload::Broadcast(Broadcast { event, meta, payload }) = payload {
        let payload = match payload {
            BroadcastPayload::Bytes(bytes) => bytes_as_json::to_payload(bytes)?,
            BroadcastPayload::Json(json) => Payload::parse(json.get())?,
        };
        let options = meta.map(read_object).transpose()?.unwrap_or_default();
        return Ok(Publication { event: event.clone(), payload, options });
    }
    let Envelope { event, payload, durable, key } = read_object(json(payload)?)?;
    let payload = Payload::parse(payload.map_or("{}", RawValue::get))?;
    Ok(Publication { event, payload, options: Options { durable, key } })
}

pub(super) fn json<'a>(payload: &ClientPayload<'a>) -> Result<&'a RawValue, Refusal> {
    match payload {
        ClientPayload::Json(json) => Ok(json),
        _ => Err(Refusal::new(Reason::BadPayload, "the payload of this event must be JSON")),
    }
}
