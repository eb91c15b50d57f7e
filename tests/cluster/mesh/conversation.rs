//! Everybody talks and everybody listens, while things happen to the network: who heard what, and when.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use switchboard_testkit::{LONG, patient_http_client};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::Ear;
use crate::node::{Node, TOKEN};

/// What each speaker says last.
const END: &str = "end";

/// Speakers say numbers from 0 on; speakers and listeners are counted as the nodes were given.
pub(super) struct Conversation {
    speakers: Vec<Speaker>,
    listeners: Vec<JoinHandle<Heard>>,
}

struct Speaker {
    said: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    /// When it said each number.
    task: JoinHandle<Vec<Instant>>,
}

/// For each speaker, the numbers as they came, and when.
type Heard = Vec<Vec<(usize, Instant)>>;

/// Who said what when, and who heard it when.
pub(super) struct Transcript {
    said: Vec<Vec<Instant>>,
    heard: Vec<Heard>,
}

impl Conversation {
    /// The first `speakers` of the nodes say something each `pace`, with `size` bytes more than it needs; all listen.
    pub(super) async fn start(nodes: &[&Node], speakers: usize, pace: Duration, size: usize) -> Self {
        let ears = join_all(nodes.iter().map(|node| Ear::on(node, "room:1"))).await;
        let listeners = ears.into_iter().map(|ear| tokio::spawn(listen(ear, speakers))).collect();
        let speakers = nodes[..speakers].iter().enumerate().map(|(number, node)| {
            let (said, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
            let url = format!("{}/api/channels/room:1/events", node.url);
            let task = tokio::spawn(speak(
                url,
                number,
                pace,
                "x".repeat(size),
                Arc::clone(&said),
                Arc::clone(&stop),
            ));
            Speaker { said, stop, task }
        });
        Self { speakers: speakers.collect(), listeners }
    }

    /// How many numbers the speaker has said.
    pub(super) fn said(&self, speaker: usize) -> usize {
        self.speakers[speaker].said.load(Ordering::Acquire)
    }

    /// Waits until everybody has said so many more.
    pub(super) async fn goes_on(&self, more: usize) {
        let goal: Vec<_> = (0..self.speakers.len()).map(|speaker| self.said(speaker) + more).collect();
        switchboard_testkit::eventually(LONG, "everybody says more", async || {
            goal.iter().enumerate().all(|(speaker, goal)| self.said(speaker) >= *goal)
        })
        .await;
    }

    /// Stops the speakers, and waits until everybody has heard the last of each.
    pub(super) async fn end(self) -> Transcript {
        let mut said = Vec::new();
        for speaker in self.speakers {
            speaker.stop.store(true, Ordering::Release);
            said.push(speaker.task.await.unwrap());
        }
        let mut heard = Vec::new();
        for listener in self.listeners {
            heard.push(timeout(LONG, listener).await.expect("the end is not heard").unwrap());
        }
        Transcript { said, heard }
    }
}

impl Transcript {
    pub(super) fn said(&self, speaker: usize) -> usize {
        self.said[speaker].len()
    }

    /// The numbers that came from `speaker` to `listener`.
    pub(super) fn heard(&self, listener: usize, speaker: usize) -> Vec<usize> {
        self.heard[listener][speaker].iter().map(|(number, _)| *number).collect()
    }

    /// Fails if the listener did not hear everything from the speaker, once and in order.
    pub(super) fn is_whole(&self, listener: usize, speaker: usize) {
        self.is_in_order();
        let said = self.said[speaker].len();
        let missed = self.missed(listener, speaker, 0..said);
        assert!(missed.is_empty(), "{listener} missed of {said} from {speaker}: {missed:?}");
    }

    /// Fails if anything came twice, or before something that was said earlier.
    pub(super) fn is_in_order(&self) {
        for listener in 0..self.heard.len() {
            for speaker in 0..self.said.len() {
                let heard = self.heard(listener, speaker);
                let wrong = heard.windows(2).find(|pair| pair[0] >= pair[1]);
                assert!(wrong.is_none(), "{listener} heard from {speaker} out of order or twice: {wrong:?}");
            }
        }
    }

    /// Which numbers of `range` did not come from `speaker` to `listener`.
    pub(super) fn missed(&self, listener: usize, speaker: usize, range: Range<usize>) -> Vec<usize> {
        let heard: std::collections::HashSet<_> = self.heard(listener, speaker).into_iter().collect();
        range.filter(|number| !heard.contains(number)).collect()
    }

    /// The longest that anything took from `speaker` to `listener`.
    pub(super) fn slowest(&self, listener: usize, speaker: usize) -> Duration {
        let took = self.heard[listener][speaker].iter();
        took.map(|(number, when)| when.duration_since(self.said[speaker][*number])).max().unwrap_or_default()
    }
}

async fn speak(
    url: String,
    speaker: usize,
    pace: Duration,
    filler: String,
    said: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Vec<Instant> {
    let client = patient_http_client();
    let say = async |what: Value| {
        let body = json!({ "event": "typing", "payload": what, "ephemeral": true });
        let sent = client.post(&url).bearer_auth(TOKEN).json(&body).send();
        assert_eq!(timeout(LONG, sent).await.expect("publishing blocks").unwrap().status(), 202);
    };
    let (mut pace, mut times) = (interval(pace), Vec::new());
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stop.load(Ordering::Acquire) {
        pace.tick().await;
        times.push(Instant::now());
        say(json!([speaker, times.len() - 1, filler])).await;
        said.store(times.len(), Ordering::Release);
    }
    say(json!([speaker, END])).await;
    times
}

async fn listen(mut ear: Ear, speakers: usize) -> Heard {
    let (mut heard, mut ended) = (vec![Vec::new(); speakers], 0);
    while ended < speakers {
        let said = ear.hears().await;
        let now = Instant::now();
        if said.is_null() {
            // `lagged`: a frozen node may wake up to more than a mailbox holds. Which were missed, the numbers show.
            continue;
        }
        let speaker = said[0].as_u64().unwrap_or_else(|| panic!("{said}"));
        match said[1].as_u64() {
            Some(number) => {
                let number = usize::try_from(number).unwrap();
                heard[usize::try_from(speaker).unwrap()].push((number, now));
            }
            None => ended += 1,
        }
    }
    heard
}
