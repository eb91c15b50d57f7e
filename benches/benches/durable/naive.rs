//! The naive way: one `INSERT` and one `pg_notify` per event and transaction, in one statement, on 16 connections.

use std::sync::Arc;

use async_trait::async_trait;
use switchboard_postgres::sqlx::postgres::{PgListener, PgPool, PgPoolOptions};
use switchboard_postgres::sqlx::{query, raw_sql};

use super::load::{NODES, Received, Way};

#[derive(Clone)]
pub(crate) struct Naive {
    pool: PgPool,
    received: Arc<Received>,
}

impl Naive {
    pub(crate) async fn start(url: &str) -> Self {
        let connections = u32::try_from(Self::WORKERS).expect("few");
        let options = PgPoolOptions::new().max_connections(connections).test_before_acquire(false);
        let pool = options.connect(url).await.expect("connects");
        let table = "CREATE TABLE naive (id bigserial PRIMARY KEY, channel text NOT NULL, payload json NOT NULL, \
             created_at timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON naive (channel, id)";
        raw_sql(table).execute(&pool).await.expect("creates");
        let received = Received::new();
        for node in 0..NODES {
            let mut listener = PgListener::connect(url).await.expect("connects");
            listener.listen("naive").await.expect("listens");
            let received = Arc::clone(&received);
            tokio::spawn(async move {
                while let Ok(notification) = listener.recv().await {
                    received.arrived(node, notification.payload());
                }
            });
        }
        Self { pool, received }
    }
}

#[async_trait]
impl Way for Naive {
    const WORKERS: usize = 16;

    async fn publish(&self, _node: usize, channel: usize, payload: String) {
        let statement = "WITH stored AS (INSERT INTO naive (channel, payload) VALUES ($1, $2::json) RETURNING id) \
             SELECT pg_notify('naive', $2) FROM stored";
        let event = query(statement).bind(format!("room:{channel}")).bind(payload);
        event.execute(&self.pool).await.expect("publishes");
    }

    fn received(&self) -> &Received {
        &self.received
    }
}
