//! What happens when nothing happens: pings, silence, tokens that never come or expire.

use std::time::Instant;

use super::action::Action;
use super::channels::{Access, Held};
use super::{Now, Session, close};

impl Session {
    /// When to call [`handle_timeout`](Self::handle_timeout) if nothing else happens. Changes with every input; `None` once closed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let own = self.channels.iter().filter_map(|(_, joined)| match &joined.access {
            Access::Own(held) => Some(held),
            Access::Socket => None,
        });
        let expiries = self.access.iter().chain(own).filter_map(Held::ends);
        expiries.chain(self.unauthenticated).chain(self.silence_ends()).min()
    }

    /// Time has passed. Harmless at any time.
    pub fn handle_timeout(&mut self, now: Now) {
        if !self.wake(now) {
            return;
        }
        if self.unauthenticated.is_some_and(|deadline| now.instant >= deadline) {
            return self.close(close::UNAUTHENTICATED, "no valid token was sent in time");
        }
        if self.silence_ends().is_none_or(|end| now.instant < end) {
            return;
        }
        if self.pinged.is_some() {
            return self.close(close::IDLE, "nothing was heard for too long");
        }
        self.pinged = Some(now.instant);
        self.actions.push_back(Action::Ping);
    }

    /// A pong was received, or anything else that proves the client alive.
    pub fn handle_pong(&mut self, now: Now) {
        self.hear(now);
    }

    pub(super) fn hear(&mut self, now: Now) {
        self.heard = now.instant;
        self.pinged = None;
    }

    /// Every input begins here: first what has expired, then what has come. False if there is nobody any more.
    pub(super) fn wake(&mut self, now: Now) -> bool {
        if !self.closed {
            self.expire(now);
        }
        !self.closed
    }

    /// Starts or stops the time in which a token must come. Every input that can change rights ends here.
    pub(super) fn watch_authentication(&mut self, now: Now) {
        let authenticated = self.access.is_ok()
            || self.channels.iter().any(|(_, joined)| matches!(joined.access, Access::Own(_)));
        self.unauthenticated = if authenticated {
            None
        } else {
            self.unauthenticated.or(now.instant.checked_add(self.config.limits.unauthenticated))
        };
    }

    /// When the next ping is due, or the last one has waited too long. A node that slept itself pings before it gives anybody up.
    fn silence_ends(&self) -> Option<Instant> {
        let limits = &self.config.limits;
        match self.pinged {
            None => self.heard.checked_add(limits.ping_after),
            Some(pinged) => pinged.checked_add(limits.idle.saturating_sub(limits.ping_after)),
        }
    }
}
