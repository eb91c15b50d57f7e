//! Switchboard's client protocol: what is said over one WebSocket, apart from the WebSocket.
//!
//! Clients that exist are served unmodified: npm `phoenix` and its ports ([`Dialect::Phoenix`]), npm `@supabase/realtime-js` and its ports
//! ([`Dialect::Supabase`]), each in both versions of Phoenix' serializer ([`Version`](codec::Version)). This crate holds no sockets, no
//! clock, no randomness and no buses:
//!
//! - [`codec`]: bytes to messages and back,
//! - [`session`]: what one socket may do and what it is told, as a state machine that answers with [`Action`](session::Action)s,
//! - [`Outgoing`]: an event on its way to subscribers, encoded once however many there are.
//!
//! # Conventions
//!
//! What the libraries leave open is decided as follows. `after`, `presence`, `access_token` and the event `publish` are the same in both dialects.
//!
//! | | `phoenix` | `@supabase/realtime-js` |
//! |---|---|---|
//! | topic of channel `room:1` | `room:1` | `realtime:room:1` |
//! | join | `{"after", "self", "presence": {"key", "enabled"}, "access_token"}`, all optional | as the library does, with `"after"` beside `"config"` (`updateJoinPayload`) |
//! | durable events start | now, after the position in `after`, or at the `oldest` | the same, or with `config.broadcast.replay` |
//! | ephemeral event | any push: its event and its payload; replied to when queued | `broadcast`; replied to with `ack` only, errors always |
//! | event of one's own | only with `"self": true` | only with `config.broadcast.self` |
//! | durable event | the push `publish` with `{"event", "payload", "durable": true, "key"}`; the reply has the `position` | the same: `send({type: "publish", event, payload, durable: true, key})` |
//! | position of what arrives | the message's `ref`, the second argument of handlers | `meta: {id, position, replayed}` |
//! | history or events lost | `switchboard:pruned` `{oldest}`, `switchboard:reset` `{head}`, `switchboard:lagged` `{missed}` | `system` with `status: "error"` and the same as `reason` |
//! | be present | the push `presence` with `{"event": "track", "payload"}` or `{"event": "untrack"}` | `track`, `untrack` |
//! | fresh token | the push `access_token` with `{"access_token"}`, in a channel or on the topic `phoenix` | `setAuth` |
//! | `postgres_changes` | | refused: `postgres_changes_unsupported` |
//!
//! A payload is delivered byte for byte as published. That is why a position stands in `ref` for `phoenix` (whose messages have no place for
//! more, and whose handlers are given it), and why bytes travel as `{"$switchboard:base64":"…"}` wherever only JSON can: through the buses,
//! to version 1, and, for `phoenix`, in durable events. Published in exactly this spelling, by whomever, they reach clients that take binary
//! frames as an `ArrayBuffer`.
//!
//! What is said in a topic before its join is answered is kept and done after it, in order. The topic `phoenix` is the socket's own, so the channel
//! of that name cannot be joined by `phoenix`. Clients are seen under the `presence.key` that they choose, or one of the socket's own; the server
//! does not compare it with who they are, unless the token binds it ([`presence_key`](switchboard_core::access::Grant::presence_key)).
//!
//! `phx_*`, `switchboard:*`, `presence_state` and `presence_diff` are words of the server: clients of `phoenix` cannot publish under these names,
//! and receive events that somebody else did publish under them with `switchboard:` in front. `access_token`, `presence` and `publish` never
//! become events by a bare push; `publish` with `{"event": "publish"}` makes one.
//!
//! Every refusal has a [`Reason`](session::Reason) for programs and a message for people. A token in a join counts for that channel, the
//! token of the socket for the others. At its expiry a channel gets `phx_error` with the reason `expired`; when that leaves no channel, the socket closes with
//! [4401](session::close::TOKEN_EXPIRED). A socket that is refused for its token at the upgrade (HTTP 401) backs off by itself, one that is accepted and then
//! closed would not: so the gateway checks the token of the URL before it upgrades.
//!
//! # Example
//!
//! ```
//! use std::time::Instant;
//!
//! use switchboard_core::access::Grant;
//! use switchboard_core::types::EphemeralEvent;
//! use switchboard_protocol::codec::{Frame, Version};
//! use switchboard_protocol::session::{Action, Limits, Now, Session, SessionConfig};
//! use switchboard_protocol::{Dialect, Outgoing};
//! use time::OffsetDateTime;
//!
//! let now = || Now { instant: Instant::now(), wall: OffsetDateTime::now_utc() };
//! let text = |action| match action {
//!     Some(Action::Send(Frame::Text(text))) => String::from_utf8(text.to_vec()).unwrap(),
//!     other => panic!("{other:?}"),
//! };
//! let config = SessionConfig {
//!     dialect: Dialect::Phoenix,
//!     version: Version::parse(Some("2.0.0"))?,
//!     id: "f3a1".to_owned(),
//!     limits: Limits::default(),
//! };
//! let mut session = Session::new(config, Ok(Grant::everything()), now());
//!
//! // The client joins; we subscribe for it, and say so.
//! session.handle_text(r#"["1","1","room:1","phx_join",{}]"#, now());
//! let Some(Action::Subscribe(subscribe)) = session.poll_action() else { panic!("it may join") };
//! session.handle_subscribed(subscribe.subscription, Ok(()), now());
//! assert_eq!(text(session.poll_action()), r#"["1","1","room:1","phx_reply",{"status":"ok","response":{}}]"#);
//!
//! // Something happens in the channel. The same `Outgoing` serves every other subscriber.
//! let event = EphemeralEvent {
//!     channel: subscribe.channel,
//!     event: "typing".parse()?,
//!     payload: r#"{"who":"bob"}"#.parse()?,
//! };
//! session.handle_event(subscribe.subscription, &Outgoing::ephemeral(&event), false, now());
//! assert_eq!(text(session.poll_action()), r#"[null,null,"room:1","typing",{"who":"bob"}]"#);
//! assert_eq!(session.poll_action(), None);
//! # Ok::<(), switchboard_core::types::Invalid>(())
//! ```

mod bytes_as_json;
pub mod codec;
mod dialect;
mod event;
mod object;
mod presence;
pub mod session;

pub use bytes_as_json::to_payload as payload_of_bytes;
pub use dialect::Dialect;
pub use event::Outgoing;
pub use object::Object;
pub use presence::{PresenceEntry, PresenceMeta};
