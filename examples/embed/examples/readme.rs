//! The README's excerpt in Rust, for the compiler to read; `.ci/docs` compares the two.

use switchboard_core::health::HealthRegistry;
use switchboard_core::stats::StatsRegistry;
use switchboard_core::types::{Channel, EventName, Payload, Position};
use switchboard_postgres::sqlx::{self, Connection, PgConnection};
use switchboard_postgres::{Postgres, PostgresConfig};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut connection = PgConnection::connect("postgres://user:password@db/app").await?;
    order(&mut connection, "orders".parse()?, "placed".parse()?, Payload::parse("7")?).await?;
    Ok(())
}

/// An order, and the event that tells of it, in one transaction.
async fn order(
    connection: &mut PgConnection,
    channel: Channel,
    event: EventName,
    payload: Payload,
) -> anyhow::Result<Position> {
    let config = PostgresConfig::new("postgres://user:password@db/app".parse()?, "my-service-1".parse()?);
    let postgres = Postgres::connect(config, &StatsRegistry::default(), &HealthRegistry::default()).await?;

    let mut tx = connection.begin().await?;
    sqlx::query("INSERT INTO orders …").execute(&mut *tx).await?;
    let position = postgres.publish_in(&mut tx, &channel, &event, &payload, None).await?;
    tx.commit().await?;
    Ok(position)
}
