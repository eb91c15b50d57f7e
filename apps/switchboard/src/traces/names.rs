//! What the trace of an event and its first span are called. The same on every node and in every version: it is a hash of channel and position.

use opentelemetry::trace::{SpanId, TraceId};
use ring::digest::{SHA256, digest};
use switchboard_core::types::{Channel, Position};

/// Trace, and the span in which the event is published.
pub(super) fn of_event(channel: &Channel, position: Position) -> (TraceId, SpanId) {
    // No channel holds the separator, which is a control character.
    let hash = digest(&SHA256, format!("{channel}\0{position}").as_bytes());
    let (mut trace, mut span) = ([0; 16], [0; 8]);
    trace.copy_from_slice(&hash.as_ref()[..16]);
    span.copy_from_slice(&hash.as_ref()[16..24]);
    (TraceId::from_bytes(trace), SpanId::from_bytes(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_an_event_never_change() {
        let of =
            |channel: &str, position: &str| of_event(&channel.parse().unwrap(), position.parse().unwrap());
        let (trace, span) = of("room:1", "4f935b0852a09a4f-41");
        let expected = ("fa3e76d298112d1e984803bbde452034", "faf2a146cfb6e685");
        assert_eq!((&*trace.to_string(), &*span.to_string()), expected);
        assert_ne!(of("room:1", "4f935b0852a09a4f-42"), (trace, span));
        assert_ne!(of("room:2", "4f935b0852a09a4f-41"), (trace, span));
    }
}
