//! WebSocket frames (RFC 6455) as a client needs them that must cost little: whole messages, masked with zeros, nothing fragmented.

pub(crate) const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// What was received.
pub(crate) enum Message<'a> {
    Text(&'a [u8]),
    Ping(&'a [u8]),
    Pong,
    /// With its code, if there is one.
    Close(Option<u16>),
}

/// The request that opens a socket.
pub(crate) fn opening(host: impl std::fmt::Display, path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    )
}

pub(crate) fn text(payload: &str) -> Vec<u8> {
    frame(TEXT, payload.as_bytes())
}

pub(crate) fn pong(payload: &[u8]) -> Vec<u8> {
    frame(PONG, payload)
}

fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    const MASKED: u8 = 0x80;
    let mut frame = vec![0x80 | opcode];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ ..=125), _) => frame.push(MASKED | length),
        (_, Ok(length)) => {
            frame.push(MASKED | 0x7e);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(MASKED | 0x7f);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    // What is masked with zeros stays as it is.
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// The first message in `bytes`, and how many of them it takes. `None` as long as it is not complete.
pub(crate) fn read(bytes: &[u8]) -> Option<(Message<'_>, usize)> {
    let (head, rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match head[1] {
        126 => {
            rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?
        }
        127 => rest
            .split_first_chunk()
            .map(|(length, rest)| (usize::try_from(u64::from_be_bytes(*length)).expect("fits"), rest))?,
        length => (usize::from(length), rest),
    };
    let payload = rest.get(..length)?;
    let message = match head[0] & 0x0f {
        TEXT => Message::Text(payload),
        PING => Message::Ping(payload),
        PONG => Message::Pong,
        CLOSE => Message::Close(payload.first_chunk().map(|code| u16::from_be_bytes(*code))),
        other => panic!("a frame of type {other} was not asked for"),
    };
    Some((message, bytes.len() - rest.len() + length))
}
