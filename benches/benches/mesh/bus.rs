//! Either system as a client sees it: publish to a channel, hear what is published to it.

use std::fmt::Display;
use std::str;

use futures::stream::{BoxStream, StreamExt};
use switchboard_core::ports::EphemeralItem;
use switchboard_core::types::{Channel, EventName, Payload};

use super::node::MeshNode;

/// Which system it is.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    Mesh,
    Nats,
}

impl Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mesh => "mesh",
            Self::Nats => "nats",
        })
    }
}

/// A connection to it. What is not the event's own is made once, as an application would.
pub(crate) enum Bus {
    Mesh(Box<MeshNode>, EventName),
    Nats(async_nats::Client),
}

impl Bus {
    pub(crate) async fn open(way: Way, url: &str, name: &str) -> Self {
        match way {
            Way::Mesh => {
                let event = EventName::parse("typing").expect("valid");
                Self::Mesh(Box::new(MeshNode::start(url, name).await), event)
            }
            Way::Nats => Self::Nats(async_nats::connect(url).await.expect("it listens")),
        }
    }

    /// Waits until there is a way to each of so many others.
    pub(crate) async fn reaches(&self, others: usize) {
        if let Self::Mesh(node, _) = self {
            node.has_links(others).await;
        }
    }

    pub(crate) async fn publish(&self, channel: &Channel, payload: String) {
        match self {
            Self::Mesh(node, event) => {
                let payload = Payload::parse(&payload).expect("valid");
                node.bus.publish(channel, event, &payload).await.expect("publishes");
            }
            Self::Nats(client) => {
                client.publish(channel.as_str().to_owned(), payload.into()).await.expect("publishes");
            }
        }
    }

    /// Payloads, from now on.
    pub(crate) async fn subscribe(&self, channel: &Channel) -> BoxStream<'static, String> {
        match self {
            Self::Mesh(node, _) => {
                let events = node.bus.subscribe(channel).await.expect("subscribes");
                // What was dropped is missing from the count of what arrived.
                let payload = async |item| match item {
                    EphemeralItem::Event(event) => Some(event.payload.as_str().to_owned()),
                    EphemeralItem::Lagged(_) => None,
                };
                events.filter_map(payload).boxed()
            }
            Self::Nats(client) => {
                let events = client.subscribe(channel.as_str().to_owned()).await.expect("subscribes");
                client.flush().await.expect("the server has it");
                events
                    .map(|message| str::from_utf8(&message.payload).expect("ours are text").to_owned())
                    .boxed()
            }
        }
    }
}

pub(crate) fn channel(name: &str) -> Channel {
    Channel::parse(name).expect("valid")
}
