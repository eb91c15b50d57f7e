//! Rights over time: a token is refreshed in band, and ends when it ends.
//!
//! A channel that was joined with a token of its own has its rights from there; the others have them from the socket's. A refresh replaces
//! the token that the channel it is sent to lives on.

use serde::Deserialize;
use switchboard_core::access::{AuthError, Grant, Right};
use switchboard_core::types::PresenceKey;

use super::action::{Action, SubscriptionId, Token};
use super::channels::{Access, Held, Joined, Phase, ReplyTo};
use super::params::read_object;
use super::push::json;
use super::{Empty, Now, Pending, Reason, Refusal, Session, close};
use crate::codec::{ClientMessage, ClientPayload};

impl Session {
    /// Whether a join has `right` in its channel now.
    pub(super) fn permit(&self, id: SubscriptionId, right: Right, now: Now) -> Result<(), AuthError> {
        let (joined, held) = self.held(id)?;
        if held.has_expired(now) {
            return Err(AuthError::Expired);
        }
        held.grant.require(&joined.channel, right)
    }

    /// The key that a join may be seen under: the one that it chose, unless its token knows only one.
    pub(super) fn presence_key(&self, id: SubscriptionId) -> Result<String, Refusal> {
        let (joined, held) = self.held(id)?;
        let own = joined.params.key.as_deref();
        match held.grant.presence_key.as_ref().map(PresenceKey::as_str) {
            Some(only) if own.is_some_and(|own| own != only) => {
                let message = format!("the token lets its holder be seen under the key {only} alone");
                Err(Refusal::new(Reason::Forbidden, message))
            }
            Some(only) => Ok(only.to_owned()),
            None => Ok(own.unwrap_or(&self.config.id).to_owned()),
        }
    }

    /// Whose rights count in a join.
    fn held(&self, id: SubscriptionId) -> Result<(&Joined, &Held), AuthError> {
        let joined = self.channels.get(id).ok_or(AuthError::Missing)?;
        match &joined.access {
            Access::Own(held) => Ok((joined, held)),
            Access::Socket => Ok((joined, self.access.as_ref().map_err(Clone::clone)?)),
        }
    }

    pub(super) fn refresh_socket(&mut self, message: &ClientMessage<'_>) {
        let reply = ReplyTo::sender_of(message);
        if let Err(refusal) = self.refresh(None, &reply, &message.payload) {
            self.refuse(&reply, refusal);
        }
    }

    pub(super) fn refresh(
        &mut self,
        id: Option<SubscriptionId>,
        reply: &ReplyTo,
        payload: &ClientPayload<'_>,
    ) -> Result<(), Refusal> {
        #[derive(Deserialize)]
        struct Refresh {
            #[serde(default)]
            access_token: Option<Token>,
        }
        let Refresh { access_token } = read_object(json(payload)?)?;
        let token = access_token.filter(|token| !token.expose().is_empty()).ok_or(AuthError::Missing)?;
        let request = self.ask(Pending::Refresh(id, reply.clone()))?;
        self.actions.push_back(Action::Authorize { request, token });
        Ok(())
    }

    /// A token that is not accepted changes nothing: the one before it is good for as long as it was.
    pub(super) fn refreshed(
        &mut self,
        id: Option<SubscriptionId>,
        reply: &ReplyTo,
        access: Result<Grant, AuthError>,
        now: Now,
    ) {
        let held = match access.map(|grant| Held::new(grant, now)) {
            Ok(held) if held.has_expired(now) => return self.refuse(reply, AuthError::Expired),
            Ok(held) => held,
            Err(error) => return self.refuse(reply, error),
        };
        match id.map(|id| self.channels.get_mut(id).map(|joined| &mut joined.access)) {
            Some(Some(Access::Own(own))) => *own = held,
            Some(Some(Access::Socket)) | None => self.access = Ok(held),
            // It was left in the meantime.
            Some(None) => return,
        }
        self.reply(reply, &Empty {});
        self.check_rights(now);
    }

    fn check_rights(&mut self, now: Now) {
        let joined: Vec<_> = self.proven().collect();
        for id in joined {
            if let Err(error) = self.permit(id, Right::Subscribe, now) {
                self.end(id, error);
            } else if self.permit(id, Right::Presence, now).is_err() || !self.may_keep_its_key(id) {
                self.stop_tracking(id);
            }
        }
    }

    fn may_keep_its_key(&self, id: SubscriptionId) -> bool {
        let tracked = self.channels.get(id).and_then(|joined| joined.tracks.as_ref());
        tracked.is_none_or(|tracked| self.presence_key(id).is_ok_and(|key| key == *tracked))
    }

    /// Ends what has no valid token any more: every channel with an error first, then the socket, if that leaves it nothing.
    pub(super) fn expire(&mut self, now: Now) {
        let socket = self.access.as_ref().is_ok_and(|held| held.has_expired(now));
        if socket {
            self.access = Err(AuthError::Expired);
        }
        let over: Vec<_> = self
            .proven()
            .filter(|id| match self.channels.get(*id).map(|joined| &joined.access) {
                Some(Access::Own(held)) => held.has_expired(now),
                _ => socket,
            })
            .collect();
        for id in &over {
            self.end(*id, AuthError::Expired);
        }
        if (socket || !over.is_empty()) && self.channels.len() == 0 {
            self.close(close::TOKEN_EXPIRED, "token expired");
        }
    }

    /// The joins that were let in.
    fn proven(&self) -> impl Iterator<Item = SubscriptionId> {
        let proven = self.channels.iter().filter(|(_, joined)| !matches!(joined.phase, Phase::Proving(_)));
        proven.map(|(id, _)| id)
    }
}
