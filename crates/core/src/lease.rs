//! Decides when this node may act. Pure: time, answers and randomness come in as arguments.
//!
//! Invariant: a node never considers itself active later than the earliest moment a peer may sweep it. A renewal counts
//! from when it was *sent*, by the monotonic clock; the registry wrote the heartbeat later than that, and peers wait
//! for the full threshold after it.
//!
//! The registry alone decides the end. A node that cannot renew is suspended and keeps trying; only the answer
//! "no such row" evicts it. Suspension before peers may sweep follows River's leader lease (local deadline earlier
//! than the row's expiry).

use std::time::{Duration, Instant};

use crate::ports::SweepScope;
use crate::timing::Timing;

/// What the lease allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// Renewed recently enough: act.
    Active,
    /// No renewal has succeeded for the stale threshold: own nothing, take no new work, keep trying.
    Suspended,
    /// The registry said that the row is gone: stop. Final.
    Evicted,
    /// Left on purpose: stop. Final.
    Left,
}

impl LeaseState {
    /// Its name in logs and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Evicted => "evicted",
            Self::Left => "left",
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LeaseInput {
    /// Time passed.
    Tick,
    /// The renewal in flight succeeded. `gap` as in [`Renewed::gap`](crate::ports::Renewed::gap).
    Renewed {
        /// Age of the previous heartbeat by the registry's clock.
        gap: Duration,
    },
    /// The renewal in flight found no row.
    Refused,
    /// The renewal in flight failed in any other way or timed out.
    Failed {
        /// A random number from 0 to 1 that spreads the retries of many nodes.
        jitter: f64,
    },
    /// This node has something to tell that should not wait for the next heartbeat. Retries after failures keep their pace.
    News,
    /// This node wants to leave.
    Leave,
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAction {
    /// Send a renewal, allowed to sweep this much. Never a second one before the first was answered.
    Renew(SweepScope),
    /// The state changed: tell everybody.
    Announce(LeaseState),
    /// The state is final: send nothing more.
    Stop,
}

/// The lease of one incarnation, from its registration to its end.
#[derive(Debug, Clone)]
pub struct Lease {
    timing: Timing,
    state: LeaseState,
    valid_until: Instant,
    /// Since when renewals have succeeded without a gap.
    unbroken_since: Instant,
    next_renewal: Instant,
    in_flight_since: Option<Instant>,
    failures: u32,
    has_news: bool,
}

impl Lease {
    /// The lease of a node whose registration was sent at `sent` and has been confirmed. The first renewal is due at once.
    pub fn new(timing: Timing, sent: Instant) -> Self {
        Self {
            timing,
            state: LeaseState::Active,
            valid_until: sent + timing.stale_threshold(),
            unbroken_since: sent,
            next_renewal: sent,
            in_flight_since: None,
            failures: 0,
            has_news: false,
        }
    }

    /// Takes one input at `now` and answers what to do, in order.
    pub fn step(&mut self, now: Instant, input: LeaseInput) -> Vec<LeaseAction> {
        let mut actions = Vec::new();
        if self.is_final() {
            return actions;
        }
        if self.state == LeaseState::Active && now >= self.valid_until {
            self.become_state(LeaseState::Suspended, &mut actions);
        }
        match input {
            LeaseInput::Tick => {}
            LeaseInput::Renewed { gap } => self.renewed(now, gap, &mut actions),
            LeaseInput::Failed { jitter } => self.failed(now, jitter),
            LeaseInput::Refused => self.become_state(LeaseState::Evicted, &mut actions),
            LeaseInput::News => self.has_news = true,
            LeaseInput::Leave => self.become_state(LeaseState::Left, &mut actions),
        }
        let is_due = now >= self.next_renewal || (self.has_news && self.failures == 0);
        if self.in_flight_since.is_none() && is_due && !self.is_final() {
            self.in_flight_since = Some(now);
            self.has_news = false;
            actions.push(LeaseAction::Renew(self.sweep_scope(now)));
        }
        actions
    }

    /// When to call [`step`](Self::step) with [`LeaseInput::Tick`] at the latest; `None` while nothing is due by time alone.
    pub fn wake_at(&self) -> Option<Instant> {
        if self.is_final() {
            return None;
        }
        let expiry = (self.state == LeaseState::Active).then_some(self.valid_until);
        let renewal = self.in_flight_since.is_none().then_some(self.next_renewal);
        expiry.into_iter().chain(renewal).min()
    }

    /// The state as of the last step. Between steps ask [`is_active`](Self::is_active).
    pub fn state(&self) -> LeaseState {
        self.state
    }

    /// Until when the node may act if nothing more is heard.
    pub fn valid_until(&self) -> Instant {
        self.valid_until
    }

    /// Whether the node may act at `now`, even if no step has been taken since the lease ran out.
    pub fn is_active(&self, now: Instant) -> bool {
        self.state == LeaseState::Active && now < self.valid_until
    }

    fn is_final(&self) -> bool {
        matches!(self.state, LeaseState::Evicted | LeaseState::Left)
    }

    fn renewed(&mut self, now: Instant, gap: Duration, actions: &mut Vec<LeaseAction>) {
        let Some(sent) = self.in_flight_since.take() else { return };
        let broken =
            self.failures > 0 || gap > self.timing.proof_window() || self.state != LeaseState::Active;
        if broken {
            self.unbroken_since = now;
        }
        self.failures = 0;
        self.valid_until = sent + self.timing.stale_threshold();
        self.next_renewal = sent + self.timing.cadence();
        if self.state == LeaseState::Suspended && now < self.valid_until {
            self.become_state(LeaseState::Active, actions);
        }
    }

    fn failed(&mut self, now: Instant, jitter: f64) {
        if self.in_flight_since.take().is_none() {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let spread = 0.5 + jitter.clamp(0.0, 1.0) / 2.0;
        self.next_renewal = now + self.timing.retry_pause(self.failures).mul_f64(spread);
    }

    /// Evidence against peers exists only after a full threshold of unbroken success.
    fn sweep_scope(&self, now: Instant) -> SweepScope {
        let unbroken = now.saturating_duration_since(self.unbroken_since);
        if self.state == LeaseState::Active && self.failures == 0 && unbroken >= self.timing.stale_threshold()
        {
            SweepScope::Stale
        } else {
            SweepScope::Ghosts
        }
    }

    fn become_state(&mut self, state: LeaseState, actions: &mut Vec<LeaseAction>) {
        self.state = state;
        actions.push(LeaseAction::Announce(state));
        if self.is_final() {
            actions.push(LeaseAction::Stop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENEWED: LeaseInput = LeaseInput::Renewed { gap: Duration::from_secs(10) };
    const FAILED: LeaseInput = LeaseInput::Failed { jitter: 1.0 };

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A lease that has just had its first renewal confirmed, and the moment it was registered.
    fn renewed_lease() -> (Lease, Instant) {
        let start = Instant::now();
        let mut lease = Lease::new(Timing::default(), start);
        assert_eq!(lease.step(start, LeaseInput::Tick), [LeaseAction::Renew(SweepScope::Ghosts)]);
        assert_eq!(lease.step(start, RENEWED), []);
        (lease, start)
    }

    #[test]
    fn a_fresh_node_sweeps_only_ghosts_until_it_has_renewed_for_a_full_threshold() {
        let (mut lease, start) = renewed_lease();
        for (at, scope) in [(10, SweepScope::Ghosts), (20, SweepScope::Ghosts), (30, SweepScope::Stale)] {
            assert_eq!(lease.step(start + s(at), LeaseInput::Tick), [LeaseAction::Renew(scope)]);
            lease.step(start + s(at), RENEWED);
        }
    }

    #[test]
    fn a_node_that_cannot_renew_is_suspended_and_keeps_trying() {
        let (mut lease, start) = renewed_lease();
        lease.step(start + s(10), LeaseInput::Tick);
        lease.step(start + s(16), FAILED);
        assert!(lease.is_active(start + s(29)));
        assert!(!lease.is_active(start + s(30)), "active although peers may sweep");
        let actions = lease.step(start + s(30), LeaseInput::Tick);
        assert_eq!(
            actions,
            [LeaseAction::Announce(LeaseState::Suspended), LeaseAction::Renew(SweepScope::Ghosts)]
        );
        lease.step(start + s(31), RENEWED);
        assert_eq!(lease.state(), LeaseState::Active);
        assert_eq!(lease.valid_until(), start + s(60), "a renewal counts from when it was sent");
    }

    #[test]
    fn a_gap_that_only_the_registry_saw_takes_the_evidence_away() {
        let (mut lease, start) = renewed_lease();
        for at in [10, 20, 30] {
            lease.step(start + s(at), LeaseInput::Tick);
            lease.step(start + s(at), RENEWED);
        }
        assert_eq!(lease.step(start + s(40), LeaseInput::Tick), [LeaseAction::Renew(SweepScope::Stale)]);
        lease.step(start + s(40), LeaseInput::Renewed { gap: s(600) });
        assert_eq!(lease.step(start + s(50), LeaseInput::Tick), [LeaseAction::Renew(SweepScope::Ghosts)]);
    }

    #[test]
    fn a_late_success_does_not_make_an_expired_lease_active() {
        let (mut lease, start) = renewed_lease();
        lease.step(start + s(10), LeaseInput::Tick);
        let actions = lease.step(start + s(45), RENEWED);
        assert_eq!(actions[0], LeaseAction::Announce(LeaseState::Suspended));
        assert_eq!(actions[1], LeaseAction::Renew(SweepScope::Ghosts), "the next renewal is overdue");
        assert!(!lease.is_active(start + s(45)));
    }

    #[test]
    fn refusal_is_final_whatever_comes_later() {
        let (mut lease, start) = renewed_lease();
        lease.step(start + s(10), LeaseInput::Tick);
        let actions = lease.step(start + s(10), LeaseInput::Refused);
        assert_eq!(actions, [LeaseAction::Announce(LeaseState::Evicted), LeaseAction::Stop]);
        for input in [LeaseInput::Tick, RENEWED, FAILED, LeaseInput::Leave] {
            assert_eq!(lease.step(start + s(99), input), []);
        }
        assert_eq!(lease.wake_at(), None);
    }

    #[test]
    fn leaving_stops_renewals_even_with_one_in_flight() {
        let (mut lease, start) = renewed_lease();
        lease.step(start + s(10), LeaseInput::Tick);
        let actions = lease.step(start + s(10), LeaseInput::Leave);
        assert_eq!(actions, [LeaseAction::Announce(LeaseState::Left), LeaseAction::Stop]);
        assert_eq!(lease.step(start + s(11), RENEWED), []);
    }

    #[test]
    fn news_are_sent_at_once_and_after_a_renewal_that_left_before_them() {
        let (mut lease, start) = renewed_lease();
        assert_eq!(lease.step(start + s(3), LeaseInput::News), [LeaseAction::Renew(SweepScope::Ghosts)]);
        assert_eq!(
            lease.step(start + s(3), LeaseInput::News),
            [],
            "a second renewal before the first was answered"
        );
        assert_eq!(lease.step(start + s(4), RENEWED), [LeaseAction::Renew(SweepScope::Ghosts)]);
        assert_eq!(lease.step(start + s(4), RENEWED), []);
        assert_eq!(lease.wake_at(), Some(start + s(14)));
    }

    #[test]
    fn news_do_not_hurry_retries() {
        let (mut lease, start) = renewed_lease();
        lease.step(start + s(10), LeaseInput::Tick);
        lease.step(start + s(10), FAILED);
        assert_eq!(lease.step(start + s(10), LeaseInput::News), []);
    }

    #[test]
    fn the_first_retry_comes_well_inside_the_window() {
        let (mut lease, start) = renewed_lease();
        lease.step(start + s(10), LeaseInput::Tick);
        lease.step(start + s(10), FAILED);
        assert_eq!(lease.wake_at(), Some(start + s(11)));
    }
}
