//! What one client may ask for.

use std::time::Duration;

use switchboard_core::access::{AuthError, Grant};
use switchboard_protocol::Dialect;
use switchboard_protocol::codec::Version;
use switchboard_protocol::session::{Limits, Rate};

use super::conversation::Conversation;

fn limited(limits: Limits) -> Conversation {
    Conversation::with(Dialect::Phoenix, Version::V2, limits, |_| Ok(Grant::everything()))
}

#[test]
fn channels_are_counted_and_room_is_made_by_leaving() {
    limited(Limits { channels: 1, ..Limits::default() }).play(r#"
        > ["1","1","a","phx_join",{}]
        ! subscribe a now
        > ["2","2","b","phx_join",{}]
        < ["2","2","b","phx_reply",{"status":"error","response":{"reason":"too_many_channels","message":"a connection must not join more than 1 channels"}}]
        > ["3","3","a","phx_join",{}]
        ! unsubscribe 1 cut
        < ["1","1","a","phx_close",{}]
        ! subscribe a now
        > ["3","4","a","phx_leave",{}]
        ! unsubscribe 2 left
        < ["3","4","a","phx_reply",{"status":"ok","response":{}}]
        < ["3","3","a","phx_close",{}]
        > ["5","5","b","phx_join",{}]
        ! subscribe b now
    "#);
}

#[test]
fn joins_are_refused_with_a_hint_when_to_try_again() {
    limited(Limits { joins: Rate { per_second: 10, burst: 1 }, ..Limits::default() }).play(r#"
        > ["1","1","a","phx_join",{}]
        ! subscribe a now
        > ["2","2","b","phx_join",{}]
        < ["2","2","b","phx_reply",{"status":"error","response":{"reason":"too_many_joins","message":"too many joins in too short a time","retry_after_ms":100}}]
        @ 0.2s
        > ["3","3","b","phx_join",{}]
        ! subscribe b now
    "#);
}

#[test]
fn messages_are_refused_at_first_and_a_flood_ends_the_socket() {
    let mut conversation =
        limited(Limits { messages: Rate { per_second: 1, burst: 2 }, ..Limits::default() });
    conversation.play(r#"
        > [null,"1","phoenix","heartbeat",{}]
        < [null,"1","phoenix","phx_reply",{"status":"ok","response":{}}]
        > [null,"2","phoenix","heartbeat",{}]
        < [null,"2","phoenix","phx_reply",{"status":"ok","response":{}}]
        > [null,"3","phoenix","heartbeat",{}]
        < [null,"3","phoenix","phx_reply",{"status":"error","response":{"reason":"too_many_messages","message":"too many messages in too short a time","retry_after_ms":1000}}]
        @ 2s
        > [null,"4","phoenix","heartbeat",{}]
        < [null,"4","phoenix","phx_reply",{"status":"ok","response":{}}]
        > [null,null,"phoenix","heartbeat",{}]
        > [null,null,"phoenix","heartbeat",{}]
        ! close 4429 too many messages
        > [null,"5","phoenix","heartbeat",{}]
    "#);
}

#[test]
fn requests_wait_for_answers_in_bounded_number() {
    limited(Limits { pending: 1, ..Limits::default() }).play(r#"
        > ["1","1","a","phx_join",{}]
        ! subscribe a now
        = subscribed
        < ["1","1","a","phx_reply",{"status":"ok","response":{}}]
        > ["1","2","a","typing",{}]
        ! publish a typing {}
        > ["1","3","a","typing",{}]
        < ["1","3","a","phx_reply",{"status":"error","response":{"reason":"busy","message":"1 requests are waiting for their answers"}}]
        = queued
        < ["1","2","a","phx_reply",{"status":"ok","response":{}}]
        > ["1","4","a","typing",{}]
        ! publish a typing {}
    "#);
}

#[test]
fn what_is_held_until_a_join_is_answered_is_bounded_in_number_and_size() {
    limited(Limits { pending: 1, ..Limits::default() }).play(
        r#"
        > ["1","1","a","phx_join",{}]
        ! subscribe a now
        > ["1","2","a","typing",{"n":1}]
        > ["1","3","a","typing",{"n":2}]
        < ["1","3","a","phx_reply",{"status":"error","response":{"reason":"busy","message":"the join is not finished; wait for its reply"}}]
        = subscribed
        < ["1","1","a","phx_reply",{"status":"ok","response":{}}]
        ! publish a typing {"n":1}
    "#,
    );
    limited(Limits { message_bytes: 64, ..Limits::default() }).play(
        r#"
        > ["1","1","a","phx_join",{}]
        ! subscribe a now
        > ["1","2","b","phx_join",{}]
        ! subscribe b now
        > ["1","3","a","typing",{"n":"0123456789"}]
        > ["1","4","b","typing",{"n":"0123456789"}]
        < ["1","4","b","phx_reply",{"status":"error","response":{"reason":"busy","message":"the join is not finished; wait for its reply"}}]
    "#,
    );
}

#[test]
fn a_silent_client_is_pinged_and_then_given_up() {
    let mut conversation = limited(Limits::default());
    assert_eq!(conversation.timeout_in(), Some(Duration::from_secs(40)));
    conversation.play(
        r"
        @ 40s
        ! ping
    ",
    );
    assert_eq!(conversation.timeout_in(), Some(Duration::from_secs(20)));
    conversation.play(
        r"
        = pong
        @ 39s
        @ 1s
        ! ping
        @ 19s
        @ 1s
        ! close 4408 nothing was heard for too long
    ",
    );
}

#[test]
fn a_client_that_sends_heartbeats_is_not_pinged() {
    limited(Limits::default()).play(
        r#"
        @ 30s
        > [null,"1","phoenix","heartbeat",{}]
        < [null,"1","phoenix","phx_reply",{"status":"ok","response":{}}]
        @ 30s
        > [null,"2","phoenix","heartbeat",{}]
        < [null,"2","phoenix","phx_reply",{"status":"ok","response":{}}]
        @ 30s
    "#,
    );
}

#[test]
fn a_node_that_slept_asks_before_it_gives_anybody_up() {
    limited(Limits::default()).play(
        r"
        @ 3600s
        ! ping
        @ 20s
        ! close 4408 nothing was heard for too long
    ",
    );
}

#[test]
fn a_socket_without_a_token_has_a_short_life_that_an_accepted_token_prolongs() {
    let missing = |_| Err(AuthError::Missing);
    let mut conversation = Conversation::with(Dialect::Phoenix, Version::V2, Limits::default(), missing);
    assert_eq!(conversation.timeout_in(), Some(Duration::from_secs(10)));
    conversation.play(
        r#"
        @ 9s
        > ["1","1","a","phx_join",{"access_token":"t"}]
        ! authorize t
        = granted a=subscribe
        ! subscribe a now
        @ 20s
        > ["1","2","a","phx_leave",{}]
        ! unsubscribe 1 left
        < ["1","2","a","phx_reply",{"status":"ok","response":{}}]
        < ["1","1","a","phx_close",{}]
        @ 10s
        ! close 4403 no valid token was sent in time
    "#,
    );
}
