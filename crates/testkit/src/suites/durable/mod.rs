//! The promises of [`DurableBus`].

mod delivery;
mod history;

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use switchboard_core::ports::{DurableBus, DurableItem, DurableStream};
use switchboard_core::types::{Channel, DurableEvent, Position};
use tokio::time::timeout;

pub use delivery::*;
pub use history::*;

use super::values::{event, payload};
use crate::wait::LONG;

/// Two nodes of one cluster.
#[async_trait]
pub trait Fixture: Send + Sync + Sized {
    /// A cluster that nobody else uses.
    async fn new() -> Self;

    /// The bus of node 0 or node 1.
    fn bus(&self, node: usize) -> Arc<dyn DurableBus>;

    /// Whatever may happen to the way by which live events travel (a lost listener, say); the log stays.
    async fn disturb(&self);

    /// Removes the oldest events of a channel until `keep` remain.
    async fn prune(&self, channel: &Channel, keep: usize);

    /// A failover to a store that never saw the last `lost` events of each channel: a new epoch.
    async fn fail_over(&self, lost: u64);
}

/// Makes one test of each promise of [`DurableBus`], for the [`Fixture`] given.
#[macro_export]
macro_rules! durable_suite {
    ($fixture:ty) => {
        $crate::suite_tests!(
            durable,
            $fixture,
            [
                positions_count_without_gaps_whoever_publishes,
                every_subscriber_gets_every_event_once_and_in_order,
                payloads_arrive_byte_for_byte_live_and_replayed,
                event_names_arrive_as_they_are_live_and_replayed,
                channels_are_told_apart_by_their_exact_names,
                equal_events_are_all_stored,
                a_key_makes_an_event_be_stored_once,
                the_head_is_the_last_position,
                limits_are_exact_and_what_is_refused_is_not_stored,
                now_begins_when_subscribe_returns,
                oldest_replays_everything_and_goes_on,
                after_the_head_waits_for_what_comes_next,
                resuming_has_no_seam_while_events_keep_coming,
                a_disturbance_neither_loses_nor_repeats,
                a_subscriber_that_does_not_read_misses_nothing,
                history_pages_from_the_oldest_to_the_end,
                history_begins_after_any_position_and_keeps_to_the_limit,
                pruned_history_is_reported_with_the_oldest_that_remains,
                oldest_begins_with_what_remains,
                a_subscriber_that_pruning_overtakes_is_told,
                positions_of_no_history_are_answered_with_a_reset,
                a_failover_that_lost_the_tail_is_reported_and_its_numbers_are_not_mistaken,
            ]
        );
    };
}

async fn next(events: &mut DurableStream) -> DurableItem {
    timeout(LONG, events.next()).await.expect("nothing arrives").expect("the stream ended")
}

async fn next_event(events: &mut DurableStream) -> Arc<DurableEvent> {
    match next(events).await {
        DurableItem::Event(event) => event,
        other => panic!("{other:?}"),
    }
}

async fn publish(bus: &Arc<dyn DurableBus>, channel: &Channel, text: &str) -> Position {
    bus.publish(channel, &event(), &payload(text)).await.unwrap()
}

/// Publishes 1, 2, … in the background.
fn publisher(bus: Arc<dyn DurableBus>, channel: Channel, count: u64) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        for n in 1..=count {
            publish(&bus, &channel, &n.to_string()).await;
            tokio::task::yield_now().await;
        }
    })
}
