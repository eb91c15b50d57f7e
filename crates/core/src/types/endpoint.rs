//! Where peers reach a node: one unambiguous `host:port`.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Invalid, text_conversions};

/// The host part of an [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A DNS name in ASCII (write international names in their `xn--` form).
    Name(String),
}

/// An address that peers can dial: `host:port`, `1.2.3.4:port` or `[v6]:port`.
///
/// Never the unspecified address and never port 0: nobody can dial either. An IPv6 address needs brackets
/// (`::1:4433` could be read in two ways) and no zone (it means nothing on another machine).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Endpoint {
    host: Host,
    port: u16,
}

impl Endpoint {
    /// Reads `host:port` or `[v6]:port`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refuse = |rule: &'static str| Invalid::new("endpoint", text, rule);
        let (host, port) = text.rsplit_once(':').ok_or_else(|| refuse("must be host:port or [v6]:port"))?;
        let port = parse_port(port).ok_or_else(|| refuse("the port must be a number from 1 to 65535"))?;
        if let Some(v6) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            let ip = v6
                .parse()
                .map_err(|_| refuse("what stands in brackets must be an IPv6 address without a zone"))?;
            return Self::from_ip(IpAddr::V6(ip), port);
        }
        if host.contains(':') {
            return Err(refuse(
                "an IPv6 address must stand in brackets, as in [::1]:4433, and a URL is no endpoint",
            ));
        }
        if let Ok(ip) = host.parse() {
            return Self::from_ip(IpAddr::V4(ip), port);
        }
        if !is_dns_name(host) {
            return Err(refuse(
                "the host must be an IP address or a DNS name of ASCII letters, digits, hyphens, underscores and dots",
            ));
        }
        Ok(Self { host: Host::Name(host.to_owned()), port })
    }

    /// The endpoint at an address.
    pub fn from_ip(ip: IpAddr, port: u16) -> Result<Self, Invalid> {
        let endpoint = Self { host: Host::Ip(ip), port };
        if ip.to_canonical().is_unspecified() {
            return Err(Invalid::new(
                "endpoint",
                &endpoint.to_string(),
                "must not be the unspecified address",
            ));
        }
        if port == 0 {
            return Err(Invalid::new(
                "endpoint",
                &endpoint.to_string(),
                "the port must be a number from 1 to 65535",
            ));
        }
        Ok(endpoint)
    }

    /// Its host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Its port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Digits only: `u16::from_str` would also take a plus sign.
fn parse_port(text: &str) -> Option<u16> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|port| *port != 0)
}

/// The shape of RFC 1123 names, with underscores as container platforms use them. A name whose last label is
/// all digits is a misspelt IPv4 address, not a name.
fn is_dns_name(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let label_ok = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= 253 && name.split('.').all(label_ok) && !last.bytes().all(|b| b.is_ascii_digit())
}

text_conversions!(Endpoint);

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            Host::Ip(IpAddr::V4(ip)) => write!(f, "{ip}:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_can_dial_is_accepted_and_kept() {
        for good in [
            "127.0.0.1:4433",
            "[::1]:4433",
            "node-1.svc.cluster.local:1",
            "a_b:65535",
            "xn--bcher-kva.example:80",
            "host.:7",
        ] {
            assert_eq!(Endpoint::parse(good).unwrap().to_string(), good);
        }
    }

    #[test]
    fn ambiguous_or_undialable_endpoints_are_refused() {
        for bad in [
            "",
            "host",
            "host:",
            ":80",
            "host:0",
            "host:65536",
            "host:+1",
            "host:1x",
            "::1:4433",
            "[::1]",
            "[::1]:0",
            "[fe80::1%eth0]:1",
            "fe80::1%eth0:1",
            "http://host:1",
            "0.0.0.0:4433",
            "[::]:4433",
            "[::ffff:0.0.0.0]:1",
            "bücher.example:80",
            "a b:1",
            "a/b:1",
            "-a:1",
            "a..b:1",
            "1.2.3:4",
            "256.1.1.1:80",
            "host:1\n",
        ] {
            let error = Endpoint::parse(bad).expect_err(bad).to_string();
            assert!(error.starts_with("endpoint \""), "{error}");
        }
    }
}
