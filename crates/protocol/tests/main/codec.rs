//! Properties of the codec: what is written is read back, and no bytes do any harm.

use std::borrow::Cow;
use std::time::Instant;

use proptest::prelude::*;
use serde_json::value::RawValue;
use switchboard_core::access::Grant;
use switchboard_protocol::Dialect;
use switchboard_protocol::codec::{
    Broadcast, BroadcastPayload, ClientMessage, ClientPayload, DecodeError, Frame, ServerMessage,
    ServerPayload, Version,
};
use switchboard_protocol::session::{Action, Limits, Now, Session, SessionConfig};
use time::OffsetDateTime;

/// JSON text that a parser which makes values of it would change.
fn json() -> impl Strategy<Value = Box<RawValue>> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("1e400".to_owned()),
        Just("-0.0".to_owned()),
        any::<u128>().prop_map(|n| n.to_string()),
        ".{0,8}".prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    let value = leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(" , "))),
            prop::collection::vec(inner, 0..3).prop_map(|items| {
                let members: Vec<_> = items.iter().map(|item| format!(r#""a": {item}"#)).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    });
    value.prop_map(|text| RawValue::from_string(text).unwrap())
}

fn name() -> impl Strategy<Value = String> {
    "\\PC{0,20}"
}

/// In a binary frame no reference and an empty one are the same.
fn reference() -> impl Strategy<Value = Option<String>> {
    prop::option::of("\\PC{1,20}")
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..64)
}

fn cow(text: Option<&String>) -> Option<Cow<'_, str>> {
    text.map(|text| Cow::Borrowed(text.as_str()))
}

/// Everything that can be seen of a message.
fn shown(message: &impl std::fmt::Debug) -> String {
    format!("{message:?}")
}

fn read_client(version: Version, frame: &Frame) -> Result<ClientMessage<'_>, DecodeError> {
    match frame {
        Frame::Text(text) => ClientMessage::from_text(version, std::str::from_utf8(text).unwrap()),
        Frame::Binary(bytes) => ClientMessage::from_binary(version, bytes),
    }
}

fn read_server(version: Version, frame: &Frame) -> Result<ServerMessage<'_>, DecodeError> {
    match frame {
        Frame::Text(text) => ServerMessage::from_text(version, std::str::from_utf8(text).unwrap()),
        Frame::Binary(bytes) => ServerMessage::from_binary(version, bytes),
    }
}

proptest! {
    #[test]
    fn what_a_client_writes_is_what_is_read(
        (join_ref, reference) in (reference(), reference()),
        (topic, event, user_event) in (name(), name(), name()),
        (json, meta) in (json(), prop::option::of(json())),
        bytes in bytes(),
    ) {
        let broadcast = |payload| ClientPayload::Broadcast(Broadcast {
            event: Cow::Borrowed(&user_event),
            meta: meta.as_deref(),
            payload,
        });
        let kinds = [
            (&*event, ClientPayload::Json(&json)),
            (&*event, ClientPayload::Bytes(&bytes)),
            ("broadcast", broadcast(BroadcastPayload::Json(&json))),
            ("broadcast", broadcast(BroadcastPayload::Bytes(&bytes))),
        ];
        for (event, payload) in kinds {
            let message = ClientMessage {
                join_ref: cow(join_ref.as_ref()),
                reference: cow(reference.as_ref()),
                topic: Cow::Borrowed(&topic),
                event: Cow::Borrowed(event),
                payload,
            };
            for version in Version::ALL {
                match message.encode(version) {
                    Some(frame) => prop_assert_eq!(shown(&read_client(version, &frame).unwrap()), shown(&message)),
                    None => prop_assert!(version == Version::V1 || meta.as_ref().is_some_and(|meta| meta.get().len() > 255)),
                }
            }
        }
    }

    #[test]
    fn what_a_server_writes_is_what_is_read(
        (join_ref, reference) in (reference(), reference()),
        (topic, event, user_event) in (name(), name(), name()),
        (json, meta) in (json(), prop::option::of(json())),
        bytes in bytes(),
    ) {
        let broadcast = |payload| ServerPayload::Broadcast(Broadcast {
            event: Cow::Borrowed(&user_event),
            meta: meta.as_deref(),
            payload,
        });
        let (join_ref, reference) = (cow(join_ref.as_ref()), cow(reference.as_ref()));
        let reply = ServerPayload::Reply { status: Cow::Borrowed(&user_event), response: &bytes };
        let push_ref = join_ref.clone().or(Some(Cow::Borrowed("")));
        let kinds = [
            (join_ref.clone(), reference.clone(), &*event, ServerPayload::Json(&json)),
            (push_ref, None, &*event, ServerPayload::Bytes(&bytes)),
            (None, None, &*event, ServerPayload::Bytes(&bytes)),
            (join_ref, reference, "phx_reply", reply),
            (None, None, "broadcast", broadcast(BroadcastPayload::Json(&json))),
            (None, None, "broadcast", broadcast(BroadcastPayload::Bytes(&bytes))),
        ];
        for (join_ref, reference, event, payload) in kinds {
            let (topic, event) = (Cow::Borrowed(&*topic), Cow::Borrowed(event));
            let message = ServerMessage { join_ref, reference, topic, event, payload };
            for version in Version::ALL {
                match message.encode(version) {
                    Some(frame) => prop_assert_eq!(shown(&read_server(version, &frame).unwrap()), shown(&message)),
                    None => prop_assert!(version == Version::V1 || meta.as_ref().is_some_and(|meta| meta.get().len() > 255)),
                }
            }
        }
    }

    #[test]
    fn no_bytes_do_any_harm(bytes in bytes(), text in any::<String>()) {
        harmless(&bytes, &text);
    }

    #[test]
    fn no_change_of_a_valid_frame_does_any_harm(at in any::<prop::sample::Index>(), by in any::<u8>(), cut in any::<bool>()) {
        for seed in SEEDS {
            let mut bytes = seed.to_vec();
            let at = at.index(bytes.len());
            bytes[at] = by;
            if cut {
                bytes.truncate(at);
            }
            harmless(&bytes, &String::from_utf8_lossy(&bytes));
        }
    }
}

const SEEDS: [&[u8]; 8] = [
    br#"["1","1","realtime:room","phx_join",{"config":{"broadcast":{"replay":{"since":1,"limit":2}},"presence":{"key":"a"}},"after":"oldest"}]"#,
    br#"{"topic":"room","event":"phx_join","payload":{"after":"0123456789abcdef-42","self":true},"ref":"1","join_ref":"1"}"#,
    br#"["1","2","realtime:a","broadcast",{"type":"broadcast","event":"e","payload":{"n":1}}]"#,
    br#"["1","2","a","publish",{"event":"e","payload":[1],"durable":true,"key":"k"}]"#,
    br#"["1","2","a","presence",{"event":"track","payload":{"n":1}}]"#,
    b"\0\x01\x01\x01\x0112ae\x01\x02",
    b"\x03\x01\x01\x0a\x01\x02\x0112realtime:ae{}{\"n\":1}",
    b"\x03\x01\x01\x0a\x01\x00\x0012realtime:ae\xff",
];

/// Feeds both to sessions that have joined something, and checks that whatever they send is a message.
fn harmless(bytes: &[u8], text: &str) {
    let now = Now { instant: Instant::now(), wall: OffsetDateTime::UNIX_EPOCH };
    for dialect in Dialect::ALL {
        for version in Version::ALL {
            let config = SessionConfig { dialect, version, id: "s".into(), limits: Limits::default() };
            let topic = dialect.topic(&"a".parse().unwrap()).into_owned();
            let join = ClientMessage {
                join_ref: Some("1".into()),
                reference: Some("1".into()),
                topic: topic.into(),
                event: "phx_join".into(),
                payload: ClientPayload::Json(serde_json::from_str("{}").unwrap()),
            };
            let Some(Frame::Text(join)) = join.encode(version) else { panic!("text is always written") };
            for binary in [false, true] {
                let mut session = Session::new(config.clone(), Ok(Grant::everything()), now);
                session.handle_text(std::str::from_utf8(&join).unwrap(), now);
                let Some(Action::Subscribe(subscribe)) = session.poll_action() else { panic!("it may join") };
                session.handle_subscribed(subscribe.subscription, Ok(()), now);
                if binary {
                    session.handle_binary(bytes, now);
                } else {
                    session.handle_text(text, now);
                }
                while let Some(action) = session.poll_action() {
                    match action {
                        Action::Send(frame) => drop(read_server(version, &frame).unwrap()),
                        Action::Close { code, reason } => {
                            assert!(matches!(code, 1003 | 1007) && reason.len() <= 123, "{code} {reason}");
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

#[test]
fn the_frames_of_the_npm_packages_are_read() {
    // Written by the serializers of `phoenix` 1.8.16 and `@supabase/realtime-js` 2.109.0.
    let push = b"\x00\x01\x01\x06\x0634room:1uploadABC";
    let message = ClientMessage::from_binary(Version::V2, push).unwrap();
    assert_eq!((message.join_ref.as_deref(), message.reference.as_deref()), (Some("3"), Some("4")));
    assert_eq!((&*message.topic, &*message.event), ("room:1", "upload"));
    assert!(matches!(message.payload, ClientPayload::Bytes(b"ABC")));

    let broadcast = b"\x03\x01\x01\x0d\x04\x00\x0167realtime:roommove{\"x\":1}";
    let message = ClientMessage::from_binary(Version::V2, broadcast).unwrap();
    assert_eq!((message.join_ref.as_deref(), message.reference.as_deref()), (Some("6"), Some("7")));
    assert_eq!((&*message.topic, &*message.event), ("realtime:room", "broadcast"));
    let ClientPayload::Broadcast(broadcast) = message.payload else { panic!("it is a broadcast") };
    assert_eq!((&*broadcast.event, broadcast.meta.is_none()), ("move", true));
    assert!(matches!(broadcast.payload, BroadcastPayload::Json(json) if json.get() == r#"{"x":1}"#));
}

#[test]
fn a_version_is_spelled_as_the_clients_do() {
    assert_eq!(Version::parse(None), Ok(Version::V1));
    assert_eq!(Version::parse(Some("1.0.0")), Ok(Version::V1));
    assert_eq!(Version::parse(Some("2.0.0")), Ok(Version::V2));
    for wrong in ["", "2", "2.0", "3.0.0", " 2.0.0"] {
        assert!(Version::parse(Some(wrong)).unwrap_err().to_string().contains("1.0.0 or 2.0.0"));
    }
}

#[test]
fn an_event_is_encoded_once_and_shared() {
    let event = switchboard_core::types::EphemeralEvent {
        channel: "a".parse().unwrap(),
        event: "e".parse().unwrap(),
        payload: "1".parse().unwrap(),
    };
    let event = switchboard_protocol::Outgoing::ephemeral(&event);
    for dialect in Dialect::ALL {
        for version in Version::ALL {
            let (first, second) = (event.frame(dialect, version), event.frame(dialect, version).clone());
            assert_eq!(first.bytes().as_ptr(), second.bytes().as_ptr());
        }
    }
}
