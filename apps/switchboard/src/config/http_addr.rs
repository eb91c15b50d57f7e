//! Where a node serves HTTP, as written in the configuration, and how that becomes a socket.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use switchboard_core::types::{Endpoint, Host, Invalid};
use tokio::net::{TcpListener, lookup_host};

/// `host:port`, `[v6]:port`, or `:port` for all interfaces. Port 0 takes a free one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpAddr {
    /// `None`: all interfaces, IPv6 and IPv4.
    host: Option<Host>,
    port: u16,
}

impl HttpAddr {
    /// Reads it. A bare port is refused: some would expect all interfaces behind it, others this machine alone.
    pub(crate) fn parse(text: &str) -> Result<Self, Invalid> {
        let refuse = |rule: &'static str| Invalid::new("address", text, rule);
        let (host, port) = text.rsplit_once(':').ok_or_else(|| {
            refuse(
                "must be host:port, [v6]:port, or :port for all interfaces, such as 127.0.0.1:4000 or :8080",
            )
        })?;
        let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let port = port
            .parse()
            .ok()
            .filter(|_| digits)
            .ok_or_else(|| refuse("the port must be a number from 0 to 65535 (0 takes a free one)"))?;
        Ok(Self { host: parse_host(host).map_err(|rule| Invalid::new("address", text, rule))?, port })
    }

    /// Starts listening, or says why not and that `setting` chooses another address.
    pub(crate) async fn listen(&self, setting: &str) -> anyhow::Result<TcpListener> {
        self.bind().await.map_err(|error| {
            let guess = guess(error.kind());
            anyhow::Error::new(error)
                .context(format!("cannot serve HTTP on {self}{guess} ({setting} chooses another)"))
        })
    }

    async fn bind(&self) -> io::Result<TcpListener> {
        match &self.host {
            Some(Host::Ip(ip)) => TcpListener::bind((*ip, self.port)).await,
            Some(Host::Name(name)) => bind_name(name, self.port).await,
            None => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, self.port)).await {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    // A machine without IPv6.
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, self.port)).await
                }
                bound => bound,
            },
        }
    }

    /// Whether only this machine can reach it. Of a name nobody can tell, but for the one that stands for that.
    pub(crate) fn is_loopback(&self) -> bool {
        match &self.host {
            Some(Host::Ip(ip)) => ip.is_loopback(),
            Some(Host::Name(name)) => name == "localhost",
            None => false,
        }
    }

    /// The port as written.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The same host with another port.
    pub(crate) fn with_port(&self, port: u16) -> Self {
        Self { host: self.host.clone(), port }
    }

    /// A URL under which other machines reach it: those of all interfaces where the node's endpoint is.
    pub(crate) fn url_for_peers(&self, endpoint: &Endpoint, port: u16) -> String {
        let host = match &self.host {
            Some(Host::Ip(ip)) if ip.is_unspecified() => endpoint.host(),
            Some(host) => host,
            None => endpoint.host(),
        };
        format!("http://{}:{port}", Bracketed(host))
    }

    /// A URL under which this machine reaches it, once the port is known.
    pub(crate) fn local_url(&self) -> String {
        let loopback = match &self.host {
            Some(Host::Ip(IpAddr::V6(ip))) if ip.is_unspecified() => Host::Ip(Ipv6Addr::LOCALHOST.into()),
            Some(Host::Ip(IpAddr::V4(ip))) if ip.is_unspecified() => Host::Ip(Ipv4Addr::LOCALHOST.into()),
            Some(host) => host.clone(),
            None => Host::Ip(Ipv4Addr::LOCALHOST.into()),
        };
        format!("http://{}:{}", Bracketed(&loopback), self.port)
    }
}

/// A name may stand for several addresses, as `localhost` does; those who look for it there try IPv4 at any rate.
async fn bind_name(name: &str, port: u16) -> io::Result<TcpListener> {
    let mut addresses: Vec<_> = lookup_host((name, port)).await?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    TcpListener::bind(&*addresses).await
}

/// What may be wrong. Of other reasons (a name that is not known …) the error itself says all there is.
fn guess(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => "; is something else running there?",
        io::ErrorKind::AddrNotAvailable => "; is that an address of this machine?",
        _ => "",
    }
}

fn parse_host(host: &str) -> Result<Option<Host>, String> {
    if host.is_empty() {
        return Ok(None);
    }
    if let Some(v6) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let ip = v6.parse().map_err(|_| "what stands in brackets must be an IPv6 address without a zone")?;
        return Ok(Some(Host::Ip(IpAddr::V6(ip))));
    }
    if let Ok(ip) = host.parse() {
        return Ok(Some(Host::Ip(IpAddr::V4(ip))));
    }
    // Names follow the rules for names that peers dial.
    match Endpoint::parse(&format!("{host}:1")) {
        Ok(endpoint) => Ok(Some(endpoint.host().clone())),
        Err(invalid) => Err(invalid.rule().to_owned()),
    }
}

impl fmt::Display for HttpAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{}:{}", Bracketed(host), self.port),
            None => write!(f, ":{}", self.port),
        }
    }
}

/// A host as it stands before a port.
struct Bracketed<'a>(&'a Host);

impl fmt::Display for Bracketed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Host::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Host::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b137_every_form_of_an_address_is_read_and_shown_the_same() {
        for good in [
            "127.0.0.1:4000",
            "0.0.0.0:80",
            "[::]:8080",
            "[::1]:0",
            ":8080",
            ":0",
            "localhost:0",
            "a.example:65535",
        ] {
            assert_eq!(HttpAddr::parse(good).unwrap().to_string(), good);
        }
    }

    #[test]
    fn b137_what_can_be_read_in_two_ways_is_refused() {
        for bad in [
            "",
            "8080",
            "localhost",
            "::1:8080",
            "::",
            "[::1]",
            "[fe80::1%eth0]:1",
            "a:65536",
            "a:+1",
            "a:",
            "a:b",
            "a b:1",
            "http://localhost:80",
            "1.2.3:4",
        ] {
            assert!(HttpAddr::parse(bad).is_err(), "{bad:?} was accepted");
        }
        let error = HttpAddr::parse("8080").unwrap_err().to_string();
        assert!(error.contains(":port for all interfaces"), "{error}");
    }

    #[test]
    fn a_url_is_one_that_this_machine_can_open() {
        for (text, url) in [
            (":4000", "http://127.0.0.1:4000"),
            ("0.0.0.0:4000", "http://127.0.0.1:4000"),
            ("[::]:4000", "http://[::1]:4000"),
            ("[::1]:4000", "http://[::1]:4000"),
            ("localhost:4000", "http://localhost:4000"),
        ] {
            assert_eq!(HttpAddr::parse(text).unwrap().local_url(), url);
        }
    }

    #[test]
    fn others_can_reach_all_but_the_loopback_address() {
        for (text, loopback) in [
            ("127.0.0.1:4000", true),
            ("127.1.2.3:4000", true),
            ("[::1]:4000", true),
            ("localhost:4000", true),
            (":4000", false),
            ("0.0.0.0:4000", false),
            ("[::]:4000", false),
            ("10.0.0.7:4000", false),
            ("a.example:4000", false),
        ] {
            assert_eq!(HttpAddr::parse(text).unwrap().is_loopback(), loopback, "{text}");
        }
    }

    #[test]
    fn peers_reach_all_interfaces_where_the_endpoint_is() {
        let endpoint = Endpoint::parse("10.0.0.7:9").unwrap();
        for (text, url) in [
            (":4000", "http://10.0.0.7:4000"),
            ("0.0.0.0:4000", "http://10.0.0.7:4000"),
            ("[::]:4000", "http://10.0.0.7:4000"),
            ("[::1]:4000", "http://[::1]:4000"),
            ("localhost:4000", "http://localhost:4000"),
        ] {
            assert_eq!(HttpAddr::parse(text).unwrap().url_for_peers(&endpoint, 4000), url);
        }
    }

    #[tokio::test]
    async fn b137_all_interfaces_are_reached_over_ipv4() {
        let listener = HttpAddr::parse(":0").unwrap().bind().await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok());
    }

    #[tokio::test]
    async fn the_guess_fits_the_reason() {
        let holder = HttpAddr::parse("127.0.0.1:0").unwrap().bind().await.unwrap();
        let taken = holder.local_addr().unwrap().to_string();
        // 192.0.2.0/24 is for documentation: no machine has it.
        for (address, guess) in [(&*taken, "something else running"), ("192.0.2.1:0", "of this machine?")] {
            let error = HttpAddr::parse(address).unwrap().listen("HTTP_ADDR").await.unwrap_err().to_string();
            assert!(error.contains(address) && error.contains(guess), "{error}");
            assert!(error.ends_with("(HTTP_ADDR chooses another)"), "{error}");
        }
        assert_eq!(guess(io::ErrorKind::Other), "");
    }

    #[tokio::test]
    async fn b137_a_taken_port_is_an_error() {
        let holder = HttpAddr::parse("127.0.0.1:0").unwrap().bind().await.unwrap();
        let port = holder.local_addr().unwrap().port();
        for text in ["127.0.0.1", "localhost", "0.0.0.0", ""] {
            let error = HttpAddr::parse(&format!("{text}:{port}")).unwrap().bind().await;
            // `localhost` may lead to ::1 first, which is free.
            assert!(error.is_err() || text == "localhost", "{text:?} was bound twice");
        }
    }
}
