//! Ephemeral buses that break their promises.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use switchboard_core::fanout::{EPHEMERAL_MAILBOX, EphemeralFanout};
use switchboard_core::ports::{EphemeralBus, EphemeralError, EphemeralItem, EphemeralStream};
use switchboard_core::types::{Channel, EphemeralEvent, EventName, Payload, PayloadLimits};
use switchboard_testkit::suites::ephemeral;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::faults;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    DeliversTwice,
    ForgetsItsOwnSubscribers,
    Reorders,
    MergesEqualEvents,
    ReencodesPayloads,
    ForgetsEventNames,
    FoldsCase,
    CutsNames,
    LosesLargePayloads,
    AllowsOneByteMore,
    RefusesTheLimit,
    KeepsTheLastEvent,
    WaitsForTheSlow,
    DropsSilently,
    DropsNothing,
    HearsTheFirstSubscribersOnly,
}

faults! { Cluster,
    an_event_that_comes_twice: Fault::DeliversTwice => ephemeral::every_node_hears_an_event_once_the_publisher_included;
    an_event_that_comes_twice_while_others_come_and_go: Fault::DeliversTwice => ephemeral::subscribers_that_come_and_go_cost_the_others_nothing;
    an_event_that_does_not_come_back_to_its_own_node: Fault::ForgetsItsOwnSubscribers => ephemeral::every_node_hears_an_event_once_the_publisher_included;
    a_subscription_that_misses_its_first_event: Fault::ForgetsItsOwnSubscribers => ephemeral::a_subscription_hears_the_very_next_event;
    events_out_of_order: Fault::Reorders => ephemeral::one_publishers_events_come_in_order;
    equal_events_that_are_merged: Fault::MergesEqualEvents => ephemeral::equal_events_are_all_delivered;
    payloads_that_are_parsed_and_written_again: Fault::ReencodesPayloads => ephemeral::payloads_arrive_byte_for_byte;
    event_names_that_are_lost: Fault::ForgetsEventNames => ephemeral::event_names_arrive_as_they_are;
    channels_that_differ_by_case_alone: Fault::FoldsCase => ephemeral::channels_are_told_apart_by_their_exact_names;
    channel_names_that_are_cut: Fault::CutsNames => ephemeral::channels_are_told_apart_by_their_exact_names;
    large_payloads_that_are_lost: Fault::LosesLargePayloads => ephemeral::limits_are_exact;
    a_limit_that_is_one_byte_too_high: Fault::AllowsOneByteMore => ephemeral::limits_are_exact;
    a_limit_that_is_one_byte_too_low: Fault::RefusesTheLimit => ephemeral::limits_are_exact;
    events_that_are_kept: Fault::KeepsTheLastEvent => ephemeral::nothing_is_kept_for_those_who_come_later;
    a_publisher_that_waits_for_the_slow: Fault::WaitsForTheSlow => ephemeral::a_slow_subscriber_loses_its_own_oldest_and_slows_nobody;
    events_that_are_dropped_in_silence: Fault::DropsSilently => ephemeral::a_slow_subscriber_loses_its_own_oldest_and_slows_nobody;
    a_queue_without_a_bound: Fault::DropsNothing => ephemeral::a_slow_subscriber_loses_its_own_oldest_and_slows_nobody;
    subscribers_that_are_forgotten: Fault::HearsTheFirstSubscribersOnly => ephemeral::many_subscribers_of_one_channel_all_hear;
}

/// Two nodes, each with a fan-out of its own.
struct Cluster(Arc<Shared>);

struct Shared {
    fault: Option<Fault>,
    nodes: [EphemeralFanout; 2],
    last: Mutex<Option<Arc<EphemeralEvent>>>,
}

impl Cluster {
    fn with(fault: Option<Fault>) -> Self {
        let capacity = if fault == Some(Fault::DropsNothing) { usize::MAX } else { EPHEMERAL_MAILBOX };
        let nodes = [EphemeralFanout::new(capacity), EphemeralFanout::new(capacity)];
        Self(Arc::new(Shared { fault, nodes, last: Mutex::default() }))
    }
}

#[async_trait]
impl ephemeral::Fixture for Cluster {
    async fn new() -> Self {
        Self::with(None)
    }

    fn bus(&self, node: usize) -> Arc<dyn EphemeralBus> {
        Arc::new(Bus { shared: Arc::clone(&self.0), node })
    }
}

struct Bus {
    shared: Arc<Shared>,
    node: usize,
}

impl Bus {
    fn has(&self, fault: Fault) -> bool {
        self.shared.fault == Some(fault)
    }

    fn limit(&self) -> usize {
        let limit = PayloadLimits::default().ephemeral;
        match self.shared.fault {
            Some(Fault::AllowsOneByteMore) => limit + 1,
            Some(Fault::RefusesTheLimit) => limit - 1,
            _ => limit,
        }
    }

    fn route(&self, channel: &Channel) -> Channel {
        let name = channel.as_str();
        match self.shared.fault {
            Some(Fault::FoldsCase) => Channel::parse(&name.to_lowercase()).unwrap(),
            Some(Fault::CutsNames) if name.is_ascii() => {
                Channel::parse(&name[..name.len().min(254)]).unwrap()
            }
            _ => channel.clone(),
        }
    }

    fn deliver(&self, event: &Arc<EphemeralEvent>) {
        let times = if self.has(Fault::DeliversTwice) { 2 } else { 1 };
        for (node, fanout) in self.shared.nodes.iter().enumerate() {
            if !(self.has(Fault::ForgetsItsOwnSubscribers) && node == self.node) {
                (0..times).for_each(|_| {
                    fanout.deliver(self.route(&event.channel).as_str(), event);
                });
            }
        }
    }
}

#[async_trait]
impl EphemeralBus for Bus {
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<(), EphemeralError> {
        payload.within(self.limit())?;
        let name = if self.has(Fault::ForgetsEventNames) { "message" } else { event.as_str() };
        let reencoded = |_: &Fault| Payload::parse(&payload.as_str().replace([' ', '\n'], "")).ok();
        let event = Arc::new(EphemeralEvent {
            channel: channel.clone(),
            event: EventName::parse(name).unwrap(),
            payload: (self.shared.fault.as_ref().filter(|fault| **fault == Fault::ReencodesPayloads))
                .and_then(reencoded)
                .unwrap_or_else(|| payload.clone()),
        });
        if self.has(Fault::WaitsForTheSlow) && self.shared.nodes[1].dropped().get() > 0 {
            sleep(Duration::from_secs(6)).await;
        }
        let mut last = self.shared.last.lock().await;
        let lost = self.has(Fault::LosesLargePayloads) && payload.len() > 8_000
            || self.has(Fault::MergesEqualEvents) && last.as_ref() == Some(&event);
        let reorders = self.has(Fault::Reorders) && self.node == 0;
        let held = reorders && last.is_none();
        if !lost && !held {
            self.deliver(&event);
        }
        if reorders && !held {
            last.take().iter().for_each(|late| self.deliver(late));
        } else {
            *last = Some(event);
        }
        Ok(())
    }

    async fn subscribe(&self, channel: &Channel) -> Result<EphemeralStream, EphemeralError> {
        let fanout = &self.shared.nodes[self.node];
        if self.has(Fault::HearsTheFirstSubscribersOnly) && fanout.subscribers() > 255 {
            return Ok(futures::stream::pending().boxed());
        }
        let events = fanout.stream(&self.route(channel));
        if self.has(Fault::DropsSilently) {
            return Ok(events
                .filter(|item| std::future::ready(!matches!(item, EphemeralItem::Lagged(_))))
                .boxed());
        }
        let kept = self.shared.last.lock().await.clone().filter(|_| self.has(Fault::KeepsTheLastEvent));
        Ok(futures::stream::iter(kept.map(EphemeralItem::Event)).chain(events).boxed())
    }
}
