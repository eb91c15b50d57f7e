//! What happens in the channels that a client has joined, on its way to it. What belongs to a join that is over goes nowhere.

use serde::Serialize;
use switchboard_core::types::Position;

use super::action::{Action, Notice, SubscriptionId};
use super::{Now, Session};
use crate::dialect::Dialect;
use crate::event::Outgoing;
use crate::presence::{Entries, PresenceEntry};

impl Session {
    /// An event, or a diff of who is present. `own`: it is an ephemeral event that this very subscription published.
    ///
    /// An I/O layer that hands frames to its sockets without passing here must do both checks itself: [`Subscribe::echo`](super::Subscribe::echo),
    /// and that the subscription has not ended.
    pub fn handle_event(&mut self, id: SubscriptionId, event: &Outgoing, own: bool, now: Now) {
        if !self.wake(now) {
            return;
        }
        let Some(joined) = self.channels.get(id) else { return };
        if !own || joined.params.echo {
            let frame = event.frame(self.config.dialect, self.config.version).clone();
            self.actions.push_back(Action::Send(frame));
        }
    }

    /// Everybody who is present: after a join that asked for it, and whenever diffs were missed.
    pub fn handle_presence_state(&mut self, id: SubscriptionId, state: &[PresenceEntry], now: Now) {
        self.tell(id, "presence_state", &Entries(state), now);
    }

    /// Something is missing between two events.
    pub fn handle_notice(&mut self, id: SubscriptionId, notice: Notice, now: Now) {
        match self.config.dialect {
            Dialect::Phoenix => self.tell(id, notice.phoenix_event(), &notice.details(), now),
            Dialect::Supabase => {
                let Some(joined) = self.channels.get(id) else { return };
                let channel = joined.channel.clone();
                let system = System {
                    channel: channel.as_str(),
                    extension: "switchboard",
                    status: "error",
                    reason: notice.reason(),
                    message: notice.message(),
                    details: notice.details(),
                };
                self.tell(id, "system", &system, now);
            }
        }
    }

    fn tell(&mut self, id: SubscriptionId, event: &str, payload: &impl Serialize, now: Now) {
        if !self.wake(now) {
            return;
        }
        if let Some(address) = self.channels.get(id).map(|joined| joined.address.clone()) {
            self.send(&address, None, event, payload);
        }
    }
}

#[derive(Serialize)]
struct System<'a> {
    channel: &'a str,
    extension: &'static str,
    status: &'static str,
    reason: &'static str,
    message: &'static str,
    #[serde(flatten)]
    details: Details,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Details {
    Oldest(Position),
    Head(Position),
    Missed(u64),
}

impl Notice {
    fn reason(self) -> &'static str {
        match self {
            Self::Pruned { .. } => "pruned",
            Self::Reset { .. } => "reset",
            Self::Lagged { .. } => "lagged",
        }
    }

    fn phoenix_event(self) -> &'static str {
        match self {
            Self::Pruned { .. } => "switchboard:pruned",
            Self::Reset { .. } => "switchboard:reset",
            Self::Lagged { .. } => "switchboard:lagged",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Pruned { .. } => "events before this position are gone: reload what they would have told",
            Self::Reset { .. } => {
                "the history was replaced and goes on after this position: reload what it told"
            }
            Self::Lagged { .. } => "the connection was too slow for so many ephemeral events",
        }
    }

    fn details(self) -> Details {
        match self {
            Self::Pruned { oldest } => Details::Oldest(oldest),
            Self::Reset { head } => Details::Head(head),
            Self::Lagged { missed } => Details::Missed(missed),
        }
    }
}
