//! The life of one socket, from the first message to the close.
//!
//! A state machine in the manner of quinn-proto: messages, answers, events and time go in, [`Action`]s come out of
//! [`poll_action`](Session::poll_action). It owns no socket and no clock, waits for nothing, and knows the buses only as actions.
//!
//! Invariants: every message with a reference is replied to exactly once, unless its sender wants no reply or its join is over; nothing is
//! subscribed, published or shown without a right that is valid at that moment; nothing is delivered after the right to it has ended.

mod access;
mod action;
mod channels;
mod deliver;
mod join;
mod limits;
mod now;
mod params;
mod push;
mod refusal;
mod timers;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use switchboard_core::access::{AuthError, Grant};

use crate::codec::{ClientMessage, Parts, Version, encode_text};
use crate::dialect::Dialect;
use channels::{Address, Channels, Held, ReplyTo};

pub use action::{Action, Answer, Notice, RequestId, Start, Subscribe, SubscriptionId, Token};
pub use limits::{Bucket, Limits, Overdrawn, Rate};
pub use now::Now;
pub use refusal::{Reason, Refusal};

/// Close codes that sessions use, next to 1003 and 1007 of [`DecodeError`](crate::codec::DecodeError).
pub mod close {
    /// The token expired. Connect again with a fresh one.
    pub const TOKEN_EXPIRED: u16 = 4401;
    /// No valid token was sent in time.
    pub const UNAUTHENTICATED: u16 = 4403;
    /// Nothing was heard, not even a pong.
    pub const IDLE: u16 = 4408;
    /// Far more messages than are allowed, in spite of error replies.
    pub const FLOOD: u16 = 4429;
}

/// Longest reason of a close frame, in bytes.
const MAX_CLOSE_REASON: usize = 123;

/// The topic of messages that concern the socket.
const SOCKET_TOPIC: &str = "phoenix";

/// What a session must know of its socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// By the path it was opened under.
    pub dialect: Dialect,
    /// By its query parameter `vsn`.
    pub version: Version,
    /// Unique in the cluster. What the client tracks stands under this key, unless it names one.
    pub id: String,
    /// What the client may do.
    pub limits: Limits,
}

/// One socket.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    access: Result<Held, AuthError>,
    channels: Channels,
    pending: HashMap<RequestId, Pending>,
    last_id: u64,
    joins: Bucket,
    messages: Bucket,
    heard: Instant,
    pinged: Option<Instant>,
    /// When it is closed unless a token is accepted first.
    unauthenticated: Option<Instant>,
    actions: VecDeque<Action>,
    closed: bool,
}

/// What an answer is for.
#[derive(Debug)]
enum Pending {
    /// The token of a join.
    Join(SubscriptionId),
    /// A new token for a channel, or for the socket.
    Refresh(Option<SubscriptionId>, ReplyTo),
    /// Anything that is only replied to; success only if the client wants to hear of it.
    Request { reply: ReplyTo, ack: bool },
}

impl Session {
    /// A socket that was just opened. `access`: what the token that it was opened with is worth; a channel may be joined with another
    /// one. Without any, [`AuthError::Missing`].
    pub fn new(config: SessionConfig, access: Result<Grant, AuthError>, now: Now) -> Self {
        let mut session = Self {
            joins: Bucket::new(config.limits.joins, now.instant),
            messages: Bucket::new(config.limits.messages, now.instant),
            config,
            access: access.map(|grant| Held::new(grant, now)),
            channels: Channels::default(),
            pending: HashMap::new(),
            last_id: 0,
            heard: now.instant,
            pinged: None,
            unauthenticated: None,
            actions: VecDeque::new(),
            closed: false,
        };
        session.watch_authentication(now);
        session
    }

    /// The next thing to do. Ask until there is none, after every input.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A text message was received.
    pub fn handle_text(&mut self, text: &str, now: Now) {
        match ClientMessage::from_text(self.config.version, text) {
            Ok(message) => self.handle_message(&message, now),
            Err(error) => self.close(error.close_code(), &error.to_string()),
        }
    }

    /// A binary message was received.
    pub fn handle_binary(&mut self, frame: &[u8], now: Now) {
        match ClientMessage::from_binary(self.config.version, frame) {
            Ok(message) => self.handle_message(&message, now),
            Err(error) => self.close(error.close_code(), &error.to_string()),
        }
    }

    fn handle_message(&mut self, message: &ClientMessage<'_>, now: Now) {
        if !self.wake(now) {
            return;
        }
        self.hear(now);
        match self.messages.take(now.instant) {
            Ok(()) => self.dispatch(message, now),
            Err(refused) if refused.flood => self.close(close::FLOOD, "too many messages"),
            Err(refused) => {
                let refusal = Refusal::new(Reason::TooManyMessages, "too many messages in too short a time");
                self.refuse(&ReplyTo::sender_of(message), refusal.retry_after(refused.wait));
            }
        }
        self.watch_authentication(now);
    }

    fn dispatch(&mut self, message: &ClientMessage<'_>, now: Now) {
        match (&*message.topic, &*message.event) {
            (SOCKET_TOPIC, "heartbeat") => self.reply(&ReplyTo::sender_of(message), &Empty {}),
            (SOCKET_TOPIC, "access_token") => self.refresh_socket(message),
            (SOCKET_TOPIC, "phx_join") => {
                let why = "phoenix is the topic of the socket itself; its channel cannot be joined";
                let refusal = Refusal::new(Reason::BadTopic, why);
                self.refuse(&ReplyTo::sender_of(message), refusal);
            }
            (SOCKET_TOPIC, _) => self.refuse_unmatched(message),
            (_, "phx_join") => self.join(message, now),
            (_, "phx_leave") => self.leave(message),
            _ => self.push(message, now),
        }
    }

    /// A request was answered.
    pub fn handle_answer(&mut self, request: RequestId, answer: Answer, now: Now) {
        if !self.wake(now) {
            return;
        }
        match (self.pending.remove(&request), answer) {
            (Some(Pending::Join(subscription)), Answer::Authorized(access)) => {
                self.prove(subscription, access, now);
            }
            (Some(Pending::Refresh(subscription, reply)), Answer::Authorized(access)) => {
                self.refreshed(subscription, &reply, access, now);
            }
            (Some(Pending::Request { reply, ack }), Answer::Published(result)) => {
                self.published(&reply, ack, result);
            }
            (Some(Pending::Request { reply, .. }), Answer::Tracked(result)) => match result {
                Ok(()) => self.reply(&reply, &Empty {}),
                Err(refusal) => self.refuse(&reply, refusal),
            },
            // An answer to nothing that was asked.
            _ => {}
        }
        self.watch_authentication(now);
    }

    fn ask(&mut self, pending: Pending) -> Result<RequestId, Refusal> {
        let limit = self.config.limits.pending;
        if self.pending.len() >= limit {
            let message = format!("{limit} requests are waiting for their answers");
            return Err(Refusal::new(Reason::Busy, message));
        }
        self.last_id += 1;
        let request = RequestId(self.last_id);
        self.pending.insert(request, pending);
        Ok(request)
    }

    fn reply(&mut self, to: &ReplyTo, response: &impl Serialize) {
        self.send_reply(to, "ok", response);
    }

    fn refuse(&mut self, to: &ReplyTo, refusal: impl Into<Refusal>) {
        self.send_reply(to, "error", &refusal.into());
    }

    fn refuse_unmatched(&mut self, message: &ClientMessage<'_>) {
        let refusal = Refusal::new(Reason::UnmatchedTopic, "the topic is not joined");
        self.refuse(&ReplyTo::sender_of(message), refusal);
    }

    fn send_reply(&mut self, to: &ReplyTo, status: &str, response: &impl Serialize) {
        #[derive(Serialize)]
        struct Reply<'a, R> {
            status: &'a str,
            response: &'a R,
        }
        if let Some(reference) = &to.reference {
            self.send(&to.address, Some(reference), "phx_reply", &Reply { status, response });
        }
    }

    fn send(&mut self, to: &Address, reference: Option<&str>, event: &str, payload: &impl Serialize) {
        let parts = Parts {
            join_ref: to.join_ref.as_deref().map(Cow::Borrowed),
            reference: reference.map(Cow::Borrowed),
            topic: Cow::Borrowed(&*to.topic),
            event: Cow::Borrowed(event),
            payload,
        };
        self.actions.push_back(Action::Send(encode_text(self.config.version, &parts)));
    }

    fn close(&mut self, code: u16, reason: &str) {
        if !self.closed {
            self.closed = true;
            let reason = reason[..reason.floor_char_boundary(MAX_CLOSE_REASON)].to_owned();
            self.actions.push_back(Action::Close { code, reason });
        }
    }
}

impl ReplyTo {
    /// The sender of `message`, whether or not it has joined the topic.
    fn sender_of(message: &ClientMessage<'_>) -> Self {
        let arc = |text: &Cow<'_, str>| Arc::from(&**text);
        Self {
            address: Address { topic: arc(&message.topic), join_ref: message.join_ref.as_ref().map(arc) },
            reference: message.reference.as_deref().map(Box::from),
        }
    }
}

/// `{}`.
#[derive(Serialize)]
struct Empty {}
