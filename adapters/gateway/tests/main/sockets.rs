//! WebSockets: what is said over them reaches others, and nothing that a client does reaches more than its own socket.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use switchboard_core::ports::{DurableBus, EphemeralBus};
use switchboard_core::timing::Timing;
use switchboard_core::types::{Channel, EventName, Payload};
use switchboard_gateway::{GatewayConfig, Limits, Origins, Rate, SocketConfig};
use switchboard_testkit::{LONG, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::client::Client;
use crate::server::{Server, TOKEN, config};
use crate::tokens::{expiring, token, with_leeway, with_tokens};

const SOCKET: &str = "/socket/websocket?vsn=2.0.0";

fn with_sockets(sockets: SocketConfig) -> GatewayConfig {
    GatewayConfig { sockets, ..config() }
}

fn with_limits(limits: Limits) -> GatewayConfig {
    with_sockets(SocketConfig { limits, ..SocketConfig::default() })
}

async fn with_token(server: &Server, token: &str) -> Result<Client, String> {
    Client::try_open(server, &format!("{SOCKET}&token={token}"), "").await
}

fn channel(name: &str) -> Channel {
    Channel::parse(name).unwrap()
}

async fn send(server: &Server, payload: &str) {
    let (event, payload) = (EventName::parse("news").unwrap(), Payload::parse(payload).unwrap());
    server.cluster.ephemeral().publish(&channel("room:1"), &event, &payload).await.unwrap();
}

async fn store(server: &Server, payload: &str) -> String {
    let (event, payload) = (EventName::parse("news").unwrap(), Payload::parse(payload).unwrap());
    server.cluster.durable().publish(&channel("room:1"), &event, &payload).await.unwrap().to_string()
}

#[tokio::test]
async fn what_one_socket_says_the_others_hear_and_the_speaker_does_not() {
    let server = Server::start(config()).await;
    let (mut alice, mut bob) = (Client::admin(&server).await, Client::admin(&server).await);
    for client in [&mut alice, &mut bob] {
        client.join("room:1", json!({})).await;
    }
    // Twice the same, so that one's own is told by who said it and not by what was said.
    for client in [&mut alice, &mut bob] {
        assert_eq!(client.push("room:1", "typing", json!({"on": true})).await.0, "ok");
    }
    let (status, stored) =
        alice.push("room:1", "publish", json!({"event": "message", "payload": "hi", "durable": true})).await;
    assert_eq!(status, "ok");
    let typing = json!([null, null, "room:1", "typing", {"on": true}]);
    let message = json!([null, stored["position"], "room:1", "message", "hi"]);
    for client in [&mut bob, &mut alice] {
        let mut heard = [client.hear().await.unwrap(), Value::Null];
        // Alice heard Bob's while she waited for her reply.
        if heard[0] == typing {
            heard[1] = client.hear().await.unwrap();
            heard.swap(0, 1);
        }
        assert_eq!(heard[0], message);
    }
    assert_eq!(server.stat("ws_clients"), 2);
    drop((alice, bob));
    eventually(LONG, "sockets are forgotten", async || server.stat("ws_clients") == 0).await;
}

#[tokio::test]
async fn b076_a_malformed_message_costs_its_sender_alone() {
    let server = Server::start(config()).await;
    let mut other = Client::admin(&server).await;
    other.join("room:1", json!({})).await;
    let deep = "[".repeat(900_000);
    for bad in [
        "",
        "}",
        "null",
        "[]",
        "0",
        "\"x\"",
        &deep,
        "{\"type\":null}",
        "[1,2,3,4,5]",
        "[null,null,null,null,null]",
        "[\"1\",\"1\",\"room:1\",\"phx_join\"]",
        "[\"1\",\"1\",\"room:1\",\"phx_join\",{},1]",
        "[\"1\",\"1\",\"room:1\",\"phx_join\",{}]]",
        "\u{feff}[\"1\",\"1\",\"phoenix\",\"heartbeat\",{}]",
        "[\"1\",\"1\",\"room:1\",\"phx_join\",{\"after\":7}]",
        "[\"1\",\"1\",\"room:1\",\"phx_join\",7]",
        "[\"1\",\"1\",{},\"phx_join\",{}]",
        "[\"1\",\"1\",\"phoenix\",\"nonsense\",{}]",
    ] {
        let mut client = Client::admin(&server).await;
        client.say(bad).await;
        match client.hear().await {
            Ok(reply) => assert_eq!(reply[4]["status"], "error", "{bad:.40}: {reply}"),
            Err((code, reason)) => assert!(matches!(code, 1003 | 1007 | 1008), "{bad:.40}: {code} {reason}"),
        }
    }
    for bad in [&b""[..], b"\0", b"\x03\xff\xff\xff\xff", b"\x09hello", &[0xff; 100]] {
        let mut client = Client::admin(&server).await;
        client.send(Message::binary(bad.to_vec())).await;
        assert!(matches!(client.closed().await, 1003 | 1007 | 1008), "{bad:?}");
    }
    // What is not even a frame, or no text.
    for (bad, code) in [(&b"\xff\x80\0\0\0\0"[..], 1002), (b"\x81\x82\0\0\0\0\xff\xff", 1007)] {
        let mut client = Client::admin(&server).await;
        client.raw().write_all(bad).await.unwrap();
        assert_eq!(client.closed().await, code, "{bad:?}");
    }
    send(&server, "1").await;
    assert_eq!(other.hear().await.unwrap()[4], 1);
}

#[tokio::test]
async fn b080_a_join_after_a_position_gets_what_follows_or_is_told_that_it_cannot() {
    let server = Server::start(config()).await;
    let mut positions = Vec::new();
    for n in 1..=5 {
        positions.push(store(&server, &n.to_string()).await);
    }
    let mut client = Client::admin(&server).await;
    client.join("room:1", json!({"after": positions[1]})).await;
    for n in 3..=5 {
        let message = client.hear().await.unwrap();
        assert_eq!((&message[1], &message[4]), (&json!(positions[n - 1]), &json!(n)));
    }
    let sixth = store(&server, "6").await;
    assert_eq!(client.hear().await.unwrap()[1], json!(sixth));

    let mut from_the_start = Client::admin(&server).await;
    from_the_start.join("room:1", json!({"after": "oldest"})).await;
    assert_eq!(from_the_start.hear().await.unwrap()[4], 1);

    let mut stranger = Client::admin(&server).await;
    stranger.join("room:1", json!({"after": "00000000000000aa-3"})).await;
    let reset = stranger.hear().await.unwrap();
    assert_eq!((&reset[3], &reset[4]["head"]), (&json!("switchboard:reset"), &json!(sixth)));
    for bad in [json!(0), json!(-1), json!("x"), json!("1"), json!("00000000000000aa-99999999999999999999")] {
        let (status, response) = stranger.push("room:2", "phx_join", json!({"after": bad})).await;
        assert_eq!((status.as_str(), &response["reason"]), ("error", &json!("bad_payload")), "{bad}");
    }
}

/// The seam between what was stored and what is published meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn b079_sockets_that_resume_under_load_miss_nothing_and_hear_nothing_twice() {
    const LAST: u64 = 1000;
    // Whoever is this busy must not be taken for dead.
    let server = Server::start(GatewayConfig { timing: Timing::default(), ..config() }).await;
    let first = store(&server, "1").await;
    let publishing = async {
        for n in 2..=LAST {
            store(&server, &n.to_string()).await;
            if n % 50 == 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    let listening = join_all((0..20).map(|_| async {
        let mut client = Client::admin(&server).await;
        client.join("room:1", json!({"after": first})).await;
        for expected in 2..=LAST {
            assert_eq!(client.hear().await.unwrap()[4], expected);
        }
    }));
    tokio::join!(publishing, listening);
}

#[tokio::test]
async fn b107_sockets_are_told_to_go_when_the_node_stops_and_none_holds_it_up() {
    let sockets = SocketConfig { drain_window: Duration::from_millis(500), ..SocketConfig::default() };
    let server = Server::start(with_sockets(sockets)).await;
    let mut clients = join_all((0..100).map(|_| Client::admin(&server))).await;
    let mut silent = join_all((0..10).map(|_| Client::admin(&server))).await;
    for client in &mut silent {
        client.join("room:1", json!({})).await;
    }
    // More than their connections hold, and they do not read it.
    let large = format!("\"{}\"", "x".repeat(60_000));
    for _ in 0..200 {
        send(&server, &large).await;
    }
    eventually(LONG, "events are dropped", async || {
        tokio::task::yield_now().await;
        server.stat("ws_sent_total").as_u64() > Some(10)
    })
    .await;
    let began = Instant::now();
    let told = join_all(clients.iter_mut().map(|client| async {
        let code = client.closed().await;
        (code, began.elapsed())
    }));
    let (told, ()) = tokio::join!(told, server.stop());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(told.iter().all(|(code, _)| *code == 1012), "{told:?}");
    let times: Vec<_> = told.iter().map(|(_, at)| *at).collect();
    let spread = times.iter().max().unwrap().abs_diff(*times.iter().min().unwrap());
    assert!(spread > Duration::from_millis(200), "all at once: {spread:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b108_a_client_that_does_not_read_is_closed_and_costs_the_others_nothing() {
    let sockets = SocketConfig { send_timeout: Duration::from_millis(500), ..SocketConfig::default() };
    let server = Server::start(with_sockets(sockets)).await;
    let mut slow = Client::admin(&server).await;
    let mut healthy = Client::admin(&server).await;
    for client in [&mut slow, &mut healthy] {
        client.join("room:1", json!({})).await;
    }
    let large = "x".repeat(50_000);
    let mut sent = 0;
    while server.stat("ws_closed_slow_total") == 0 {
        send(&server, &format!("[{sent},\"{large}\"]")).await;
        assert_eq!(healthy.hear().await.unwrap()[4][0], sent);
        sent += 1;
        assert!(sent < 100_000);
    }
    eventually(LONG, "it is gone", async || server.stat("ws_clients") == 1).await;
    let mut one = Client::admin(&server).await;
    one.join("room:1", json!({})).await;
    send(&server, "\"still here\"").await;
    assert_eq!(one.hear().await.unwrap()[4], "still here");
}

#[tokio::test]
async fn b110_a_message_beyond_the_limit_is_cut_short() {
    let limit = 2000;
    let server = Server::start(with_limits(Limits { message_bytes: limit, ..Limits::default() })).await;
    let heartbeat = |size: usize| {
        let empty = json!([null, "1", "phoenix", "heartbeat", {"pad": ""}]).to_string().len();
        json!([null, "1", "phoenix", "heartbeat", {"pad": "x".repeat(size - empty)}])
    };
    let mut exact = Client::admin(&server).await;
    exact.say(heartbeat(limit)).await;
    assert_eq!(exact.hear().await.unwrap()[4]["status"], "ok");
    let mut more = Client::admin(&server).await;
    more.say(heartbeat(limit + 1)).await;
    assert_eq!(more.closed().await, 1009);

    // Header, then as much as it takes. Masked with zeros, so that it is what it looks like.
    let mut fragments = vec![0x01, 0xfe, 0x01, 0xf4, 0, 0, 0, 0];
    fragments.extend([b'x'; 500]);
    let endless: Vec<u8> =
        std::iter::repeat_n([&[0x00, 0xfe, 0x01, 0xf4, 0, 0, 0, 0][..], &[b'x'; 500]].concat(), 20)
            .flatten()
            .collect();
    fragments.extend(endless);
    let lying = [&[0x81, 0xff][..], &(1_u64 << 62).to_be_bytes(), &[0; 4], b"x"].concat();
    let huge = [&[0x81, 0xff][..], &60_000_000_u64.to_be_bytes(), &[0; 4], &vec![b'x'; 60_000]].concat();
    // Before anybody is known, too.
    let unknown = Server::start(GatewayConfig {
        sockets: SocketConfig {
            limits: Limits { message_bytes: limit, ..Limits::default() },
            ..SocketConfig::default()
        },
        ..with_tokens()
    })
    .await;
    for bytes in [fragments, lying, huge] {
        for mut client in [Client::admin(&server).await, Client::open(&unknown, SOCKET).await] {
            client.raw().write_all(&bytes).await.unwrap();
            assert_eq!(client.closed().await, 1009, "{:?}", &bytes[..8]);
        }
    }
}

#[tokio::test]
async fn b111_a_silent_client_is_pinged_and_given_up_if_it_does_not_answer() {
    let limits = Limits {
        ping_after: Duration::from_millis(100),
        idle: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = Server::start(with_limits(limits)).await;
    let mut dead = Client::admin(&server).await;
    let mut alive = Client::admin(&server).await;
    dead.join("room:1", json!({"presence": {"key": "dead"}})).await;
    assert_eq!(dead.push("room:1", "presence", json!({"event": "track", "payload": {}})).await.0, "ok");
    let given_up = async {
        // As a client whose packets are lost: what arrives is read by nobody who would answer.
        let mut frames = Vec::new();
        timeout(LONG, dead.raw().read_to_end(&mut frames)).await.expect("it is kept for ever").unwrap();
        assert!(frames.contains(&0x89), "no ping");
        assert!(frames.windows(2).any(|pair| pair == 4408_u16.to_be_bytes()), "no reason");
        let room = channel("room:1");
        eventually(LONG, "its presence ends", async || server.presence.list(&room).is_empty()).await;
        assert_eq!(server.stat("ws_clients"), 1);
    };
    tokio::select! {
        () = given_up => {}
        // Reading answers pings.
        heard = alive.hear() => panic!("a client that answers was given up: {heard:?}"),
    }
}

#[tokio::test]
async fn b114_a_foreign_page_opens_no_socket() {
    let server = Server::start(GatewayConfig {
        origins: Origins::parse("https://good.example").unwrap(),
        ..with_tokens()
    })
    .await;
    let path = format!("{SOCKET}&token={}", token(&json!({"*": ["subscribe"]})));
    for (origin, opened) in [
        ("", true),
        ("origin: https://good.example\r\n", true),
        ("origin: http://node.example:4000\r\n", true),
        ("origin: null\r\n", false),
        ("origin: https://good.example.evil.com\r\n", false),
        ("origin: https://good.example.\r\n", false),
        ("origin: http://good.example\r\n", false),
        ("origin: http://node.example:4001\r\n", false),
        ("origin: https://good.example\r\norigin: https://evil.com\r\n", false),
        ("origin: https://evil.com\r\nx-forwarded-host: evil.com\r\n", false),
    ] {
        let answer = Client::try_open(&server, &path, &format!("host: node.example:4000\r\n{origin}")).await;
        match answer {
            Ok(_) => assert!(opened, "{origin}"),
            Err(answer) => assert!(!opened && answer.starts_with("HTTP/1.1 403"), "{origin}: {answer}"),
        }
    }
}

#[tokio::test]
async fn b116_those_who_come_all_at_once_are_let_in_at_a_rate() {
    let opening = Rate { per_second: 1, burst: 5 };
    let server = Server::start(with_sockets(SocketConfig { opening, ..SocketConfig::default() })).await;
    let header = format!("authorization: Bearer {TOKEN}\r\n");
    let all = join_all((0..20).map(|_| Client::try_open(&server, SOCKET, &header))).await;
    let refused: Vec<_> = all.iter().filter_map(|opened| opened.as_ref().err()).collect();
    assert!((13..=15).contains(&refused.len()), "{}", refused.len());
    for answer in refused {
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    }
}

#[tokio::test]
async fn b123_a_socket_does_not_outlive_its_token() {
    let server = Server::start(with_tokens()).await;
    let rights = json!({"room:1": ["subscribe", "publish"]});
    let mut ends = with_token(&server, &expiring(&rights, 1.0)).await.unwrap();
    let mut refreshed = with_token(&server, &expiring(&rights, 1.0)).await.unwrap();
    for client in [&mut ends, &mut refreshed] {
        client.join("room:1", json!({})).await;
    }
    let (status, _) =
        refreshed.push("room:1", "access_token", json!({"access_token": expiring(&rights, 600.0)})).await;
    assert_eq!(status, "ok");
    assert_eq!(
        refreshed.push("phoenix", "access_token", json!({"access_token": token(&rights)})).await.0,
        "ok"
    );
    let last = ends.hear().await.unwrap();
    assert_eq!((&last[3], &last[4]["reason"]), (&json!("phx_error"), &json!("expired")));
    assert_eq!(ends.hear().await.unwrap_err().0, 4401);
    send(&server, "1").await;
    assert_eq!(refreshed.hear().await.unwrap()[4], 1);
}

#[tokio::test]
async fn b124_a_token_that_is_worth_nothing_is_told_apart_before_the_socket_opens() {
    let server = Server::start(with_tokens()).await;
    let rights = json!({"room:1": ["subscribe"]});
    for (token, reason) in [
        (expiring(&rights, -1.0), "expired"),
        (expiring(&rights, -3600.0), "expired"),
        (format!("{}x", token(&rights)), "invalid"),
        (token(&json!({"room:1": ["read"]})), "invalid"),
    ] {
        let answer = with_token(&server, &token).await.err().unwrap();
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert!(answer.contains(&format!("\"reason\":\"{reason}\"")), "{answer}");
        // On an open socket it is the channel that is refused.
        let mut client = Client::open(&server, SOCKET).await;
        let (status, response) = client.push("room:1", "phx_join", json!({"access_token": token})).await;
        assert_eq!((status.as_str(), &response["reason"]), ("error", &json!(reason)));
    }
    let mut forbidden = with_token(&server, &token(&rights)).await.unwrap();
    assert_eq!(forbidden.push("room:2", "phx_join", json!({})).await.1["reason"], "forbidden");
    forbidden.join("room:1", json!({})).await;
    assert_eq!(forbidden.push("room:1", "typing", json!({})).await.1["reason"], "forbidden");
}

#[tokio::test]
async fn a_socket_without_a_token_is_closed_after_a_while() {
    let limits = Limits { unauthenticated: Duration::from_millis(100), ..Limits::default() };
    let server = Server::start(GatewayConfig {
        sockets: SocketConfig { limits, ..SocketConfig::default() },
        ..with_tokens()
    })
    .await;
    let mut nobody = Client::open(&server, SOCKET).await;
    assert_eq!(nobody.push("room:1", "phx_join", json!({})).await.1["reason"], "missing");
    assert_eq!(nobody.closed().await, 4403);
}

#[tokio::test]
async fn b126_the_leeway_is_the_same_as_over_http() {
    let server = Server::start(with_leeway(Duration::from_secs(30))).await;
    let rights = json!({"room:1": ["subscribe"]});
    for (age, accepted) in [(-1.0, true), (-25.0, true), (-31.0, false), (-61.0, false)] {
        assert_eq!(with_token(&server, &expiring(&rights, age)).await.is_ok(), accepted, "{age}");
    }
}

#[tokio::test]
async fn b128_a_token_may_come_as_a_sub_protocol_which_is_not_repeated() {
    let server = Server::start(with_tokens()).await;
    let token = token(&json!({"room:1": ["subscribe"]}));
    // As `btoa` of a browser has it, without padding.
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD_NO_PAD, &token);
    let offer = format!("sec-websocket-protocol: phoenix, base64url.bearer.phx.{encoded}\r\n");
    let mut client = Client::try_open(&server, SOCKET, &offer).await.unwrap();
    client.join("room:1", json!({})).await;
    let other = offer.replace(&encoded, "bm90IGEgdG9rZW4");
    for (offer, status) in [
        ("sec-websocket-protocol: graphql-ws\r\n".to_owned(), "400"),
        ("sec-websocket-protocol: phoenix, base64url.bearer.phx.!!!\r\n".to_owned(), "400"),
        (other, "401"),
    ] {
        let answer = Client::try_open(&server, SOCKET, &offer).await.err().unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(!answer.contains(&encoded), "{answer}");
    }
    // An empty one is none, and leaves the say to others.
    let none = "sec-websocket-protocol: phoenix, base64url.bearer.phx.\r\n";
    let mut client = Client::try_open(&server, &format!("{SOCKET}&token={token}"), none).await.unwrap();
    client.join("room:1", json!({})).await;
}

#[tokio::test]
async fn the_admin_token_opens_a_socket_from_anywhere_but_a_url() {
    let server = Server::start(with_tokens()).await;
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD_NO_PAD, TOKEN);
    for header in [
        format!("authorization: Bearer {TOKEN}\r\n"),
        format!("apikey: {TOKEN}\r\n"),
        format!("sec-websocket-protocol: phoenix, base64url.bearer.phx.{encoded}\r\n"),
    ] {
        let mut client = Client::try_open(&server, SOCKET, &header).await.unwrap();
        client.join("room:1", json!({})).await;
    }
    let mut client = Client::try_open(&server, SOCKET, "").await.unwrap();
    client.join("room:1", json!({"access_token": TOKEN})).await;
    let refused = Client::try_open(&server, &format!("{SOCKET}&token={TOKEN}"), "").await.err().unwrap();
    assert!(refused.starts_with("HTTP/1.1 401") && refused.contains("send it in a header"), "{refused}");
}

#[tokio::test]
async fn b130_another_spelling_of_a_channel_is_another_channel() {
    let server = Server::start(with_tokens()).await;
    let all = ["subscribe", "publish", "durable", "presence"];
    let token = token(&json!({"room:1": all, "$switchboard*": all}));
    for (path, prefix) in [("/socket/websocket", ""), ("/realtime/v1/websocket", "realtime:")] {
        let mut client = Client::open(&server, &format!("{path}?vsn=2.0.0&apikey={token}")).await;
        for spelling in [
            "room:1 ",
            " room:1",
            "ROOM:1",
            "Room:1",
            "room%3A1",
            "room:1\0",
            "room:１",
            "room:*",
            "*",
            "room:1,room:2",
            "channel:room:2",
            "ephemeral:room:2",
            "realtime:room:1",
            "room:1\u{200b}",
            "room:2",
            "$switchboard:presence",
            "$switchboard",
            "",
        ] {
            let (status, response) = client.push(&format!("{prefix}{spelling}"), "phx_join", json!({})).await;
            let reason = response["reason"].as_str().unwrap_or_default();
            assert!(
                status == "error" && matches!(reason, "forbidden" | "bad_topic"),
                "{spelling:?}: {response}"
            );
        }
        client.join(&format!("{prefix}room:1"), json!({})).await;
    }
}

#[tokio::test]
async fn sockets_and_streams_leave_room_for_requests() {
    let server = Server::start(GatewayConfig { connections: 20, ..config() }).await;
    let mut open = Vec::new();
    for _ in 0..18 {
        open.push(Client::admin(&server).await);
    }
    let header = format!("authorization: Bearer {TOKEN}\r\n");
    let answer = Client::try_open(&server, SOCKET, &header).await.err().unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(server.get("/readyz").await.0, 200);
    open.pop();
    eventually(LONG, "there is room again", async || {
        Client::try_open(&server, SOCKET, &header).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn what_is_no_handshake_is_answered_as_http() {
    let server = Server::start(config()).await;
    let (status, problem) = server.get("/socket/websocket?vsn=2.0.0").await;
    assert_eq!(status, 426, "{problem}");
    let header = format!("authorization: Bearer {TOKEN}\r\n");
    let answer = Client::try_open(&server, "/socket/websocket?vsn=3.0.0", &header).await.err().unwrap();
    assert!(answer.starts_with("HTTP/1.1 422") && answer.contains("1.0.0 or 2.0.0"), "{answer}");
}
