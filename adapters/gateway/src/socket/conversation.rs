//! One socket, from its first message to its close: carries out what its session decides.
//!
//! Invariants: there is never more under way to the client than one round of messages, and nothing is read from it or fetched for it while
//! it does not take them; whatever the client does, the end comes in bounded time, and what it tracked and subscribed ends with it.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered, SelectAll};
use futures::{FutureExt, SinkExt, StreamExt};
use switchboard_core::access::{AuthError, Grant};
use switchboard_core::ports::{DurableItem, EphemeralItem};
use switchboard_core::presence::{PresenceItem, Tracked};
use switchboard_core::stats::Counter;
use switchboard_core::types::{Channel, Payload, Position, PresenceKey};
use switchboard_protocol::Dialect;
use switchboard_protocol::codec::{Frame, Version};
use switchboard_protocol::session::{
    Action, Answer, Notice, Now, Refusal, RequestId, Session, SessionConfig, SubscriptionId,
};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::encoded::entries;
use super::feed::{self, Item};
use super::requests::{Publication, authorize};
use crate::clients::Present;
use crate::state::Gateway;

/// What an idle socket keeps for what it reads. Larger messages take more for as long as they arrive.
const READ_BUFFER: usize = 1024;
/// Written at once, if there is so much.
const WRITE_BUFFER: usize = 16 * 1024;
/// Most items that are taken from the channels before what they say is sent.
const ROUND: usize = 64;
/// How long a client that was told to go may take to go.
const PARTING: Duration = Duration::from_secs(1);
/// Own events that are not to come back: as many as may wait for a subscriber.
const OWN: usize = switchboard_core::fanout::EPHEMERAL_MAILBOX;

type Socket = WebSocketStream<TcpStream>;

pub(super) struct Conversation {
    gateway: Gateway,
    session: Session,
    requests: FuturesUnordered<BoxFuture<'static, Done>>,
    feeds: SelectAll<BoxStream<'static, (SubscriptionId, Item)>>,
    /// A feed ends when its end of this is dropped.
    subscribed: HashMap<SubscriptionId, oneshot::Sender<()>>,
    tracked: HashMap<SubscriptionId, Tracked>,
    own: VecDeque<(SubscriptionId, Payload)>,
    _present: Present,
}

/// Something that took time is done.
enum Done {
    Answer(RequestId, Answer),
    Subscribed(SubscriptionId, Result<BoxStream<'static, Item>, Refusal>),
}

/// Why a socket is closed.
struct End(u16, String);

/// What to do after a message.
type Flow = Result<(), Option<End>>;

impl Conversation {
    pub(super) fn new(
        gateway: Gateway,
        dialect: Dialect,
        version: Version,
        access: Result<Grant, AuthError>,
        present: Present,
    ) -> Self {
        let config = SessionConfig {
            dialect,
            version,
            id: format!("{:032x}", rand::random::<u128>()),
            limits: gateway.config().sockets.limits,
        };
        Self {
            session: Session::new(config, access, now()),
            gateway,
            requests: FuturesUnordered::new(),
            feeds: SelectAll::new(),
            subscribed: HashMap::new(),
            tracked: HashMap::new(),
            own: VecDeque::new(),
            _present: present,
        }
    }

    /// Serves the socket until it ends. `early`: what the client sent before it was answered.
    pub(super) async fn run(mut self: Box<Self>, stream: TcpStream, early: Vec<u8>) {
        let limits = self.gateway.config().sockets.limits;
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(WRITE_BUFFER)
            .max_message_size(Some(limits.message_bytes))
            .max_frame_size(Some(limits.message_bytes));
        let mut socket =
            WebSocketStream::from_partially_read(stream, early, Role::Server, Some(config)).await;
        let end = self.serve(&mut socket).await;
        // Whoever is gone is shown for a moment longer, and its subscriptions are of no use.
        drop(self);
        if let Some(end) = end {
            part(socket, end).await;
        }
    }

    /// Answers how to close, if the client is still there.
    async fn serve(&mut self, socket: &mut Socket) -> Option<End> {
        let config = self.gateway.config().sockets;
        let draining = self.gateway.draining().clone();
        // Not all at once: whoever is closed here connects to another node.
        let drained = async move {
            draining.cancelled().await;
            sleep(config.drain_window.mul_f64(rand::random())).await;
        };
        let mut drained = pin!(drained);
        loop {
            tokio::select! {
                biased;
                // Also from a client that takes nothing.
                () = &mut drained => return Some(restart()),
                carried_out = self.carry_out(socket, config.send_timeout) => {
                    if let Err(end) = carried_out {
                        return end;
                    }
                }
            }
            let due = self.session.poll_timeout();
            let due = async move {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut drained => return Some(restart()),
                received = socket.next() => match received {
                    Some(Ok(message)) => self.received(&message),
                    Some(Err(error)) => return refused(&error),
                    None => return None,
                },
                Some(done) = self.requests.next(), if !self.requests.is_empty() => self.done(done),
                Some((subscription, item)) = self.feeds.next(), if !self.feeds.is_empty() => {
                    self.deliver(subscription, item);
                    for _ in 1..ROUND {
                        let Some(Some((subscription, item))) = self.feeds.next().now_or_never() else { break };
                        self.deliver(subscription, item);
                    }
                }
                () = due => self.session.handle_timeout(now()),
            }
        }
    }

    fn received(&mut self, message: &Message) {
        self.gateway.counts().received.increment();
        match message {
            Message::Text(text) => self.session.handle_text(text, now()),
            Message::Binary(frame) => self.session.handle_binary(frame, now()),
            Message::Ping(_) | Message::Pong(_) => self.session.handle_pong(now()),
            // The answer to it was queued by the WebSocket, and is sent by the next flush or read.
            Message::Close(_) | Message::Frame(_) => {}
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Answer(request, answer) => self.session.handle_answer(request, answer, now()),
            Done::Subscribed(subscription, Ok(feed)) => {
                // Unless the client has left in the meantime.
                if let Some(ended) = self.subscribed.get_mut(&subscription) {
                    let (sender, end) = oneshot::channel();
                    *ended = sender;
                    let feed = feed.map(move |item| (subscription, item));
                    // The value is never sent; it is dropped with the sender.
                    self.feeds.push(feed.take_until(end).boxed());
                    self.session.handle_subscribed(subscription, Ok(()), now());
                }
            }
            Done::Subscribed(subscription, Err(refusal)) => {
                self.subscribed.remove(&subscription);
                self.session.handle_subscribed(subscription, Err(refusal), now());
            }
        }
    }

    fn deliver(&mut self, subscription: SubscriptionId, item: Item) {
        let (session, encoded) = (&mut self.session, self.gateway.encoded());
        let (event, own) = match item {
            Item::Durable(DurableItem::Event(event), replayed) => (encoded.durable(event, replayed), false),
            Item::Durable(DurableItem::Pruned { oldest }, _) => {
                return session.handle_notice(subscription, Notice::Pruned { oldest }, now());
            }
            Item::Durable(DurableItem::Reset { head }, _) => {
                return session.handle_notice(subscription, Notice::Reset { head }, now());
            }
            Item::Ephemeral(EphemeralItem::Event(event)) => {
                let own = is_own(&mut self.own, subscription, &event.payload);
                (encoded.ephemeral(event), own)
            }
            Item::Ephemeral(EphemeralItem::Lagged(missed)) => {
                // Own events may be among them.
                self.own.retain(|(of, _)| *of != subscription);
                self.gateway.counts().lagged.add(missed);
                return session.handle_notice(subscription, Notice::Lagged { missed }, now());
            }
            Item::Presence(PresenceItem::State(state)) => {
                return session.handle_presence_state(subscription, &entries(&state), now());
            }
            Item::Presence(PresenceItem::Diff(diff)) => (encoded.presence(diff), false),
            Item::End => {
                let refusal = Refusal::unavailable("this node delivers no more events");
                return session.end_subscription(subscription, refusal, now());
            }
        };
        session.handle_event(subscription, &event, own, now());
    }

    /// Does what the session asks for, and sends what it says.
    async fn carry_out(&mut self, socket: &mut Socket, patience: Duration) -> Flow {
        let deadline = Instant::now() + patience;
        let mut unsent = false;
        while let Some(action) = self.session.poll_action() {
            let message = match action {
                Action::Send(Frame::Text(text)) => match Utf8Bytes::try_from(text) {
                    Ok(text) => Message::Text(text),
                    // The codec writes nothing else.
                    Err(_) => continue,
                },
                Action::Send(Frame::Binary(bytes)) => Message::Binary(bytes),
                Action::Ping => Message::Ping(Bytes::new()),
                Action::Close { code, reason } => return Err(Some(End(code, reason))),
                other => {
                    self.begin(other);
                    continue;
                }
            };
            self.gateway.counts().sent.increment();
            within(deadline, socket.feed(message), &self.gateway.counts().slow).await?;
            unsent = true;
        }
        if unsent {
            within(deadline, socket.flush(), &self.gateway.counts().slow).await?;
        }
        Ok(())
    }

    /// Begins what is answered later, or at once.
    fn begin(&mut self, action: Action) {
        let gateway = self.gateway.clone();
        match action {
            Action::Authorize { request, token } => {
                let access = authorize(&gateway, &token);
                self.session.handle_answer(request, Answer::Authorized(access), now());
            }
            Action::Subscribe(subscribe) => {
                let subscription = subscribe.subscription;
                // Stands for "still wanted" until there is a feed to end.
                self.subscribed.insert(subscription, oneshot::channel().0);
                let begun =
                    async move { Done::Subscribed(subscription, feed::open(&gateway, &subscribe).await) };
                self.requests.push(begun.boxed());
            }
            Action::Unsubscribe { subscription, left } => {
                self.subscribed.remove(&subscription);
                self.own.retain(|(of, _)| *of != subscription);
                // Whoever was cut off is shown for a moment longer: that is what dropping does.
                if let Some(tracked) = self.tracked.remove(&subscription)
                    && left
                {
                    tracked.untrack();
                }
            }
            Action::PublishEphemeral { request, subscription, channel, event, payload } => {
                self.own.push_back((subscription, payload.clone()));
                if self.own.len() > OWN {
                    self.own.pop_front();
                }
                let send = Publication { channel, event, payload }.send(gateway);
                let sent = async move { answer(request, send.await.map(|()| None)) };
                // The bus only queues it. At once, so that the client's events stay in order.
                self.finish(sent.boxed());
            }
            Action::PublishDurable { request, channel, event, payload, key, .. } => {
                let store = Publication { channel, event, payload }.store(gateway, key);
                self.finish(async move { answer(request, store.await.map(Some)) }.boxed());
            }
            Action::Track { request, subscription, channel, key, meta } => {
                let tracked = self.track(subscription, &channel, &key, &meta);
                self.session.handle_answer(request, Answer::Tracked(tracked), now());
            }
            Action::Untrack { subscription } => {
                if let Some(tracked) = self.tracked.remove(&subscription) {
                    tracked.untrack();
                }
            }
            // Carried out where they are taken.
            Action::Send(_) | Action::Ping | Action::Close { .. } => {}
        }
    }

    /// Takes the answer if there is one already, or waits for it beside everything else.
    fn finish(&mut self, mut request: BoxFuture<'static, Done>) {
        match request.as_mut().now_or_never() {
            Some(done) => self.done(done),
            None => self.requests.push(request),
        }
    }

    fn track(
        &mut self,
        subscription: SubscriptionId,
        channel: &Channel,
        key: &str,
        meta: &Payload,
    ) -> Result<(), Refusal> {
        if let Some(tracked) = self.tracked.get_mut(&subscription) {
            return Ok(tracked.update(meta)?);
        }
        let services = self.gateway.ready().map_err(Refusal::unavailable)?;
        let tracked = services.presence.track(channel, &PresenceKey::parse(key)?, meta)?;
        self.tracked.insert(subscription, tracked);
        Ok(())
    }
}

/// Waits for a client to take something, and counts it if it does not.
async fn within(deadline: Instant, sending: impl Future<Output = Result<(), Error>>, slow: &Counter) -> Flow {
    match timeout_at(deadline.into(), sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_gone)) => Err(None),
        Err(_elapsed) => {
            slow.increment();
            Err(Some(End(CloseCode::Again.into(), "you do not take what is sent to you".to_owned())))
        }
    }
}

fn answer(request: RequestId, published: Result<Option<Position>, Refusal>) -> Done {
    Done::Answer(request, Answer::Published(published))
}

/// Whether this very subscription published what arrives. Events name no publisher; but what was published here arrives here as the same text, and not
/// merely as an equal one.
fn is_own(
    own: &mut VecDeque<(SubscriptionId, Payload)>,
    subscription: SubscriptionId,
    payload: &Payload,
) -> bool {
    let is_it = |(of, published): &(SubscriptionId, Payload)| {
        *of == subscription && std::ptr::eq(published.as_str(), payload.as_str())
    };
    let Some(place) = own.iter().position(is_it) else { return false };
    own.remove(place);
    true
}

fn now() -> Now {
    Now { instant: Instant::now(), wall: OffsetDateTime::now_utc() }
}

/// How to close when the node stops.
fn restart() -> End {
    End(CloseCode::Restart.into(), "this node is about to stop".to_owned())
}

/// How to close after something that is no message.
fn refused(error: &Error) -> Option<End> {
    let end = |code: CloseCode, reason: &str| Some(End(code.into(), reason.to_owned()));
    match error {
        Error::Capacity(CapacityError::MessageTooLong { max_size, .. }) => {
            end(CloseCode::Size, &format!("a message may have at most {max_size} bytes"))
        }
        Error::Capacity(_) => end(CloseCode::Size, "too large"),
        Error::Utf8(_) => end(CloseCode::Invalid, "text messages must be UTF-8"),
        Error::Protocol(_) => end(CloseCode::Protocol, "this is not how WebSockets are spoken"),
        _ => None,
    }
}

/// Says why, and gives the client a moment to read it: a socket that is closed while it has something to read is reset, and takes its last words along.
async fn part(mut socket: Socket, End(code, reason): End) {
    let frame = CloseFrame { code: code.into(), reason: reason.into() };
    let goodbye = async {
        // It may have been closed already.
        let _ = socket.close(Some(frame)).await;
        let stream = socket.get_mut();
        stream.shutdown().await?;
        // Not in the future: that would take the room for as long as the socket is open.
        let mut scrap = vec![0; 4096];
        while stream.read(&mut scrap).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = timeout(PARTING, goodbye).await;
}
