//! The durable bus: three nodes in this process, each with a subscriber to every channel.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use switchboard_core::health::HealthRegistry;
use switchboard_core::ports::{DurableBus, DurableItem, StartFrom};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::types::{Channel, EventName, NodeId, Payload};
use switchboard_postgres::{Dsn, Postgres, PostgresConfig};

use super::load::{NODES, Received, Way};

const CHANNELS: usize = 100;

#[derive(Clone)]
pub(crate) struct Bus {
    /// They end with the bus.
    _nodes: Arc<[Postgres]>,
    buses: Arc<[Arc<dyn DurableBus>]>,
    channels: Arc<[Channel]>,
    event: EventName,
    received: Arc<Received>,
}

impl Bus {
    pub(crate) async fn start(url: &str) -> Self {
        let mut nodes = Vec::new();
        for node in 0..NODES {
            let (dsn, id) =
                (Dsn::parse(url).expect("valid"), NodeId::parse(&format!("n{node}")).expect("valid"));
            let (stats, health) = (StatsRegistry::default(), HealthRegistry::default());
            nodes.push(
                Postgres::connect(PostgresConfig::new(dsn, id), &stats, &health).await.expect("connects"),
            );
        }
        let buses: Arc<[_]> = nodes.iter().map(Postgres::durable).collect();
        let channels: Arc<[_]> =
            (0..CHANNELS).map(|n| Channel::parse(&format!("room:{n}")).expect("valid")).collect();
        let received = Received::new();
        for (node, bus) in buses.iter().enumerate() {
            for channel in channels.iter() {
                let mut events = bus.subscribe(channel, StartFrom::Now).await.expect("subscribes");
                let received = Arc::clone(&received);
                tokio::spawn(async move {
                    while let Some(item) = events.next().await {
                        let DurableItem::Event(event) = item else { panic!("{item:?}") };
                        received.arrived(node, event.payload.as_str());
                    }
                });
            }
        }
        let event = EventName::parse("message").expect("valid");
        Self { _nodes: nodes.into(), buses, channels, event, received }
    }

    pub(crate) fn node(&self, node: usize) -> &Arc<dyn DurableBus> {
        &self.buses[node]
    }
}

#[async_trait]
impl Way for Bus {
    const WORKERS: usize = 4000;

    async fn publish(&self, node: usize, channel: usize, payload: String) {
        let payload = Payload::parse(&payload).expect("valid");
        self.buses[node].publish(&self.channels[channel], &self.event, &payload).await.expect("publishes");
    }

    fn received(&self) -> &Received {
        &self.received
    }
}
