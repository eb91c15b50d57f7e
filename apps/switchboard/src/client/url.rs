//! The URL of a node, and the URLs below it.

use std::fmt;
use std::net::IpAddr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use switchboard_core::types::Invalid;

/// All but what RFC 3986 calls unreserved: a channel may hold a slash, a question mark, anything.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Where a node serves HTTP, perhaps below a path.
#[derive(Debug, Clone)]
pub(crate) struct NodeUrl(Url);

impl NodeUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, Invalid> {
        let refuse = || Invalid::new("URL", text, "must be a URL such as http://127.0.0.1:4000");
        let url = Url::parse(text).map_err(|_| refuse())?;
        let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain || url.password().is_some()
        {
            return Err(refuse());
        }
        Ok(Self(url))
    }

    /// The URL of a path below this one, each segment given as it is.
    pub(crate) fn join(&self, path: &[&str]) -> Url {
        let below = self.0.path().trim_end_matches('/');
        let path: Vec<_> =
            path.iter().map(|segment| utf8_percent_encode(segment, ENCODED).to_string()).collect();
        let mut url = self.0.clone();
        url.set_path(&format!("{below}/{}", path.join("/")));
        url
    }

    /// Whether it leads to this very machine.
    pub(crate) fn is_local(&self) -> bool {
        let host = self.0.host_str().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

impl fmt::Display for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(base: &str, channel: &str) -> String {
        NodeUrl::parse(base).unwrap().join(&["api", "channels", channel, "events"]).to_string()
    }

    #[test]
    fn any_channel_is_one_segment() {
        let base = "http://h:1";
        assert_eq!(joined(base, "room:1"), "http://h:1/api/channels/room%3A1/events");
        assert_eq!(joined(base, "a/b?c#d%41"), "http://h:1/api/channels/a%2Fb%3Fc%23d%2541/events");
        assert_eq!(joined(base, "Straße 1"), "http://h:1/api/channels/Stra%C3%9Fe%201/events");
        assert_eq!(joined("https://h/below/", "x"), "https://h/below/api/channels/x/events");
    }

    #[test]
    fn what_is_not_the_url_of_a_server_is_refused() {
        for bad in [
            "",
            "127.0.0.1:4000",
            "localhost",
            "ftp://h",
            "http://",
            "http://u:p@h",
            "http://h?x",
            "http://h#x",
        ] {
            assert!(NodeUrl::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn this_machine_is_recognised() {
        for (url, local) in [
            ("http://127.0.0.1:4000", true),
            ("http://[::1]:4000", true),
            ("http://localhost", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example", false),
        ] {
            assert_eq!(NodeUrl::parse(url).unwrap().is_local(), local, "{url}");
        }
    }
}
