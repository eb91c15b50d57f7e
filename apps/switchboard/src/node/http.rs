//! The node's HTTP server: up before anything else, so that a probe can tell "starting" from "dead", and owner of its task.

use std::sync::Arc;
use std::time::Duration;

use switchboard_core::stats::StatsRegistry;
use switchboard_gateway::auth::Verifier;
use switchboard_gateway::{Gateway, GatewayConfig, Services};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::files;
use crate::config::{AdminToken, ServeConfig};

/// A running server. Dropping it ends it at once.
pub(super) struct Http {
    gateway: Gateway,
    port: u16,
    stop: CancellationToken,
    server: JoinHandle<()>,
}

impl Http {
    /// Binds the address and serves. Fails if it cannot be had.
    pub(super) async fn start(config: &ServeConfig, stats: &StatsRegistry) -> anyhow::Result<Self> {
        let addr = &config.http.addr;
        let listener = addr.listen("HTTP_ADDR").await?;
        let port = listener.local_addr()?.port();
        let connections = files::for_http(config.http.max_connections, config.postgres().max_connections())?;
        info!(connections, url = addr.with_port(port).local_url(), "serving HTTP");
        let gateway = Gateway::new(
            GatewayConfig {
                node_id: config.cluster.node_id.clone(),
                admin_token: config.http.admin_token.as_ref().map(AdminToken::reveal).map(str::to_owned),
                verifier: config.auth.tokens.clone().map(|tokens| Arc::new(Verifier::new(tokens))),
                origins: config.auth.origins.clone(),
                metrics: config.metrics.access(),
                open_access: config.dev_open_access,
                limits: config.http.limits,
                timing: config.cluster.timing,
                sockets: config.sockets,
                connections,
            },
            stats,
        );
        let stop = CancellationToken::new();
        let server = tokio::spawn({
            let (gateway, stop) = (gateway.clone(), stop.clone());
            // How long it may take is up to whoever stops it.
            async move { gateway.serve(listener, stop, Duration::MAX).await }
        });
        Ok(Self { gateway, port, stop, server })
    }

    /// The port it is bound to.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Says what the start is waiting for.
    pub(super) fn starting(&self, why: String) {
        self.gateway.starting(why);
    }

    /// Opens the doors.
    pub(super) fn attach(&self, services: Services) {
        self.gateway.attach(services);
    }

    /// Takes no more work, ends streams, lets requests finish for at most `patience`.
    pub(super) async fn stop(mut self, patience: Duration) {
        self.gateway.drain();
        self.stop.cancel();
        let _ = tokio::time::timeout(patience, &mut self.server).await;
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.server.abort();
    }
}
