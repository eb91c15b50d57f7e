//! PostgreSQL for tests: one per test process, or one of its own for tests that stop, freeze or crash it.

use std::env;

use switchboard_embedded_postgres::Options;
pub use switchboard_embedded_postgres::{PrivatePostgres, StopMode};
use tokio::sync::OnceCell;

/// Names a server to use instead of starting one.
pub const SERVER_VARIABLE: &str = "SWITCHBOARD_TEST_DATABASE_URL";

/// Started when first asked for. Never dropped: its watchdog stops it when the process ends.
static SHARED: OnceCell<PrivatePostgres> = OnceCell::const_new();

/// URL of the server that the tests of this process share. Every test uses a schema of its own.
pub async fn shared_url() -> String {
    if let Ok(url) = env::var(SERVER_VARIABLE) {
        return url;
    }
    SHARED.get_or_init(|| own(&[("max_connections", "500")])).await.url().to_owned()
}

/// A server for one test alone, with settings of its own.
pub async fn own(configuration: &[(&str, &str)]) -> PrivatePostgres {
    let configuration = configuration.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let options = Options { configuration: configuration.collect(), ..Options::default() };
    PrivatePostgres::start(options).await.expect("a private PostgreSQL starts")
}
