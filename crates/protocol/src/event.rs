//! What all subscribers of a channel are told, encoded once for all who read it alike.
//!
//! Invariant: a payload leaves as it was published, byte for byte, in both dialects and versions.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde::Serialize;
use serde_json::value::RawValue;
use switchboard_core::types::{Channel, DurableEvent, EphemeralEvent, EventName, Payload, Position};

use crate::bytes_as_json;
use crate::codec::{
    Broadcast, BroadcastPayload, Frame, Parts, ServerMessage, ServerPayload, Version, encode_text,
};
use crate::dialect::{Dialect, OWN_PREFIX, is_control};
use crate::presence::{Diff, PresenceEntry};

/// An event on its way to subscribers. Encoded at most once per [`Dialect`] and [`Version`], when first asked for; whoever fans out
/// shares it in an `Arc`.
#[derive(Debug)]
pub struct Outgoing {
    channel: Channel,
    content: Content,
    frames: [OnceLock<Frame>; 4],
}

#[derive(Debug)]
enum Content {
    Event { event: EventName, payload: Payload, durable: Option<Meta> },
    Presence(Diff),
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Meta {
    /// The name that `@supabase/realtime-js` has for it.
    id: Position,
    position: Position,
    replayed: bool,
}

impl Outgoing {
    /// An ephemeral event.
    pub fn ephemeral(event: &EphemeralEvent) -> Self {
        let content =
            Content::Event { event: event.event.clone(), payload: event.payload.clone(), durable: None };
        Self::new(&event.channel, content)
    }

    /// A durable event; `replayed` if it was stored before the subscriber came.
    pub fn durable(event: &DurableEvent, replayed: bool) -> Self {
        let meta = Meta { id: event.position, position: event.position, replayed };
        let content = Content::Event {
            event: event.event.clone(),
            payload: event.payload.clone(),
            durable: Some(meta),
        };
        Self::new(&event.channel, content)
    }

    /// Who came and who went. A meta that replaces another one is among `joins`, its predecessor among `leaves`.
    pub fn presence_diff(channel: &Channel, joins: &[PresenceEntry], leaves: &[PresenceEntry]) -> Self {
        Self::new(channel, Content::Presence(Diff::new(joins, leaves)))
    }

    fn new(channel: &Channel, content: Content) -> Self {
        Self { channel: channel.clone(), content, frames: Default::default() }
    }

    /// The channel it is for.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// What a subscriber of this dialect and version is sent.
    pub fn frame(&self, dialect: Dialect, version: Version) -> &Frame {
        let index = usize::from(dialect == Dialect::Supabase) * 2 + usize::from(version == Version::V2);
        self.frames[index].get_or_init(|| self.encode(dialect, version))
    }

    fn encode(&self, dialect: Dialect, version: Version) -> Frame {
        match &self.content {
            Content::Presence(diff) => self.text(dialect, version, None, "presence_diff", diff),
            Content::Event { event, payload, durable } => self
                .binary(dialect, version, event, payload, *durable)
                .unwrap_or_else(|| self.json(dialect, version, event, payload, *durable)),
        }
    }

    fn json(
        &self,
        dialect: Dialect,
        version: Version,
        event: &EventName,
        payload: &Payload,
        durable: Option<Meta>,
    ) -> Frame {
        #[derive(Serialize)]
        struct Envelope<'a> {
            r#type: &'static str,
            event: &'a EventName,
            payload: &'a Payload,
            #[serde(skip_serializing_if = "Option::is_none")]
            meta: Option<Meta>,
        }
        match dialect {
            Dialect::Phoenix => {
                let position = durable.map(|meta| meta.position.to_string());
                self.text(dialect, version, position, &phoenix_event(event), payload)
            }
            Dialect::Supabase => {
                let envelope = Envelope { r#type: "broadcast", event, payload, meta: durable };
                self.text(dialect, version, None, "broadcast", &envelope)
            }
        }
    }

    fn text(
        &self,
        dialect: Dialect,
        version: Version,
        reference: Option<String>,
        event: &str,
        payload: &impl Serialize,
    ) -> Frame {
        let parts = Parts {
            join_ref: None,
            reference: reference.map(Cow::Owned),
            topic: dialect.topic(&self.channel),
            event: Cow::Borrowed(event),
            payload,
        };
        encode_text(version, &parts)
    }

    /// A binary frame, if the payload stands for bytes and there is a frame that can hold everything else: those of Phoenix have no
    /// place for a position.
    fn binary(
        &self,
        dialect: Dialect,
        version: Version,
        event: &EventName,
        payload: &Payload,
        durable: Option<Meta>,
    ) -> Option<Frame> {
        if version == Version::V1 || (dialect == Dialect::Phoenix && durable.is_some()) {
            return None;
        }
        let bytes = bytes_as_json::from_payload(payload)?;
        let meta: Option<Box<RawValue>> =
            durable.and_then(|meta| serde_json::value::to_raw_value(&meta).ok());
        let (event, payload) = match dialect {
            Dialect::Phoenix => (phoenix_event(event), ServerPayload::Bytes(&bytes)),
            Dialect::Supabase => {
                let event = Cow::Borrowed(event.as_str());
                let payload = BroadcastPayload::Bytes(&bytes);
                let broadcast = Broadcast { event, meta: meta.as_deref(), payload };
                (Cow::Borrowed("broadcast"), ServerPayload::Broadcast(broadcast))
            }
        };
        let topic = dialect.topic(&self.channel);
        ServerMessage { join_ref: None, reference: None, topic, event, payload }.encode(version)
    }
}

/// Anybody may publish under any name; a Phoenix client must not take it for a word of the server.
fn phoenix_event(event: &EventName) -> Cow<'_, str> {
    if is_control(event.as_str()) {
        Cow::Owned(format!("{OWN_PREFIX}{event}"))
    } else {
        Cow::Borrowed(event.as_str())
    }
}
