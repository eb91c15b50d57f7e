//! What one subscription of a socket is fed with: the channel's durable events, its ephemeral ones, and who is present.
//!
//! Invariant: history comes before live events and without a seam, which is the durable bus's promise; what was stored before the join is marked
//! as replayed.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use switchboard_core::ports::{DurableItem, EphemeralItem, History, StartFrom};
use switchboard_core::presence::PresenceItem;
use switchboard_core::types::{Channel, Position};
use switchboard_protocol::session::{Refusal, Start, Subscribe};
use time::OffsetDateTime;
use tokio::time::timeout;

use super::requests::LIMIT;
use crate::state::{Gateway, Services};

/// What is told to a socket, in order of each kind.
#[derive(Debug)]
pub(super) enum Item {
    /// And whether it was stored before the join.
    Durable(DurableItem, bool),
    Ephemeral(EphemeralItem),
    Presence(PresenceItem),
    /// A bus has ended.
    End,
}

/// Begins to listen. Waits for no longer than a client would.
pub(super) async fn open(
    gateway: &Gateway,
    subscribe: &Subscribe,
) -> Result<BoxStream<'static, Item>, Refusal> {
    let services = gateway.ready().map_err(Refusal::unavailable)?;
    let begun = timeout(LIMIT, begin(services, subscribe)).await;
    begun.map_err(|_elapsed| Refusal::unavailable(format!("the bus did not answer within {LIMIT:?}")))?
}

async fn begin(services: &Services, subscribe: &Subscribe) -> Result<BoxStream<'static, Item>, Refusal> {
    let channel = &subscribe.channel;
    let ephemeral = services.ephemeral.subscribe(channel).await?;
    let (from, replayed) = match subscribe.start {
        Start::Now => (StartFrom::Now, None),
        Start::After(position) => (StartFrom::After(position), Some(services.durable.head(channel).await?)),
        Start::Oldest => (StartFrom::Oldest, Some(services.durable.head(channel).await?)),
        Start::Since { since, limit } => {
            let head = services.durable.head(channel).await?;
            (StartFrom::After(before(services, channel, head, since, limit).await?), Some(head))
        }
    };
    let durable = services.durable.subscribe(channel, from).await?;
    let durable = durable.map(move |item| {
        let is_old = matches!((&item, replayed), (DurableItem::Event(event), Some(head))
            if event.position.epoch == head.epoch && event.position.seq <= head.seq);
        Item::Durable(item, is_old)
    });
    let events = stream::select(ending(durable), ending(ephemeral.map(Item::Ephemeral)));
    if !subscribe.presence {
        return Ok(events.boxed());
    }
    let (presence, channel) = (Arc::clone(&services.presence), channel.clone());
    let presence = async move {
        presence.settled().await;
        presence.subscribe(&channel).map(Item::Presence)
    };
    let presence = presence.flatten_stream();
    Ok(stream::select(events, ending(presence)).boxed())
}

/// The position before the last `limit` events that were written at or after `since`.
async fn before(
    services: &Services,
    channel: &Channel,
    head: Position,
    since: OffsetDateTime,
    limit: usize,
) -> Result<Position, Refusal> {
    let at = |seq: u64| Position { seq, ..head };
    let mut after = at(head.seq.saturating_sub(limit.try_into().unwrap_or(u64::MAX)));
    while after.seq < head.seq {
        match services.durable.history(channel, Some(after), limit).await? {
            History::Page(events) => {
                let Some(last) = events.last() else { break };
                if let Some(first) = events.iter().find(|event| event.created_at >= since) {
                    return Ok(at(first.position.seq.saturating_sub(1)));
                }
                after = last.position;
            }
            History::Pruned { oldest } if oldest.seq.saturating_sub(1) > after.seq => {
                after = at(oldest.seq - 1);
            }
            History::Pruned { .. } | History::Reset { .. } => break,
        }
    }
    Ok(head)
}

fn ending(
    items: impl stream::Stream<Item = Item> + Send + 'static,
) -> impl stream::Stream<Item = Item> + Send {
    items.chain(stream::once(async { Item::End }))
}
