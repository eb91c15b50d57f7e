//! Server-Sent Events: both kinds of event of one channel in one stream.
//!
//! An event is a message without a type, so that `EventSource.onmessage` gets it. Its data is one JSON object:
//! `{"channel", "event", "position", "created_at", "payload"}` for a durable event, whose position is also the `id:`, so that a browser
//! resumes after it by itself; `{"channel", "event", "payload"}` for an ephemeral one, which leaves the last id alone. What else there is to say
//! has a type: `listening` with `{"after"}` comes first, `pruned` with `{"oldest"}`, `reset` with `{"head"}`, `lagged` with `{"missed"}`,
//! and `expired` as the last word to a client whose token is worth nothing any more.
//!
//! Payload bytes are passed on as they are, except that a carriage return between tokens becomes a space: the format
//! has no way to carry one.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures::future::ready;
use futures::{Stream, StreamExt, stream};
use switchboard_core::ports::{DurableItem, DurableStream, EphemeralItem, EphemeralStream};
use switchboard_core::types::Position;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_stream::wrappers::IntervalStream;

use crate::auth::expiry;
use crate::clients::Present;
use crate::state::Gateway;

/// Silence is broken this often, for proxies that drop idle connections, and to notice clients that are gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Sent against silence: a comment, which readers skip.
const PING: &str = ":\n\n";

/// Sent when the client's token is worth nothing any more. A browser would come back with the same token, and not again after that.
const EXPIRED: &str = "event: expired\ndata: {\"reason\":\"expired\"}\n\n";

/// The stream that goes on after `after`, which ends when the node drains, a bus ends or the token has expired. Nothing is fetched for a client that does not read.
pub(crate) fn response(
    gateway: &Gateway,
    present: Present,
    expires: Option<OffsetDateTime>,
    after: &str,
    durable: DurableStream,
    ephemeral: EphemeralStream,
) -> Response {
    let mut pings = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    // A client that did not read for an hour needs no more than one.
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = stream::select(ending(durable.map(durable_text)), ending(ephemeral.map(ephemeral_text)));
    let pinged = stream::select(events, IntervalStream::new(pings).map(|_| Some(PING.to_owned())));
    let texts = stream::once(ready(greeting(after))).chain(pinged.scan((), |(), text| ready(text)));
    send(gateway, present, expires, texts)
}

/// A stream of these texts, which ends when the node drains or the token has expired.
pub(crate) fn send(
    gateway: &Gateway,
    present: Present,
    expires: Option<OffsetDateTime>,
    texts: impl Stream<Item = String> + Send + 'static,
) -> Response {
    let texts = until_expired(texts, expires, OffsetDateTime::now_utc)
        .take_until(gateway.draining().clone().cancelled_owned())
        .map(move |text| {
            let _ = &present;
            Ok::<_, Infallible>(Bytes::from(text))
        });
    // nginx would collect events until it has a buffer full of them.
    let headers = [("content-type", "text/event-stream"), ("x-accel-buffering", "no")];
    (headers, Body::from_stream(texts)).into_response()
}

/// Sent first: the subscription has begun, and a lost connection is to be tried again after a second. It has an id, so that whoever
/// loses it before the first event misses nothing either.
fn greeting(after: &str) -> String {
    format!("retry: 1000\nevent: listening\nid: {after}\ndata: {{\"after\":\"{after}\"}}\n\n")
}

/// Says when it ends. Half a stream that goes on would be silence where events are promised; a client whose stream ended reconnects.
fn ending(texts: impl Stream<Item = String>) -> impl Stream<Item = Option<String>> {
    texts.map(Some).chain(stream::once(ready(None)))
}

/// Ends the stream when `clock` has reached `expires`, and says why.
fn until_expired(
    texts: impl Stream<Item = String>,
    expires: Option<OffsetDateTime>,
    clock: impl Fn() -> OffsetDateTime + Clone,
) -> impl Stream<Item = String> {
    let now = clock.clone();
    let has_expired = move || expires.is_some_and(|expires| now() >= expires);
    let farewell = {
        let has_expired = has_expired.clone();
        async move { has_expired().then(|| EXPIRED.to_owned()) }
    };
    texts
        // After a pause of the process or a step of the clock, an event may come before the end is noticed.
        .take_while(move |_| ready(!has_expired()))
        .take_until(expiry(expires, clock))
        .chain(stream::once(farewell).filter_map(ready))
}

fn durable_text(item: DurableItem) -> String {
    match item {
        DurableItem::Event(event) => {
            let created_at = event.created_at.format(&Rfc3339).unwrap_or_default();
            let data = format!(
                r#"{{"channel":{},"event":{},"position":"{}","created_at":"{created_at}","payload":{}}}"#,
                quoted(event.channel.as_str()),
                quoted(event.event.as_str()),
                event.position,
                event.payload
            );
            message(None, Some(event.position), &data)
        }
        DurableItem::Pruned { oldest } => {
            // The stream goes on with the oldest, so whoever reconnects must ask for what follows the one before it.
            let before = Position { seq: oldest.seq.saturating_sub(1), ..oldest };
            message(Some("pruned"), Some(before), &format!(r#"{{"oldest":"{oldest}"}}"#))
        }
        DurableItem::Reset { head } => message(Some("reset"), Some(head), &format!(r#"{{"head":"{head}"}}"#)),
    }
}

fn ephemeral_text(item: EphemeralItem) -> String {
    match item {
        EphemeralItem::Event(event) => {
            let (channel, name) = (quoted(event.channel.as_str()), quoted(event.event.as_str()));
            message(
                None,
                None,
                &format!(r#"{{"channel":{channel},"event":{name},"payload":{}}}"#, event.payload),
            )
        }
        EphemeralItem::Lagged(missed) => message(Some("lagged"), None, &format!(r#"{{"missed":{missed}}}"#)),
    }
}

/// One message; a line break in the data begins another `data:` line, which the reader joins again.
fn message(kind: Option<&str>, id: Option<Position>, data: &str) -> String {
    let mut text = String::with_capacity(data.len() + 96);
    // Writing to a String cannot fail.
    if let Some(kind) = kind {
        let _ = writeln!(text, "event: {kind}");
    }
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    for line in data.replace('\r', " ").split('\n') {
        let _ = writeln!(text, "data: {line}");
    }
    text.push('\n');
    text
}

fn quoted(text: &str) -> String {
    // A string always serializes.
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// The timer knows nothing of it.
    #[tokio::test(start_paused = true)]
    async fn b123_no_event_follows_a_step_of_the_clock_past_the_end() {
        let seconds = AtomicU64::new(0);
        let clock = || OffsetDateTime::UNIX_EPOCH + Duration::from_secs(seconds.load(Ordering::Relaxed));
        let events = stream::repeat("an event".to_owned());
        let mut texts = Box::pin(until_expired(
            events,
            Some(OffsetDateTime::UNIX_EPOCH + Duration::from_secs(30)),
            clock,
        ));
        assert_eq!(texts.next().await.as_deref(), Some("an event"));
        seconds.store(30, Ordering::Relaxed);
        assert_eq!(texts.next().await.as_deref(), Some(EXPIRED));
        assert_eq!(texts.next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn b123_a_silent_stream_ends_on_time_and_one_without_end_when_its_source_does() {
        let began = Instant::now();
        let clock = || OffsetDateTime::UNIX_EPOCH + began.elapsed();
        let expires = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(30);
        let texts: Vec<_> = until_expired(stream::pending(), Some(expires), clock).collect().await;
        assert_eq!((texts, began.elapsed().as_secs()), (vec![EXPIRED.to_owned()], 30));
        let one = || stream::iter(["an event".to_owned()]);
        assert_eq!(until_expired(one(), None, clock).collect::<Vec<_>>().await, ["an event"]);
        let later = expires + Duration::from_secs(30);
        assert_eq!(until_expired(one(), Some(later), clock).collect::<Vec<_>>().await, ["an event"]);
    }

    #[test]
    fn line_breaks_in_the_data_cannot_break_the_message() {
        let text = message(None, None, "{\r\n\"a\":\n1}\r");
        assert_eq!(text, "data: { \ndata: \"a\":\ndata: 1} \n\n");
    }
}
