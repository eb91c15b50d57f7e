//! An event for peers that have no link, as it travels over the fallback: on a channel of the cluster's own, with the names of those it is
//! for. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_core::types::{Channel, EphemeralEvent, EventName, Incarnation, Payload};

use crate::routes::Addressee;

/// The channel that every mesh node listens to on its fallback.
pub(crate) const CHANNEL: &str = "$switchboard:mesh";
pub(crate) const EVENT: &str = "envelope";

/// Most addressees of one envelope; more take several.
pub(crate) const ADDRESSEES: usize = 128;

/// What an envelope adds to a payload, at most, in bytes: the names with every character escaped, and the addressees.
pub const ENVELOPE_ROOM: usize = 16 * 1024;

#[derive(Serialize, Deserialize)]
pub(crate) struct Envelope<'a> {
    from: Incarnation,
    /// Incarnation, and [`Addressee::after`].
    to: BTreeMap<Incarnation, u64>,
    pub(crate) channel: Channel,
    event: EventName,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// Puts `event` into an envelope.
pub(crate) fn seal(from: Incarnation, to: &[Addressee], event: &EphemeralEvent) -> Option<Payload> {
    let to = to.iter().map(|addressee| (addressee.incarnation, addressee.after)).collect();
    let payload = serde_json::from_str(event.payload.as_str()).ok()?;
    let envelope = Envelope { from, to, channel: event.channel.clone(), event: event.event.clone(), payload };
    serde_json::value::to_raw_value(&envelope).ok().map(|raw| Payload::from_raw(&raw))
}

impl<'a> Envelope<'a> {
    /// Reads an envelope; `None` if no node wrote it.
    pub(crate) fn open(payload: &'a Payload) -> Option<Self> {
        serde_json::from_str(payload.as_str()).ok()
    }

    /// Its sender, and after which era it was sent, if it is for `me`.
    pub(crate) fn addressed_to(&self, me: Incarnation) -> Option<(Incarnation, u64)> {
        self.to.get(&me).map(|after| (self.from, *after))
    }

    pub(crate) fn event(self) -> EphemeralEvent {
        EphemeralEvent { channel: self.channel, event: self.event, payload: Payload::from_raw(self.payload) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_comes_out_as_it_went_in_and_only_for_those_it_is_for() {
        let depth = Payload::MAX_DEPTH;
        for payload in [
            "{\"n\":9007199254740993, \"a\":1,\"a\":2}",
            &format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
        ] {
            let event = EphemeralEvent {
                channel: Channel::parse("room:\"1\"").unwrap(),
                event: EventName::parse("typing").unwrap(),
                payload: Payload::parse(payload).unwrap(),
            };
            let (from, to) = (Incarnation::from_bits(1), Incarnation::from_bits(2));
            let sealed = seal(from, &[Addressee { incarnation: to, after: 7 }], &event).unwrap();
            let envelope = Envelope::open(&sealed).unwrap();
            assert_eq!(envelope.addressed_to(to), Some((from, 7)));
            assert_eq!(envelope.addressed_to(from), None);
            assert_eq!(envelope.event(), event);
        }
        assert!(Envelope::open(&Payload::parse("{\"from\":1}").unwrap()).is_none());
    }

    #[test]
    fn the_room_is_enough_for_the_longest_names_and_most_addressees() {
        let event = EphemeralEvent {
            channel: Channel::parse(&"\"".repeat(Channel::MAX_BYTES)).unwrap(),
            event: EventName::parse(&"\"".repeat(EventName::MAX_BYTES)).unwrap(),
            payload: Payload::parse("1").unwrap(),
        };
        let to: Vec<_> = (0..ADDRESSEES)
            .map(|n| Addressee { incarnation: Incarnation::from_bits(n as u128), after: u64::MAX })
            .collect();
        assert!(seal(Incarnation::from_bits(1), &to, &event).unwrap().len() < ENVELOPE_ROOM);
    }
}
