//! Durable buses that break their promises.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use switchboard_core::ports::{DurableBus, DurableError, DurableItem, DurableStream, History, StartFrom};
use switchboard_core::types::{Channel, EventName, IdempotencyKey, Payload, PayloadLimits, Position};
use switchboard_memory::{MemoryCluster, MemoryDurable};
use switchboard_testkit::suites::durable;

use super::faults;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Skips,
    Repeats,
    CountsWithGaps,
    MergesEqualEvents,
    ReencodesPayloads,
    ForgetsEventNames,
    FoldsCase,
    AllowsOneByteMore,
    StartsLate,
    NowIsTheBeginning,
    AfterIsNow,
    AfterRepeatsThePosition,
    OldestIsNow,
    EndsWhenItLags,
    IgnoresLimits,
    RefersToTheBeginning,
    ConcealsPruning,
    ConcealsResets,
    ForgetsKeys,
    SharesKeysBetweenChannels,
    HeadIsTheBeginning,
}

faults! { Cluster,
    events_that_are_skipped: Fault::Skips => durable::every_subscriber_gets_every_event_once_and_in_order;
    events_that_are_skipped_on_replay: Fault::Skips => durable::oldest_replays_everything_and_goes_on;
    events_that_are_skipped_on_a_disturbance: Fault::Skips => durable::a_disturbance_neither_loses_nor_repeats;
    events_that_are_repeated: Fault::Repeats => durable::every_subscriber_gets_every_event_once_and_in_order;
    positions_with_gaps: Fault::CountsWithGaps => durable::positions_count_without_gaps_whoever_publishes;
    equal_events_that_are_merged: Fault::MergesEqualEvents => durable::equal_events_are_all_stored;
    payloads_that_are_parsed_and_written_again: Fault::ReencodesPayloads => durable::payloads_arrive_byte_for_byte_live_and_replayed;
    event_names_that_are_lost: Fault::ForgetsEventNames => durable::event_names_arrive_as_they_are_live_and_replayed;
    channels_that_differ_by_case_alone: Fault::FoldsCase => durable::channels_are_told_apart_by_their_exact_names;
    a_limit_that_is_one_byte_too_high: Fault::AllowsOneByteMore => durable::limits_are_exact_and_what_is_refused_is_not_stored;
    a_start_that_is_not_fixed_when_subscribe_returns: Fault::StartsLate => durable::now_begins_when_subscribe_returns;
    a_now_that_brings_up_the_past: Fault::NowIsTheBeginning => durable::now_begins_when_subscribe_returns;
    a_seam_between_past_and_present: Fault::AfterIsNow => durable::resuming_has_no_seam_while_events_keep_coming;
    an_after_that_repeats_the_position_itself: Fault::AfterRepeatsThePosition => durable::after_the_head_waits_for_what_comes_next;
    a_past_that_is_not_replayed: Fault::OldestIsNow => durable::oldest_begins_with_what_remains;
    a_slow_subscriber_that_is_given_up: Fault::EndsWhenItLags => durable::a_subscriber_that_does_not_read_misses_nothing;
    pages_without_a_limit: Fault::IgnoresLimits => durable::history_begins_after_any_position_and_keeps_to_the_limit;
    pages_that_never_end: Fault::RefersToTheBeginning => durable::history_pages_from_the_oldest_to_the_end;
    pruning_that_nobody_is_told_of: Fault::ConcealsPruning => durable::pruned_history_is_reported_with_the_oldest_that_remains;
    pruning_that_a_slow_subscriber_is_not_told_of: Fault::ConcealsPruning => durable::a_subscriber_that_pruning_overtakes_is_told;
    positions_of_another_history_that_are_taken_for_ours: Fault::ConcealsResets => durable::positions_of_no_history_are_answered_with_a_reset;
    keys_that_are_forgotten: Fault::ForgetsKeys => durable::a_key_makes_an_event_be_stored_once;
    keys_that_hold_beyond_their_channel: Fault::SharesKeysBetweenChannels => durable::a_key_makes_an_event_be_stored_once;
    a_head_that_stays_at_the_beginning: Fault::HeadIsTheBeginning => durable::the_head_is_the_last_position;
    a_failover_that_nobody_is_told_of: Fault::ConcealsResets => durable::a_failover_that_lost_the_tail_is_reported_and_its_numbers_are_not_mistaken;
}

struct Cluster {
    memory: MemoryCluster,
    fault: Option<Fault>,
}

impl Cluster {
    fn with(fault: Option<Fault>) -> Self {
        let mut limits = PayloadLimits::default();
        if fault == Some(Fault::AllowsOneByteMore) {
            limits.durable += 1;
        }
        Self { memory: MemoryCluster::with_limits(limits), fault }
    }
}

#[async_trait]
impl durable::Fixture for Cluster {
    async fn new() -> Self {
        Self::with(None)
    }

    fn bus(&self, _node: usize) -> Arc<dyn DurableBus> {
        Arc::new(Bus { inner: self.memory.durable(), fault: self.fault })
    }

    /// Live events cannot be lost here.
    async fn disturb(&self) {}

    async fn prune(&self, channel: &Channel, keep: usize) {
        self.memory.prune(channel, keep);
    }

    async fn fail_over(&self, lost: u64) {
        self.memory.fail_over(lost);
    }
}

struct Bus {
    inner: Arc<MemoryDurable>,
    fault: Option<Fault>,
}

impl Bus {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    async fn last(&self, channel: &Channel) -> Option<(Position, Payload)> {
        let everything = self.inner.history(channel, None, usize::MAX).await;
        let Ok(History::Page(events)) = everything else { return None };
        events.last().map(|event| (event.position, event.payload.clone()))
    }

    fn break_stream(&self, events: DurableStream) -> DurableStream {
        match self.fault {
            Some(Fault::Skips) => events
                .filter(|item| {
                    let skipped = matches!(item, DurableItem::Event(event) if event.position.seq % 70 == 69);
                    std::future::ready(!skipped)
                })
                .boxed(),
            Some(Fault::Repeats) => events.flat_map(|item| stream::iter([item.clone(), item])).boxed(),
            Some(Fault::EndsWhenItLags) => events.take(1_000).boxed(),
            Some(Fault::ConcealsPruning) => {
                conceal(events, |item| matches!(item, DurableItem::Pruned { .. }))
            }
            Some(Fault::ConcealsResets) => conceal(events, |item| matches!(item, DurableItem::Reset { .. })),
            _ => events,
        }
    }
}

fn conceal(events: DurableStream, news: fn(&DurableItem) -> bool) -> DurableStream {
    events.filter(move |item| std::future::ready(!news(item))).boxed()
}

#[async_trait]
impl DurableBus for Bus {
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<Position, DurableError> {
        let (mut channel, mut event, mut payload) = (channel.clone(), event.clone(), payload.clone());
        match self.fault {
            Some(Fault::FoldsCase) => channel = Channel::parse(&channel.as_str().to_lowercase()).unwrap(),
            Some(Fault::ForgetsEventNames) => event = EventName::parse("message").unwrap(),
            Some(Fault::ReencodesPayloads) => {
                payload = Payload::parse(&payload.as_str().replace([' ', '\n'], "")).unwrap();
            }
            Some(Fault::MergesEqualEvents) => {
                if let Some((position, last)) = self.last(&channel).await
                    && last == payload
                {
                    return Ok(position);
                }
            }
            _ => {}
        }
        let position = self.inner.publish(&channel, &event, &payload).await?;
        let factor = if self.has(Fault::CountsWithGaps) { 2 } else { 1 };
        Ok(Position { seq: position.seq * factor, ..position })
    }

    async fn publish_once(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
        key: &IdempotencyKey,
    ) -> Result<Position, DurableError> {
        match self.fault {
            Some(Fault::ForgetsKeys) => self.inner.publish(channel, event, payload).await,
            Some(Fault::SharesKeysBetweenChannels) => {
                let everywhere = Channel::parse("everywhere").unwrap();
                self.inner.publish_once(&everywhere, event, payload, key).await
            }
            _ => self.inner.publish_once(channel, event, payload, key).await,
        }
    }

    async fn head(&self, channel: &Channel) -> Result<Position, DurableError> {
        let head = self.inner.head(channel).await?;
        Ok(if self.has(Fault::HeadIsTheBeginning) { Position { seq: 0, ..head } } else { head })
    }

    async fn subscribe(&self, channel: &Channel, from: StartFrom) -> Result<DurableStream, DurableError> {
        let from = match (self.fault, from) {
            (Some(Fault::NowIsTheBeginning), StartFrom::Now) => StartFrom::Oldest,
            (Some(Fault::AfterIsNow), StartFrom::After(_))
            | (Some(Fault::OldestIsNow), StartFrom::Oldest) => StartFrom::Now,
            (Some(Fault::AfterRepeatsThePosition), StartFrom::After(after)) => {
                StartFrom::After(Position { seq: after.seq.saturating_sub(1), ..after })
            }
            (_, from) => from,
        };
        if self.has(Fault::StartsLate) {
            let (inner, channel) = (Arc::clone(&self.inner), channel.clone());
            let late = async move { inner.subscribe(&channel, from).await.unwrap() };
            return Ok(stream::once(late).flatten().boxed());
        }
        Ok(self.break_stream(self.inner.subscribe(channel, from).await?))
    }

    async fn history(
        &self,
        channel: &Channel,
        after: Option<Position>,
        limit: usize,
    ) -> Result<History, DurableError> {
        let limit = if self.has(Fault::IgnoresLimits) { usize::MAX } else { limit };
        let after = after.filter(|_| !self.has(Fault::RefersToTheBeginning));
        let concealed = match self.inner.history(channel, after, limit).await? {
            History::Pruned { .. } => self.has(Fault::ConcealsPruning),
            History::Reset { .. } => self.has(Fault::ConcealsResets),
            page @ History::Page(_) => return Ok(page),
        };
        if concealed {
            Ok(History::Page(Vec::new()))
        } else {
            self.inner.history(channel, after, limit).await
        }
    }
}
