//! An HTTP client for tests.

use std::time::Duration;

/// A client that gives up on a silent server after ten seconds; a stream may last longer between its pieces.
pub fn http_client() -> reqwest::Client {
    // Nothing here speaks TLS, but the client is built with it, since another crate of the build asks for that; and then it wants
    // to know whose. An error means that it was told before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let limit = Duration::from_secs(10);
    reqwest::Client::builder().connect_timeout(limit).read_timeout(limit).build().unwrap()
}
