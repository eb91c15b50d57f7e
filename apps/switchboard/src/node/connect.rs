//! Reaches PostgreSQL at the start: waits out what passes by itself, gives up on what a person must mend.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use switchboard_core::health::HealthRegistry;
use switchboard_core::stats::StatsRegistry;
use switchboard_postgres::{Postgres, PostgresConfig, PostgresError};
use tracing::{info, warn};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Jitter makes it up to twice as long.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Connects, however long it takes; `waiting` hears why it takes long. The error is permanent.
pub(crate) async fn connect(
    config: &PostgresConfig,
    stats: &StatsRegistry,
    health: &HealthRegistry,
    waiting: impl Fn(String),
) -> Result<Postgres, PostgresError> {
    waiting("connecting to PostgreSQL".to_owned());
    let pauses = ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times();
    let postgres = (|| Postgres::connect(config.clone(), stats, health))
        .retry(pauses)
        .when(PostgresError::is_transient)
        .notify(|error, pause| {
            warn!(%error, retry_in = ?pause, "cannot use PostgreSQL yet");
            waiting(format!("cannot use PostgreSQL yet: {error}"));
        })
        .await?;
    info!(database = %config.dsn, "connected to PostgreSQL");
    Ok(postgres)
}
