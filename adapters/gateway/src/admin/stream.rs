//! The list of members as it changes, as Server-Sent Events: `cluster` with what `/api/admin/cluster` answers; `failure` with
//! `{"detail", "list_age_ms"}` while the registry cannot be read, after the last list that there is; `expired` as the last word.
//!
//! Invariant: however many watch, one task reads the registry; and when nobody does, none.

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use serde::Serialize;
use switchboard_core::membership::Membership;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::cluster;
use crate::clients::Present;
use crate::problem::Problem;
use crate::state::Gateway;
use crate::{millis, origin, sse};

/// Time between two reads while nothing is heard of a change.
const EVERY: Duration = Duration::from_secs(1);

/// Changes that come closer together than this are read together.
const SPACING: Duration = Duration::from_millis(200);

/// Sent first: a lost connection is to be tried again after a second.
const GREETING: &str = "retry: 1000\n\n";

pub(super) async fn stream(State(gateway): State<Gateway>, headers: HeaderMap) -> Result<Response, Problem> {
    origin::must_not_be_embedded(&headers)?;
    let expires = gateway.admit_watcher(&headers)?;
    let present = Present::enter_stream(&gateway)?;
    let watcher = gateway.feed().watch(&gateway);
    let news = stream::unfold(watcher, |mut watcher| async move { Some((watcher.next().await?, watcher)) });
    let texts = stream::once(async { GREETING.to_owned() }).chain(news);
    Ok(sse::send(&gateway, present, expires, texts))
}

/// What was read last, and who reads.
#[derive(Default)]
pub(crate) struct Feed {
    seen: watch::Sender<Seen>,
    reader: Mutex<Weak<Reader>>,
    asked: Notify,
}

#[derive(Default)]
struct Seen {
    /// The last list, and since when it is known.
    list: Option<(Arc<str>, Instant)>,
    /// Why there is no newer one.
    failure: Option<String>,
}

/// Owned by those who watch; ends with the last of them.
struct Reader(JoinHandle<()>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Watcher {
    seen: watch::Receiver<Seen>,
    has_list: bool,
    _reader: Arc<Reader>,
}

impl Feed {
    /// Somebody who begins to watch is told what is true from now on: what is known from earlier may be old.
    fn watch(&self, gateway: &Gateway) -> Watcher {
        let seen = self.seen.subscribe();
        let mut place = self.reader.lock();
        let running = place.upgrade();
        let reader = running.unwrap_or_else(|| Arc::new(Reader(tokio::spawn(read(gateway.clone())))));
        *place = Arc::downgrade(&reader);
        self.asked.notify_one();
        Watcher { seen, has_list: false, _reader: reader }
    }
}

/// Reads the list when membership has changed, when somebody asks, and every second.
async fn read(gateway: Gateway) {
    let feed = gateway.feed();
    let mut membership = None;
    loop {
        let next = Instant::now() + EVERY;
        if membership.is_none() {
            membership = gateway.services().map(|services| services.node.membership());
        }
        // What happens from here on is a reason to look again.
        if let Some(membership) = &mut membership {
            membership.mark_unchanged();
        }
        let list = cluster::read(&gateway).await.map(|list| serde_json::to_string(&list));
        feed.seen.send_modify(|seen| match list {
            Ok(Ok(text)) => *seen = Seen { list: Some((text.into(), Instant::now())), failure: None },
            Ok(Err(error)) => seen.failure = Some(error.to_string()),
            Err(problem) => seen.failure = Some(problem.detail().to_owned()),
        });
        sleep(SPACING).await;
        tokio::select! {
            () = change(&mut membership) => {}
            () = feed.asked.notified() => {}
            () = sleep_until(next) => {}
        }
    }
}

/// The next change of membership; never while there is none.
async fn change(membership: &mut Option<watch::Receiver<Arc<Membership>>>) {
    let gone = match membership {
        Some(membership) => membership.changed().await.is_err(),
        None => true,
    };
    if gone {
        std::future::pending::<()>().await;
    }
}

#[derive(Serialize)]
struct Failure<'a> {
    detail: &'a str,
    /// `None` if there is no list.
    list_age_ms: Option<u64>,
}

impl Watcher {
    /// The next thing to say; `None` when there will be nothing more.
    async fn next(&mut self) -> Option<String> {
        self.seen.changed().await.ok()?;
        let seen = self.seen.borrow_and_update();
        let list = || seen.list.as_ref().map(|(list, _)| event("cluster", list)).unwrap_or_default();
        let Some(detail) = &seen.failure else {
            self.has_list = true;
            return Some(list());
        };
        let known = if self.has_list { String::new() } else { list() };
        self.has_list |= seen.list.is_some();
        let list_age_ms = seen.list.as_ref().map(|(_, since)| millis(since.elapsed()));
        let failure = serde_json::to_string(&Failure { detail, list_age_ms }).unwrap_or_default();
        Some(known + &event("failure", &failure))
    }
}

/// JSON has no line breaks of its own here.
fn event(kind: &str, data: &str) -> String {
    format!("event: {kind}\ndata: {data}\n\n")
}
