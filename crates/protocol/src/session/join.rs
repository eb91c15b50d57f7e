//! Joining and leaving: at most one join of a topic at a time, and the client knows which.

use std::sync::Arc;

use serde::Serialize;
use switchboard_core::access::{AuthError, Grant, Right};

use super::action::{Action, Subscribe, SubscriptionId};
use super::channels::{Access, Address, Held, Joined, Phase, ReplyTo};
use super::params::JoinParams;
use super::{Empty, Now, Pending, Reason, Refusal, Session};
use crate::codec::{ClientMessage, ClientPayload};
use crate::dialect::Dialect;

impl Session {
    /// As in Phoenix, a second join of a topic closes the first.
    pub(super) fn join(&mut self, message: &ClientMessage<'_>, now: Now) {
        let mut reply = ReplyTo::sender_of(message);
        // Clients that know of no join_ref mean the reference of the join.
        reply.address.join_ref = reply.address.join_ref.or(message.reference.as_deref().map(Arc::from));
        if let Some(earlier) =
            self.channels.by_topic(&message.topic).and_then(|id| self.drop_channel(id, false))
        {
            self.send_closed(&earlier.address);
        }
        if let Err(refusal) = self.try_join(message, &reply, now) {
            self.refuse(&reply, refusal);
        }
    }

    fn try_join(&mut self, message: &ClientMessage<'_>, reply: &ReplyTo, now: Now) -> Result<(), Refusal> {
        if let Err(refused) = self.joins.take(now.instant) {
            let refusal = Refusal::new(Reason::TooManyJoins, "too many joins in too short a time");
            return Err(refusal.retry_after(refused.wait));
        }
        let limit = self.config.limits.channels;
        if self.channels.len() >= limit {
            let message = format!("a connection must not join more than {limit} channels");
            return Err(Refusal::new(Reason::TooManyChannels, message));
        }
        let ClientPayload::Json(payload) = message.payload else {
            return Err(Refusal::new(Reason::BadPayload, "the payload of a join must be JSON"));
        };
        let channel = self.config.dialect.channel(&message.topic)?;
        let mut params = JoinParams::parse(self.config.dialect, payload)?;
        let token = params.token.take();
        self.last_id += 1;
        let subscription = SubscriptionId(self.last_id);
        let request = match &token {
            Some(_) => Some(self.ask(Pending::Join(subscription))?),
            None => None,
        };
        let joined = Joined {
            address: reply.address.clone(),
            channel,
            params,
            access: Access::Socket,
            phase: Phase::Proving(reply.clone()),
            tracks: None,
            held: Vec::new(),
        };
        self.channels.insert(subscription, joined);
        match (request, token) {
            (Some(request), Some(token)) => self.actions.push_back(Action::Authorize { request, token }),
            _ => self.admit(subscription, now),
        }
        Ok(())
    }

    /// The token that came with a join was checked.
    pub(super) fn prove(&mut self, id: SubscriptionId, access: Result<Grant, AuthError>, now: Now) {
        let Some(joined) = self.channels.get_mut(id) else { return };
        match access {
            Ok(grant) => {
                joined.access = Access::Own(Held::new(grant, now));
                self.admit(id, now);
            }
            Err(error) => self.end(id, error),
        }
    }

    fn admit(&mut self, id: SubscriptionId, now: Now) {
        if let Err(error) = self.permit(id, Right::Subscribe, now) {
            return self.end(id, error);
        }
        let Some(joined) = self.channels.get_mut(id) else { return };
        let Phase::Proving(reply) = &joined.phase else { return };
        joined.phase = Phase::Subscribing(reply.clone());
        self.actions.push_back(Action::Subscribe(Subscribe {
            subscription: id,
            channel: joined.channel.clone(),
            start: joined.params.start,
            echo: joined.params.echo,
            presence: joined.params.presence,
        }));
    }

    /// A subscription begins to deliver, or cannot be made.
    pub fn handle_subscribed(&mut self, id: SubscriptionId, result: Result<(), Refusal>, now: Now) {
        if !self.wake(now) {
            return;
        }
        let Some(joined) = self.channels.get_mut(id) else { return };
        let Phase::Subscribing(reply) = &joined.phase else { return };
        let reply = reply.clone();
        match result {
            Ok(()) => {
                joined.phase = Phase::Joined;
                self.reply(&reply, &Empty {});
                self.send_system_ok(id);
                self.release(id, now);
            }
            Err(refusal) => {
                let held = self.channels.remove(id).map(|joined| joined.held).unwrap_or_default();
                self.refuse(&reply, refusal);
                self.refuse_held(&held);
            }
        }
        self.watch_authentication(now);
    }

    fn send_system_ok(&mut self, id: SubscriptionId) {
        #[derive(Serialize)]
        struct System<'a> {
            channel: &'a str,
            extension: &'static str,
            status: &'static str,
            message: &'static str,
        }
        let Some(joined) = self.channels.get(id) else { return };
        if self.config.dialect == Dialect::Supabase {
            let (address, channel, message) =
                (joined.address.clone(), joined.channel.clone(), joined.params.ready);
            let system = System { channel: channel.as_str(), extension: "system", status: "ok", message };
            self.send(&address, None, "system", &system);
        }
    }

    /// As in Phoenix, leaving what is not joined succeeds, and leaving by an older join is a message that was overtaken.
    pub(super) fn leave(&mut self, message: &ClientMessage<'_>) {
        let mut reply = ReplyTo::sender_of(message);
        let Some(id) = self.channels.by_topic(&message.topic) else { return self.reply(&reply, &Empty {}) };
        if !self.is_current(id, message) {
            return;
        }
        if let Some(joined) = self.drop_channel(id, true) {
            reply.address = joined.address;
            self.reply(&reply, &Empty {});
            self.send_closed(&reply.address);
        }
    }

    /// The I/O layer cannot go on with a subscription. The client is told why, and tries again by itself.
    pub fn end_subscription(&mut self, id: SubscriptionId, refusal: Refusal, now: Now) {
        if self.wake(now) {
            self.end(id, refusal);
            self.watch_authentication(now);
        }
    }

    /// Ends a join with an error, whatever has become of it.
    pub(super) fn end(&mut self, id: SubscriptionId, refusal: impl Into<Refusal>) {
        let Some(joined) = self.drop_channel(id, false) else { return };
        match joined.phase {
            Phase::Proving(reply) | Phase::Subscribing(reply) => {
                self.refuse(&reply, refusal);
                self.refuse_held(&joined.held);
            }
            Phase::Joined => {
                let join_ref = joined.address.join_ref.clone();
                self.send(&joined.address, join_ref.as_deref(), "phx_error", &refusal.into());
            }
        }
    }

    fn drop_channel(&mut self, id: SubscriptionId, left: bool) -> Option<Joined> {
        let joined = self.channels.remove(id)?;
        if !matches!(joined.phase, Phase::Proving(_)) {
            self.actions.push_back(Action::Unsubscribe { subscription: id, left });
        }
        Some(joined)
    }

    fn send_closed(&mut self, address: &Address) {
        self.send(address, address.join_ref.as_deref(), "phx_close", &Empty {});
    }

    /// Whether `message` was sent by the join that counts.
    pub(super) fn is_current(&self, id: SubscriptionId, message: &ClientMessage<'_>) -> bool {
        let current = self.channels.get(id).and_then(|joined| joined.address.join_ref.as_deref());
        message.join_ref.is_none() || message.join_ref.as_deref() == current
    }
}
