//! A shop that takes orders on any number of instances, which know each other and each other's orders, with the crates alone:
//! no server of Switchboard's, no HTTP.
//!
//! What it shows: joining and watching the cluster; an event in the transaction of the table that it tells of; reading that table
//! and then following its events without a gap; events that are not worth storing; leaving.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use serde_json::json;
use switchboard_core::health::HealthRegistry;
use switchboard_core::node::{Node, NodeConfig, OnEviction};
use switchboard_core::ports::{DurableItem, EphemeralStream, StartFrom};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{Channel, EventName, Payload, Position, Stats};
use switchboard_postgres::sqlx::{self, Connection, PgConnection};
use switchboard_postgres::{Postgres, PostgresConfig};

/// One instance of the shop.
pub struct Shop {
    postgres: Postgres,
    node: Node,
    database: String,
    orders: Channel,
}

/// What somebody who watches the orders is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// There is this order.
    Order(String),
    /// Orders may be missing, since history is gone: read the table again.
    ReadAgain,
}

impl Shop {
    /// Joins the cluster as `name`, which no other live instance may have. Peers are told to find it at `endpoint`.
    pub async fn open(database: &str, name: &str, endpoint: &str) -> anyhow::Result<Self> {
        let stats = StatsRegistry::default();
        let config = PostgresConfig::new(database.parse()?, name.parse()?);
        // Checks that say what is wrong, for your own health route, are in the health registry.
        let postgres = Postgres::connect(config, &stats, &HealthRegistry::default()).await?;
        let node = NodeConfig {
            node_id: name.parse()?,
            endpoint: endpoint.parse()?,
            // What other instances may want to know of this one.
            meta: Stats::default(),
            timing: Timing::default(),
            on_eviction: OnEviction::Rejoin,
        };
        let node = Node::spawn(postgres.registry(), node, stats);
        node.joined().await.map_err(|end| anyhow::anyhow!("cannot join: {end:?}"))?;
        let shop = Self { postgres, node, database: database.to_owned(), orders: "orders".parse()? };
        sqlx::query(
            "CREATE TABLE IF NOT EXISTS shop_orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL)",
        )
        .execute(&mut shop.connection().await?)
        .await?;
        Ok(shop)
    }

    /// The names of all instances that are alive, this one first.
    pub fn instances(&self) -> Vec<String> {
        let membership = self.node.membership().borrow().clone();
        let peers = membership.peers().iter().map(|peer| &peer.identity.node_id);
        std::iter::once(&membership.me().node_id).chain(peers).map(ToString::to_string).collect()
    }

    /// Takes an order: the row and the event are there together or not at all. Answers the position of the event.
    pub async fn order(&self, item: &str) -> anyhow::Result<Position> {
        let mut connection = self.connection().await?;
        let mut transaction = connection.begin().await?;
        sqlx::query("INSERT INTO shop_orders (item) VALUES ($1)")
            .bind(item)
            .execute(&mut *transaction)
            .await?;
        // Last, since it holds the channel until the transaction ends.
        let position = self
            .postgres
            .publish_in(&mut transaction, &self.orders, &"placed".parse()?, &text(item)?, None)
            .await?;
        transaction.commit().await?;
        Ok(position)
    }

    /// All orders there are, and then each new one, once, wherever it was taken.
    ///
    /// The position is read before the table. What is ordered in between is in both, so this example reads both in one snapshot.
    pub async fn watch(&self) -> anyhow::Result<BoxStream<'static, Told>> {
        let mut connection = self.connection().await?;
        let mut snapshot = connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
        let head: String = sqlx::query_scalar("SELECT switchboard.head($1)::text")
            .bind(self.orders.as_str())
            .fetch_one(&mut *snapshot)
            .await?;
        let items: Vec<String> =
            sqlx::query_scalar("SELECT item FROM shop_orders ORDER BY id").fetch_all(&mut *snapshot).await?;
        snapshot.commit().await?;
        let head = Position::parse(&head)?;
        let events = self.postgres.durable().subscribe(&self.orders, StartFrom::After(head)).await?;
        let news = events.map(|item| match item {
            DurableItem::Event(event) => {
                serde_json::from_str(event.payload.as_str()).map_or(Told::ReadAgain, Told::Order)
            }
            DurableItem::Pruned { .. } | DurableItem::Reset { .. } => Told::ReadAgain,
        });
        Ok(stream::iter(items).map(Told::Order).chain(news).boxed())
    }

    /// Tells whoever looks right now that somebody is about to order. Never stored.
    pub async fn hesitate(&self, who: &str) -> anyhow::Result<()> {
        let event: EventName = "hesitates".parse()?;
        Ok(self.postgres.ephemeral().publish(&self.orders, &event, &text(who)?).await?)
    }

    /// Who hesitates, from now on.
    pub async fn hesitations(&self) -> anyhow::Result<EphemeralStream> {
        Ok(self.postgres.ephemeral().subscribe(&self.orders).await?)
    }

    /// Waits until this instance can go on no more. With [`OnEviction::Rejoin`] that is only if its name was taken.
    pub async fn ended(&self) -> anyhow::Error {
        anyhow::anyhow!("this instance is not in the cluster any more: {:?}", self.node.ended().await)
    }

    /// Leaves, so that nobody has to find out that this instance is gone.
    pub async fn close(self) {
        self.node.leave(Duration::from_secs(5)).await;
        self.postgres.close().await;
    }

    /// A service has a pool of its own; the connections of Switchboard are not for its queries.
    async fn connection(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.database).await?)
    }
}

fn text(value: &str) -> anyhow::Result<Payload> {
    Ok(Payload::parse(&json!(value).to_string())?)
}
