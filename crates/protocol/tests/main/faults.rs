//! Faults that other systems had, as far as they live in the protocol. The names are those of the catalogue.

use switchboard_core::access::Grant;
use switchboard_protocol::Dialect;
use switchboard_protocol::codec::Version;
use switchboard_protocol::session::Limits;

use super::conversation::{Conversation, grant};

fn conversation(dialect: Dialect, version: Version) -> Conversation {
    // As many messages as a test likes.
    let limits = Limits { channels: usize::MAX, ..Limits::default() };
    Conversation::with(dialect, version, limits, |_| Ok(Grant::everything()))
}

#[test]
fn b076_no_text_takes_anything_down_but_its_own_socket() {
    let bombs = [
        "[".repeat(1_000_000),
        r#"{"a":"#.repeat(200_000),
        format!(r#"["1","1","a","e",{}"#, "[".repeat(1_000_000)),
    ];
    let texts = [
        "",
        " ",
        "}",
        "]",
        "null",
        "[]",
        "{}",
        "0",
        "\"x\"",
        "true",
        r#"{"type":null}"#,
        "\u{feff}[]",
        "\u{feff}[null,\"1\",\"phoenix\",\"heartbeat\",{}]",
        r#"[null,"1","phoenix","heartbeat",{}]x"#,
        r#"[null,"1","phoenix","heartbeat",{},{}]"#,
        r#"[null,"1","phoenix","heartbeat"]"#,
        r#"[1,"1","phoenix","heartbeat",{}]"#,
        r#"[null,{},"phoenix","heartbeat",{}]"#,
        r#"[null,"1",null,"heartbeat",{}]"#,
        r#"[null,"1",["phoenix"],"heartbeat",{}]"#,
        r#"[null,"1","phoenix",null,{}]"#,
        r#"[null,"1","phoenix","heartbeat",nul]"#,
        r#"[null,"1","\ud800","heartbeat",{}]"#,
        r#"{"topic":"a","topic":"b","event":"e","payload":{},"ref":"1"}"#,
        r#"{"topic":1,"event":"e","payload":{},"ref":"1"}"#,
        r#"{"topic":"a","event":"e","ref":"1"}"#,
    ];
    for dialect in Dialect::ALL {
        for version in Version::ALL {
            for text in texts.iter().copied().chain(bombs.iter().map(String::as_str)) {
                let outcome = conversation(dialect, version).say(text);
                let [only] = &outcome[..] else { panic!("{outcome:?} after {text:.50}") };
                assert!(only.starts_with("! close 1007 "), "{only} after {text:.50}");
                assert!(only.len() <= "! close 1007 ".len() + 123, "{only}");
            }
        }
    }
}

#[test]
fn b076_the_shape_of_the_other_version_and_overlong_names_are_refused() {
    let (array, object) = (
        r#"[null,"1","phoenix","heartbeat",{}]"#,
        r#"{"topic":"phoenix","event":"heartbeat","payload":{},"ref":"1"}"#,
    );
    for (version, own, other) in [(Version::V1, object, array), (Version::V2, array, object)] {
        let outcome = |text| conversation(Dialect::Phoenix, version).say(text).remove(0);
        assert!(outcome(own).contains("phx_reply"), "{own}");
        assert!(outcome(other).starts_with("! close 1007 a message must be "), "{other}");
    }
    for (at, length) in [(0, 255), (0, 256), (1, 255), (1, 256)] {
        let long = "x".repeat(length);
        let mut refs = ["1"; 2];
        refs[at] = &long;
        let [join_ref, reference] = refs;
        let text = format!(r#"["{join_ref}","{reference}","t","e",{{}}]"#);
        let outcome = conversation(Dialect::Phoenix, Version::V2).say(&text).remove(0);
        assert_eq!(outcome.starts_with("! close 1007 "), length > 255, "{outcome}");
    }
}

/// Who is closed for it comes back at once and says it again.
#[test]
fn a_topic_or_an_event_that_is_too_long_is_replied_to() {
    let long = "x".repeat(100_000);
    for (version, dialect) in
        [(Version::V1, Dialect::Phoenix), (Version::V2, Dialect::Phoenix), (Version::V2, Dialect::Supabase)]
    {
        let mut socket = conversation(dialect, version);
        let mut say = |reference: &str, topic: &str, event: &str, payload: &str| {
            let said = match version {
                Version::V1 => format!(
                    r#"{{"topic":"{topic}","event":"{event}","payload":{payload},"ref":"{reference}","join_ref":"1"}}"#
                ),
                Version::V2 => format!(r#"["1","{reference}","{topic}","{event}",{payload}]"#),
            };
            socket.say(&said).remove(0)
        };
        let room = dialect.topic(&"room".parse().unwrap()).into_owned();
        for topic in [long.clone(), format!("realtime:{long}"), format!("realtime:{}", "x".repeat(256))] {
            let outcome = say("1", &topic, "phx_join", "{}");
            assert!(outcome.starts_with("< ") && outcome.contains(r#""bad_topic""#), "{outcome:.200}");
        }
        assert!(say("1", &room, "phx_join", "{}").starts_with("! subscribe room"));
        socket.play_answer("subscribed");
        let (event, payload) = match dialect {
            Dialect::Phoenix => (&*long, "{}".to_owned()),
            Dialect::Supabase => ("broadcast", format!(r#"{{"event":"{long}","payload":{{}}}}"#)),
        };
        let said = match version {
            Version::V1 => format!(
                r#"{{"topic":"{room}","event":"{event}","payload":{payload},"ref":"2","join_ref":"1"}}"#
            ),
            Version::V2 => format!(r#"["1","2","{room}","{event}",{payload}]"#),
        };
        let outcome = socket.say(&said).remove(0);
        assert!(outcome.starts_with("< ") && outcome.contains(r#""bad_payload""#), "{outcome:.200}");
        assert!(outcome.len() < 1000, "{outcome}");
    }
}

#[test]
fn b076_a_part_of_another_type_is_named() {
    for (array, object, reason) in [
        (
            r#"[1,"1","t","e",{}]"#,
            r#"{"join_ref":1,"topic":"t","event":"e","payload":{}}"#,
            "join_ref must be a string or null",
        ),
        (
            r#"["1",1,"t","e",{}]"#,
            r#"{"ref":1,"topic":"t","event":"e","payload":{}}"#,
            "ref must be a string or null",
        ),
        (r#"["1","1",null,"e",{}]"#, r#"{"topic":null,"event":"e","payload":{}}"#, "topic must be a string"),
        (r#"["1","1","t",{},{}]"#, r#"{"topic":"t","event":{},"payload":{}}"#, "event must be a string"),
        (
            r#"["1","1","\ud800","e",{}]"#,
            r#"{"topic":"\ud800","event":"e","payload":{}}"#,
            "topic must be valid Unicode",
        ),
    ] {
        for (version, text) in [(Version::V2, array), (Version::V1, object)] {
            let outcome = conversation(Dialect::Phoenix, version).say(text).remove(0);
            assert_eq!(outcome, format!("! close 1007 {reason}"), "{text}");
        }
    }
}

#[test]
fn b076_no_binary_frame_takes_anything_down_but_its_own_socket() {
    let frames: [&[u8]; 16] = [
        b"",
        b"\0",
        b"\x01",
        b"\x02",
        b"\x04",
        b"\xff",
        b"[]",
        b"\0\x01\x01\x01\x01",
        b"\0\xff\xff\xff\xff123",
        b"\0\x01\x01\x01\x01\xff\xff\xff\xff",
        b"\x03",
        b"\x03\0\0\x01\x01\0\x02aa{}",
        b"\x03\0\0\x01\x01\0\x01aa{",
        b"\x03\0\0\x01\x01\x02\x01aa{x{}",
        b"\x03\xff\xff\xff\xff\xff\xff",
        b"\x03\0\0\x01\x01\0\x01aa\xff",
    ];
    for dialect in Dialect::ALL {
        for frame in frames {
            let outcome = conversation(dialect, Version::V2).say_bytes(frame);
            let [only] = &outcome[..] else { panic!("{outcome:?} after {}", frame.escape_ascii()) };
            assert!(only.starts_with("! close 1003 ") || only.starts_with("! close 1007 "), "{only}");
        }
        let outcome = conversation(dialect, Version::V1).say_bytes(b"\0\0\0\x01\x01ab");
        assert_eq!(outcome, ["! close 1003 binary frames need vsn 2.0.0"]);
    }
}

#[test]
fn b076_a_payload_that_does_not_fit_is_an_error_reply() {
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    for dialect in Dialect::ALL {
        let topic = dialect.topic(&"room".parse().unwrap()).into_owned();
        let mut conversation = conversation(dialect, Version::V2);
        for payload in [
            "null",
            "[]",
            "0",
            "\"x\"",
            r#"{"after":{}}"#,
            r#"{"after":"x","after":"y"}"#,
            r#"{"access_token":1}"#,
            &deep,
        ] {
            let outcome = conversation.say(&format!(r#"["1","1","{topic}","phx_join",{payload}]"#));
            assert_eq!(outcome.len(), 1, "{outcome:?}");
            assert!(outcome[0].contains(r#""reason":"bad_payload""#), "{outcome:?}");
        }
        conversation.say(&format!(r#"["1","1","{topic}","phx_join",{{}}]"#));
        conversation.play_answer("subscribed");
        for event in ["publish", "broadcast", "presence", "access_token"] {
            for payload in ["null", "[]", "0", r#"{"event":1}"#, r#"{"event":"a","event":"a"}"#, &deep] {
                if (dialect, event) == (Dialect::Phoenix, "broadcast") && payload.len() < 100 {
                    // An event like any other, whose payload is whatever it is.
                    continue;
                }
                let outcome = conversation.say(&format!(r#"["1","2","{topic}","{event}",{payload}]"#));
                assert_eq!(outcome.len(), 1, "{outcome:?}");
                let expected = outcome[0].contains(r#""reason":"bad_payload""#)
                    || outcome[0].contains(r#""reason":"missing""#);
                assert!(expected, "{outcome:?}");
            }
        }
    }
}

#[test]
fn b121_an_update_of_presence_is_one_request_and_a_rejoin_is_no_leave() {
    for (dialect, topic) in [(Dialect::Phoenix, "room"), (Dialect::Supabase, "realtime:room")] {
        let mut conversation = conversation(dialect, Version::V2);
        let join = format!(
            r#"["1","1","{topic}","phx_join",{{"config":{{"presence":{{"key":"alice"}}}},"presence":{{"key":"alice"}}}}]"#
        );
        conversation.say(&join);
        conversation.play_answer("subscribed");
        // Updates go out in their order and never as a leave and a join.
        for n in 0..100 {
            let track = format!(
                r#"["1","2","{topic}","presence",{{"type":"presence","event":"track","payload":{{"n":{n}}}}}]"#
            );
            assert_eq!(conversation.say(&track), [format!(r#"! track 1 room alice {{"n":{n}}}"#)]);
            conversation.play_answer("tracked");
        }
        // The diff of an update names what it replaces.
        let diff = conversation.play_answer(r#"came room alice/r2/r1/{"n":1} went alice/r1//{"n":0}"#);
        let expected = r#""joins":{"alice":{"metas":[{"n":1,"phx_ref":"r2","phx_ref_prev":"r1"}]}},"leaves":{"alice":{"metas":[{"n":0,"phx_ref":"r1"}]}}"#;
        assert!(diff[0].contains(expected), "{diff:?}");
        // A client that joins again is cut, not gone; only leaving is leaving.
        let rejoined = conversation.say(&join.replace(r#""1","1""#, r#""9","9""#));
        assert_eq!(rejoined[0], "! unsubscribe 1 cut");
        assert!(rejoined.iter().all(|line| !line.starts_with("! untrack")), "{rejoined:?}");
        let left = conversation.say(&format!(r#"["9","10","{topic}","phx_leave",{{}}]"#));
        assert_eq!(left[0], "! unsubscribe 2 left");
    }
}

/// Spellings that other systems took for `room:1`, or for a way into `room:2`.
const SPELLINGS: [&str; 14] = [
    "room:1 ",
    " room:1",
    "ROOM:1",
    "Room:1",
    "room%3A1",
    "room:１",
    "room:*",
    "room:1,room:2",
    "channel:room:1",
    "ephemeral:room:1",
    "room:",
    "room:11",
    "*",
    "room:\u{200d}1",
];

#[test]
fn b130_a_token_for_one_room_opens_no_other_spelling_of_it() {
    for (dialect, prefix) in [(Dialect::Phoenix, ""), (Dialect::Supabase, "realtime:")] {
        for version in Version::ALL {
            let access = |now| Ok(grant("room:1=subscribe,publish,durable,presence", now));
            let mut conversation = Conversation::with(dialect, version, Limits::default(), access);
            let mut say = |topic: &str, event: &str, payload: &str| {
                let topic = format!("{prefix}{topic}");
                conversation.say(&match version {
                    Version::V1 => format!(
                        r#"{{"topic":"{topic}","event":"{event}","payload":{payload},"ref":"1","join_ref":"1"}}"#
                    ),
                    Version::V2 => format!(r#"["1","1","{topic}","{event}",{payload}]"#),
                })
            };
            assert_eq!(say("room:1", "phx_join", "{}"), ["! subscribe room:1 now"]);
            for spelling in SPELLINGS {
                let outcome = say(spelling, "phx_join", "{}");
                assert_eq!(outcome.len(), 1, "{outcome:?}");
                assert!(outcome[0].contains(r#""reason":"forbidden""#), "{spelling}: {outcome:?}");
                for (event, payload) in [
                    ("broadcast", r#"{"event":"message"}"#),
                    ("publish", r#"{"event":"message","durable":true}"#),
                    ("presence", r#"{"event":"track"}"#),
                    ("typing", "{}"),
                    ("cursor", "{}"),
                ] {
                    let outcome = say(spelling, event, payload);
                    assert_eq!(outcome.len(), 1, "{outcome:?}");
                    assert!(outcome[0].contains(r#""reason":"unmatched topic""#), "{spelling}: {outcome:?}");
                }
            }
            // A control character is no channel at all; an escape in JSON is the character itself and nothing else.
            assert!(say(r"room:1\u0000", "phx_join", "{}")[0].contains(r#""reason":"bad_topic""#));
            assert!(say(r"room\u003a1", "phx_join", "{}").contains(&"! subscribe room:1 now".to_owned()));
        }
    }
    let access = |now| Ok(grant("room:1=subscribe", now));
    let mut conversation = Conversation::with(Dialect::Supabase, Version::V2, Limits::default(), access);
    for topic in ["Realtime:room:1", "realtime: room:1", "realtime:realtime:room:1", "room:1"] {
        let outcome = conversation.say(&format!(r#"["1","1","{topic}","phx_join",{{}}]"#));
        assert!(outcome[0].contains(r#""status":"error""#), "{outcome:?}");
    }
}

#[test]
fn b130_the_clusters_own_channels_are_open_to_nobody() {
    for (dialect, prefix) in [(Dialect::Phoenix, ""), (Dialect::Supabase, "realtime:")] {
        for channel in ["$switchboard", "$switchboard:presence", "$switchboards"] {
            let mut conversation = conversation(dialect, Version::V2);
            let outcome = conversation.say(&format!(r#"["1","1","{prefix}{channel}","phx_join",{{}}]"#));
            assert!(outcome[0].contains(r#""reason":"forbidden""#), "{outcome:?}");
            let outcome =
                conversation.say(&format!(r#"["1","1","{prefix}{channel}","publish",{{"event":"x"}}]"#));
            assert!(outcome[0].contains(r#""reason":"unmatched topic""#), "{outcome:?}");
        }
    }
}
