//! The request that opens a WebSocket (RFC 6455, section 4.2.1), as far as it is about the socket. Pure.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::problem::Problem;

/// The sub-protocol that `phoenix` asks for when it brings a token, and how the token follows.
const PHOENIX: &str = "phoenix";
const TOKEN: &str = "base64url.bearer.phx.";

/// As browsers encode, without the padding that `phoenix` takes away.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) struct Handshake {
    /// Proves to the client that it was understood.
    pub(super) accept: HeaderValue,
    /// The sub-protocol that is spoken, if the client offers any.
    pub(super) protocol: Option<&'static str>,
    /// The token that came with the sub-protocols.
    pub(super) token: Option<Vec<u8>>,
}

impl Handshake {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        if !lists(headers, &header::CONNECTION, "upgrade") || !lists(headers, &header::UPGRADE, "websocket") {
            let detail = "this is a WebSocket: ask for `Connection: Upgrade` and `Upgrade: websocket`";
            return Err(
                Problem::new(StatusCode::UPGRADE_REQUIRED, detail).with_header(header::UPGRADE, "websocket")
            );
        }
        let version = headers.get(header::SEC_WEBSOCKET_VERSION);
        if version.is_none_or(|version| version != "13") {
            let detail = "Sec-WebSocket-Version must be 13";
            return Err(Problem::new(StatusCode::UPGRADE_REQUIRED, detail)
                .with_header(header::SEC_WEBSOCKET_VERSION, "13"));
        }
        let bad = |detail: &str| Problem::new(StatusCode::BAD_REQUEST, detail);
        let key = headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
        let key = key
            .filter(|key| key.len() == 24)
            .ok_or_else(|| bad("Sec-WebSocket-Key must be 16 bytes in base64"))?;
        let accept = derive_accept_key(key).parse().map_err(|_| bad("Sec-WebSocket-Key cannot be used"))?;

        let offered: Vec<_> = listed(headers, &header::SEC_WEBSOCKET_PROTOCOL).collect();
        if offered.is_empty() {
            return Ok(Self { accept, protocol: None, token: None });
        }
        if !offered.contains(&PHOENIX) {
            return Err(bad("of all sub-protocols (Sec-WebSocket-Protocol) only phoenix is spoken"));
        }
        let token = offered.iter().find_map(|offered| offered.strip_prefix(TOKEN));
        let token = token
            .map(|text| BASE64.decode(text.replace('-', "+").replace('_', "/")))
            .transpose()
            .map_err(|_| bad("the token in Sec-WebSocket-Protocol must be base64"))?
            .filter(|token| !token.is_empty());
        Ok(Self { accept, protocol: Some(PHOENIX), token })
    }
}

/// The items of a header that is a list, however many lines it takes.
fn listed<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|item| !item.is_empty())
}

fn lists(headers: &HeaderMap, name: &header::HeaderName, item: &str) -> bool {
    listed(headers, name).any(|listed| listed.eq_ignore_ascii_case(item))
}
