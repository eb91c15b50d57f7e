//! An HTTP client for tests.

use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// A client that gives up on a silent server after ten seconds; a stream may last longer between its pieces.
pub fn http_client() -> reqwest::Client {
    builder().read_timeout(LIMIT).build().unwrap()
}

/// A client that waits for ever once it is connected, for streams on which nothing may happen for a while.
pub fn patient_http_client() -> reqwest::Client {
    builder().build().unwrap()
}

fn builder() -> reqwest::ClientBuilder {
    // Nothing here speaks TLS, but the client is built with it, since another crate of the build asks for that; and then it wants
    // to know whose. An error means that it was told before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().connect_timeout(LIMIT)
}
