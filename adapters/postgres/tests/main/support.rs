//! Temporary.
use std::time::Duration;
use switchboard_embedded_postgres::{Options, PrivatePostgres};
use tokio::sync::OnceCell;

static SHARED: OnceCell<PrivatePostgres> = OnceCell::const_new();

pub(crate) async fn shared_url() -> String {
    SHARED.get_or_init(|| own(&[("max_connections", "400")])).await.url().to_owned()
}

pub(crate) async fn own(configuration: &[(&str, &str)]) -> PrivatePostgres {
    let configuration = configuration.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    PrivatePostgres::start(Options { configuration, ..Options::default() }).await.unwrap()
}

pub(crate) async fn eventually(limit: Duration, what: &str, mut check: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + limit;
    while !check().await {
        assert!(tokio::time::Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
