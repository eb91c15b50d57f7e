//! Chooses where the nodes serve HTTP, and makes sure before anything is started that they can.

use anyhow::ensure;
use switchboard_embedded_postgres::free_port;
use tokio::net::TcpListener;

use crate::config::HttpAddr;

/// How often another free port is tried before the address is to blame.
const ATTEMPTS: usize = 5;

/// One address for each of `count` nodes: consecutive ports from that of `first`, or free ones if it is 0. Until the nodes have them, nobody
/// holds them.
pub(crate) async fn choose(first: &HttpAddr, count: u16) -> anyhow::Result<Vec<HttpAddr>> {
    ensure!(
        first.port().checked_add(count - 1).is_some(),
        "{count} consecutive ports from {} on do not exist; choose a lower one with --http",
        first.port()
    );
    // All at once, so that no free port is found twice.
    let mut held = Vec::new();
    for offset in 0..count {
        held.push(match first.port() {
            0 => hold_any(first).await?,
            port => first.with_port(port + offset).listen("--http").await?,
        });
    }
    held.iter().map(|listener| Ok(first.with_port(listener.local_addr()?.port()))).collect()
}

/// Holds a free port. One that is chosen may be taken by somebody else first.
async fn hold_any(addr: &HttpAddr) -> anyhow::Result<TcpListener> {
    for _ in 1..ATTEMPTS {
        if let Ok(listener) = addr.with_port(free_port()).listen("--http").await {
            return Ok(listener);
        }
    }
    addr.with_port(free_port()).listen("--http").await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> HttpAddr {
        HttpAddr::parse(text).unwrap()
    }

    #[tokio::test]
    async fn free_ports_are_different_ones() {
        let chosen = choose(&addr("127.0.0.1:0"), 5).await.unwrap();
        let mut ports: Vec<_> = chosen.iter().map(HttpAddr::port).collect();
        ports.sort_unstable();
        ports.dedup();
        assert!(ports.len() == 5 && !ports.contains(&0), "{ports:?}");
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let holder = addr("127.0.0.1:0").listen("--http").await.unwrap();
        let port = holder.local_addr().unwrap().port();
        let error = choose(&addr(&format!("127.0.0.1:{port}")), 3).await.unwrap_err().to_string();
        assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
    }

    #[tokio::test]
    async fn ports_end_at_65535() {
        assert!(choose(&addr("127.0.0.1:65534"), 3).await.is_err());
    }
}
