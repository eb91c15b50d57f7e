//! Plays a script of one socket and checks every single thing that the session does.
//!
//! One line each: `>` the client says, `=` the I/O layer answers, `@` time passes; then, in
//! order and completely, what must follow: `<` is sent to the client, `!` is asked of the I/O layer. Binary messages are written
//! as Rust writes byte strings, after `>b` and `<b`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use switchboard_core::access::{AuthError, Grant, Right};
use switchboard_core::types::{
    Channel, ChannelPattern, DurableEvent, EphemeralEvent, EventName, Payload, Position,
};
use switchboard_protocol::codec::{Frame, Version};
use switchboard_protocol::session::{
    Action, Answer, Limits, Notice, Now, Reason, Refusal, RequestId, Session, SessionConfig, Start,
    SubscriptionId,
};
use switchboard_protocol::{Dialect, Outgoing, PresenceEntry, PresenceMeta};
use time::OffsetDateTime;

pub(crate) struct Conversation {
    session: Session,
    now: Now,
    opened: OffsetDateTime,
    subscriptions: Vec<SubscriptionId>,
    requests: VecDeque<RequestId>,
}

impl Conversation {
    pub(crate) fn new(dialect: Dialect, version: Version) -> Self {
        Self::with(dialect, version, Limits::default(), |_| Ok(Grant::everything()))
    }

    pub(crate) fn with(
        dialect: Dialect,
        version: Version,
        limits: Limits,
        access: impl FnOnce(OffsetDateTime) -> Result<Grant, AuthError>,
    ) -> Self {
        let wall = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let now = Now { instant: Instant::now(), wall };
        let config = SessionConfig { dialect, version, id: "socket-1".to_owned(), limits };
        let session = Session::new(config, access(wall), now);
        Self { session, now, opened: wall, subscriptions: Vec::new(), requests: VecDeque::new() }
    }

    /// Plays `script` from where the last one ended.
    pub(crate) fn play(&mut self, script: &str) {
        let mut lines = script.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
        while let Some(line) = lines.next() {
            let (kind, rest) = line.split_once(' ').unwrap();
            match kind {
                ">" => self.session.handle_text(rest, self.now),
                ">b" => self.session.handle_binary(&unescape(rest), self.now),
                "=" => self.answer(rest),
                "@" => self.pass(rest),
                _ => panic!("{line} does not follow from anything"),
            }
            let is_outcome = |line: &&str| line.starts_with(['<', '!']);
            let expected: Vec<_> = std::iter::from_fn(|| lines.next_if(is_outcome)).collect();
            assert_eq!(self.outcome(), expected, "after {line}");
        }
    }

    /// What the session does now, as lines of a script.
    pub(crate) fn outcome(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(action) = self.session.poll_action() {
            lines.push(self.note(action));
        }
        lines
    }

    pub(crate) fn say(&mut self, text: &str) -> Vec<String> {
        self.session.handle_text(text, self.now);
        self.outcome()
    }

    pub(crate) fn say_bytes(&mut self, frame: &[u8]) -> Vec<String> {
        self.session.handle_binary(frame, self.now);
        self.outcome()
    }

    pub(crate) fn play_answer(&mut self, answer: &str) -> Vec<String> {
        self.answer(answer);
        self.outcome()
    }

    pub(crate) fn timeout_in(&self) -> Option<Duration> {
        self.session.poll_timeout().map(|at| at.saturating_duration_since(self.now.instant))
    }

    /// Everything that the session does about `text`, as a log would show it.
    pub(crate) fn debug_of_actions(&mut self, text: &str) -> String {
        self.session.handle_text(text, self.now);
        let actions: Vec<_> = std::iter::from_fn(|| self.session.poll_action()).collect();
        format!("{actions:?} {:?}", self.session)
    }

    fn pass(&mut self, how: &str) {
        self.jump(how);
        self.session.handle_timeout(self.now);
    }

    /// Lets time pass by both clocks, or by one of them, without telling the session.
    pub(crate) fn jump(&mut self, how: &str) {
        match how.split_once(' ') {
            Some(("wall", by)) => self.now.wall += seconds(by),
            Some(("sleep", by)) => self.now.instant += seconds(by),
            _ => {
                self.now.wall += seconds(how);
                self.now.instant += seconds(how);
            }
        }
    }

    fn answer(&mut self, answer: &str) {
        let now = self.now;
        let (what, rest) = answer.split_once(' ').unwrap_or((answer, ""));
        let last = self.subscriptions.last().copied();
        let mut reply = |session: &mut Session, answer| {
            session.handle_answer(self.requests.pop_front().unwrap(), answer, now);
        };
        let busy = || Refusal::new(Reason::Unavailable, "not now");
        match what {
            "subscribed" => self.session.handle_subscribed(last.unwrap(), Ok(()), now),
            "unsubscribable" => self.session.handle_subscribed(last.unwrap(), Err(busy()), now),
            "granted" => reply(&mut self.session, Answer::Authorized(Ok(grant(rest, self.opened)))),
            "denied" => reply(&mut self.session, Answer::Authorized(Err(AuthError::Invalid("no".into())))),
            "expired" => reply(&mut self.session, Answer::Authorized(Err(AuthError::Expired))),
            "queued" => reply(&mut self.session, Answer::Published(Ok(None))),
            "stored" => {
                let position = Position::parse(rest).unwrap();
                reply(&mut self.session, Answer::Published(Ok(Some(position))));
            }
            "unpublishable" => reply(&mut self.session, Answer::Published(Err(busy()))),
            "tracked" => reply(&mut self.session, Answer::Tracked(Ok(()))),
            "untrackable" => reply(&mut self.session, Answer::Tracked(Err(busy()))),
            "event" | "own" => {
                let (channel, event, payload) = event(rest);
                let event = Outgoing::ephemeral(&EphemeralEvent { channel, event, payload });
                self.session.handle_event(last.unwrap(), &event, what == "own", now);
            }
            "durable" | "replayed" => {
                let (position, rest) = rest.split_once(' ').unwrap();
                let (channel, event, payload) = event(rest);
                let position = Position::parse(position).unwrap();
                let event = DurableEvent { channel, event, payload, position, created_at: now.wall };
                let event = Outgoing::durable(&event, what == "replayed");
                self.session.handle_event(last.unwrap(), &event, false, now);
            }
            "present" => self.session.handle_presence_state(last.unwrap(), &entries(rest), now),
            "came" => {
                let (channel, rest) = rest.split_once(' ').unwrap();
                let (joins, leaves) = rest.split_once(" went ").unwrap_or((rest, ""));
                let channel = Channel::parse(channel).unwrap();
                let diff = Outgoing::presence_diff(&channel, &entries(joins), &entries(leaves));
                self.session.handle_event(last.unwrap(), &diff, false, now);
            }
            "pruned" | "reset" => {
                let position = Position::parse(rest).unwrap();
                let notice = match what {
                    "pruned" => Notice::Pruned { oldest: position },
                    _ => Notice::Reset { head: position },
                };
                self.session.handle_notice(last.unwrap(), notice, now);
            }
            "lagged" => {
                let notice = Notice::Lagged { missed: rest.parse().unwrap() };
                self.session.handle_notice(last.unwrap(), notice, now);
            }
            "ended" => self.session.end_subscription(last.unwrap(), busy(), now),
            "pong" => self.session.handle_pong(now),
            _ => panic!("no such answer: {answer}"),
        }
    }

    fn note(&mut self, action: Action) -> String {
        let place =
            |session: &Self, id| session.subscriptions.iter().position(|known| *known == id).unwrap() + 1;
        match action {
            Action::Send(Frame::Text(text)) => format!("< {}", std::str::from_utf8(&text).unwrap()),
            Action::Send(Frame::Binary(bytes)) => format!("<b {}", bytes.escape_ascii()),
            Action::Authorize { request, token } => {
                self.requests.push_back(request);
                format!("! authorize {}", token.expose())
            }
            Action::Subscribe(subscribe) => {
                self.subscriptions.push(subscribe.subscription);
                let start = match subscribe.start {
                    Start::Now => "now".to_owned(),
                    Start::Oldest => "oldest".to_owned(),
                    Start::After(position) => format!("after {position}"),
                    Start::Since { since, limit } => {
                        format!("since {} limit {limit}", since.unix_timestamp())
                    }
                };
                let mut line = format!("! subscribe {} {start}", subscribe.channel);
                for (flag, name) in [(subscribe.echo, "echo"), (subscribe.presence, "presence")] {
                    if flag {
                        write!(line, " {name}").unwrap();
                    }
                }
                line
            }
            Action::Unsubscribe { subscription, left } => {
                let how = if left { "left" } else { "cut" };
                format!("! unsubscribe {} {how}", place(self, subscription))
            }
            Action::PublishEphemeral { request, channel, event, payload, .. } => {
                self.requests.push_back(request);
                format!("! publish {channel} {event} {payload}")
            }
            Action::PublishDurable { request, channel, event, payload, key, .. } => {
                self.requests.push_back(request);
                let key = key.map(|key| format!(" key {key}")).unwrap_or_default();
                format!("! store {channel} {event} {payload}{key}")
            }
            Action::Track { request, subscription, channel, key, meta } => {
                self.requests.push_back(request);
                format!("! track {} {channel} {key} {meta}", place(self, subscription))
            }
            Action::Untrack { subscription } => format!("! untrack {}", place(self, subscription)),
            Action::Ping => "! ping".to_owned(),
            Action::Close { code, reason } => format!("! close {code} {reason}"),
        }
    }
}

/// `room:*=subscribe,publish audit=durable as alice until 30s`, counted from when the socket was opened; `as` a presence key.
pub(crate) fn grant(text: &str, opened: OffsetDateTime) -> Grant {
    let (rights, until) =
        text.split_once(" until ").map_or((text, None), |(rights, until)| (rights, Some(until)));
    let (rights, key) = rights.split_once(" as ").map_or((rights, None), |(rights, key)| (rights, Some(key)));
    let channels = rights.split_whitespace().map(|entry| {
        let (pattern, rights) = entry.rsplit_once('=').unwrap();
        let rights = rights.split(',').map(|right| Right::parse(right).unwrap()).collect();
        (ChannelPattern::parse(pattern).unwrap(), rights)
    });
    Grant {
        expires: until.map(|until| opened + seconds(until)),
        channels: channels.collect(),
        presence_key: key.map(|key| key.parse().unwrap()),
        ..Grant::everything()
    }
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs_f64(text.strip_suffix('s').unwrap().parse().unwrap())
}

fn event(text: &str) -> (Channel, EventName, Payload) {
    let [channel, event, payload] = text.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    (Channel::parse(channel).unwrap(), EventName::parse(event).unwrap(), Payload::parse(payload).unwrap())
}

/// `alice/r2/r1/{"a":1}; bob/r3//{}`: key, reference, previous reference, meta.
fn entries(text: &str) -> Vec<PresenceEntry> {
    let entry = |text: &str| {
        let [key, reference, previous, meta] = text.splitn(4, '/').collect::<Vec<_>>().try_into().unwrap();
        let previous = Some(previous.to_owned()).filter(|previous| !previous.is_empty());
        let meta =
            PresenceMeta { reference: reference.into(), previous, meta: Payload::parse(meta).unwrap() };
        PresenceEntry { key: key.into(), metas: vec![meta] }
    };
    text.split("; ").filter(|text| !text.is_empty()).map(entry).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next().unwrap() {
                b'x' => {
                    let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => other,
            },
            other => other,
        });
    }
    out
}
