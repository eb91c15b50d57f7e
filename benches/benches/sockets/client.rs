//! One connection. It is opened the simple way, waiting for every answer; from then on it waits for nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::speech::Speech;
use super::wire::{self, Message};

/// What an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    stream: TcpStream,
    /// The beginning of a message.
    rest: Vec<u8>,
}

impl Client {
    /// Connects. With `window`, the system keeps hardly more than so many bytes that were not read.
    pub(crate) fn open(address: SocketAddr, path: &str, window: Option<usize>) -> Self {
        let socket =
            Socket::new(Domain::for_address(address), Type::STREAM, None).expect("there are sockets");
        if let Some(window) = window {
            socket.set_recv_buffer_size(window).expect("buffers can be small");
        }
        socket.connect(&address.into()).expect("it listens");
        socket.set_tcp_nodelay(true).expect("it is a TCP socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("valid");
        let mut client = Self { stream: socket.into(), rest: Vec::new() };
        client.stream.write_all(wire::opening(address, path).as_bytes()).expect("it takes requests");
        let end = b"\r\n\r\n";
        while !client.rest.windows(end.len()).any(|window| window == end) {
            client.read_some();
        }
        let head = client.rest.windows(end.len()).position(|window| window == end).expect("it is there");
        let status = String::from_utf8_lossy(&client.rest[..head]).into_owned();
        assert!(status.starts_with("HTTP/1.1 101"), "no WebSocket was opened: {status}");
        client.rest.drain(..head + end.len());
        client
    }

    /// Joins a channel, and waits until it has.
    pub(crate) fn join(&mut self, speech: Speech, channel: &str) {
        for (text, expected) in speech.join(channel) {
            self.say(&text);
            while !self.next_text().contains(expected) {}
        }
    }

    /// From here on, nothing is waited for.
    pub(crate) fn wait_no_more(&self) {
        self.stream.set_nonblocking(true).expect("it is a TCP socket");
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.send(&wire::text(text));
    }

    pub(crate) fn send(&mut self, mut frame: &[u8]) {
        while !frame.is_empty() {
            match self.stream.write(frame) {
                Ok(sent) => frame = &frame[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_micros(100));
                }
                Err(error) => panic!("a connection broke: {error}"),
            }
        }
    }

    /// Reads what is there into `scratch`, and hands over its messages; answers are sent at once.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        mut received: impl FnMut(&Message<'_>) -> Option<Vec<u8>>,
    ) {
        loop {
            let read = match self.stream.read(scratch) {
                Ok(0) => panic!("a connection was closed"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("a connection broke: {error}"),
            };
            let mut answers = Vec::new();
            let mut take = |bytes: &[u8]| {
                let mut taken = 0;
                while let Some((message, length)) = wire::read(&bytes[taken..]) {
                    answers.extend(received(&message));
                    taken += length;
                }
                taken
            };
            if self.rest.is_empty() {
                let taken = take(&scratch[..read]);
                self.rest.extend(&scratch[taken..read]);
            } else {
                self.rest.extend(&scratch[..read]);
                let taken = take(&self.rest);
                self.rest.drain(..taken);
            }
            if self.rest.is_empty() {
                // Ten thousand of them are to cost little.
                self.rest = Vec::new();
            }
            for answer in answers {
                self.send(&answer);
            }
            // There is no more: whatever comes now is announced anew.
            if read < scratch.len() {
                return;
            }
        }
    }

    /// Reads what there is, and answers whether the connection ends then.
    pub(crate) fn ends(mut self) -> bool {
        let mut scratch = vec![0; 256 * 1024];
        loop {
            match self.stream.read(&mut scratch) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::ConnectionReset,
            }
        }
    }

    fn next_text(&mut self) -> String {
        loop {
            if let Some((message, length)) = wire::read(&self.rest) {
                let text = match message {
                    Message::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                    Message::Close(code) => panic!("it was closed with {code:?} while it joined"),
                    _ => None,
                };
                self.rest.drain(..length);
                if let Some(text) = text {
                    return text;
                }
            } else {
                self.read_some();
            }
        }
    }

    fn read_some(&mut self) {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => panic!("a connection was closed while it was opened"),
            Ok(read) => self.rest.extend(&piece[..read]),
            Err(error) => panic!("no answer: {error}"),
        }
    }
}
