//! Where the mesh listens, and how it sends.

use std::ffi::OsString;
use std::net::{Ipv6Addr, SocketAddr};

use clap::Args;
use switchboard_core::types::{Endpoint, Invalid};

use super::setting::{ConfigError, Setting, one_of};

pub(crate) const MESH_ADDR: Setting = Setting::new("MESH_ADDR", "--mesh-addr");
const MESH_GSO: Setting = Setting::new("MESH_GSO", "--mesh-gso");

/// As given.
#[derive(Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct MeshArgs {
    /// The UDP address of the mesh: `ip:port`, `[v6]:port`, or `:port` for all interfaces. Port 0 takes a free one.
    /// [default: all interfaces, with the port of `CLUSTER_ENDPOINT` or a free one]
    #[arg(long, env = "MESH_ADDR", hide_env_values = true, value_name = "IP:PORT")]
    mesh_addr: Option<OsString>,

    /// Whether the system cuts datagrams apart (UDP GSO): `on` or `off`. Off costs processor time; needed where a driver or a virtual network
    /// loses them without saying so.
    #[arg(long, env = "MESH_GSO", hide_env_values = true, value_name = "on|off", default_value = "on")]
    mesh_gso: OsString,
}

/// As checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MeshSettings {
    pub(crate) addr: SocketAddr,
    pub(crate) gso: bool,
}

impl MeshArgs {
    /// For a node that peers reach at `endpoint`, if that was said.
    pub(crate) fn resolve(self, endpoint: Option<&Endpoint>) -> Result<MeshSettings, ConfigError> {
        let gso = MESH_GSO.parse(&self.mesh_gso, |text| one_of(text, &[("on", true), ("off", false)]))?;
        Ok(MeshSettings { addr: addr(self.mesh_addr, endpoint)?, gso })
    }
}

fn addr(given: Option<OsString>, endpoint: Option<&Endpoint>) -> Result<SocketAddr, ConfigError> {
    let Some(given) = given else { return Ok(everywhere(endpoint.map_or(0, Endpoint::port))) };
    let addr = MESH_ADDR.parse(&given, parse)?;
    if addr.port() == 0 && endpoint.is_some() {
        let rule = "must name its port where CLUSTER_ENDPOINT is set, or peers would dial another one";
        return Err(MESH_ADDR.refuse(&given.to_string_lossy(), rule));
    }
    Ok(addr)
}

fn parse(text: &str) -> Result<SocketAddr, Invalid> {
    let digits = |port: &&str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.strip_prefix(':').filter(digits).and_then(|port| port.parse().ok());
    port.map(everywhere).or_else(|| text.parse().ok()).ok_or_else(|| {
        Invalid::new("address", text, "must be ip:port, [v6]:port, or :port for all interfaces")
    })
}

fn everywhere(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(given: Option<&str>, endpoint: Option<&str>) -> Result<String, String> {
        let endpoint = endpoint.map(|endpoint| Endpoint::parse(endpoint).unwrap());
        addr(given.map(OsString::from), endpoint.as_ref())
            .map(|addr| addr.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_mesh_listens_where_the_endpoint_says_peers_dial() {
        assert_eq!(resolved(None, None).unwrap(), "[::]:0");
        assert_eq!(resolved(None, Some("10.0.0.7:4433")).unwrap(), "[::]:4433");
        assert_eq!(resolved(Some(":4434"), Some("10.0.0.7:4433")).unwrap(), "[::]:4434");
        for addr in ["127.0.0.1:0", "0.0.0.0:4433", "[::1]:4433"] {
            assert_eq!(resolved(Some(addr), None).unwrap(), addr);
        }
        assert!(resolved(Some(":0"), Some("10.0.0.7:4433")).unwrap_err().contains("CLUSTER_ENDPOINT"));
        for bad in ["", ":", "4433", ":+1", "localhost:1", "::1:4433", ":65536"] {
            assert!(resolved(Some(bad), None).unwrap_err().contains("must be ip:port"), "{bad:?}");
        }
    }
}
