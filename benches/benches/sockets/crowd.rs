//! Many clients on one thread, which costs the machine as little as it can: what is measured beside it is the server.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::client::Client;
use super::speech::{self, Heard, Speech};
use super::wire::{self, Message};

pub(crate) struct Crowd {
    speech: Speech,
    clients: Vec<Client>,
    poll: Poll,
    ready: Events,
    scratch: Box<[u8]>,
    began: Instant,
    pub(crate) heard: Counts,
}

/// What all of them have heard.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    /// How long events took, if that is asked for.
    pub(crate) latencies: Option<Vec<Duration>>,
    /// Answers to heartbeats.
    pub(crate) alive: u64,
    /// Pings that were answered.
    pub(crate) pings: u64,
}

impl Crowd {
    /// Opens `size` sockets; each joins the channel that is chosen for it.
    pub(crate) fn join(
        speech: Speech,
        address: SocketAddr,
        token: &str,
        size: usize,
        channel: impl Fn(usize) -> String,
    ) -> Self {
        let poll = Poll::new().expect("there are selectors");
        let ready = Events::with_capacity(1024);
        let scratch = vec![0; 256 * 1024].into_boxed_slice();
        let (began, heard) = (Instant::now(), Counts::default());
        let mut crowd = Self { speech, clients: Vec::new(), poll, ready, scratch, began, heard };
        let path = speech.path(token);
        for n in 0..size {
            let mut client = Client::open(address, &path, None);
            client.join(speech, &channel(n));
            crowd.add(client);
        }
        crowd
    }

    /// One more, that has joined already.
    pub(crate) fn add(&mut self, client: Client) {
        client.wait_no_more();
        let token = Token(self.clients.len());
        let mut source = SourceFd(&client.descriptor());
        self.poll.registry().register(&mut source, token, Interest::READABLE).expect("it can be watched");
        self.clients.push(client);
    }

    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn client(&mut self, n: usize) -> &mut Client {
        &mut self.clients[n]
    }

    /// The clock of its events.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Reads what there is to read, and waits for something for at most `patience`.
    pub(crate) fn turn(&mut self, patience: Duration) {
        match self.poll.poll(&mut self.ready, Some(patience)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => return,
            Err(error) => panic!("cannot wait for clients: {error}"),
        }
        let (speech, began, heard) = (self.speech, self.began, &mut self.heard);
        for event in &self.ready {
            let client = &mut self.clients[event.token().0];
            client.receive(&mut self.scratch, |message| heard.add(speech, message, began));
        }
    }

    /// Reads for so long.
    pub(crate) fn turn_for(&mut self, length: Duration) {
        let end = Instant::now() + length;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.turn(left);
        }
    }
}

impl Counts {
    /// Counts a message; says what to answer.
    fn add(&mut self, speech: Speech, message: &Message<'_>, began: Instant) -> Option<Vec<u8>> {
        if let Message::Close(code) = message {
            panic!("a client was closed with {code:?}");
        }
        match (speech.hear(message), message) {
            (Heard::Event(payload), _) => {
                self.events += 1;
                if let Some(latencies) = &mut self.latencies {
                    latencies.push(began.elapsed().saturating_sub(speech::sent(payload)));
                }
                None
            }
            (Heard::Ping(answer), message) => {
                self.pings += 1;
                match (answer, message) {
                    (Some(answer), _) => Some(wire::text(answer)),
                    (None, Message::Ping(payload)) => Some(wire::pong(payload)),
                    (None, _) => None,
                }
            }
            (Heard::Alive, _) => {
                self.alive += 1;
                None
            }
            (Heard::Other, _) => None,
        }
    }
}
