//! Rights over the life of a socket.

use std::time::Duration;

use switchboard_core::access::AuthError;
use switchboard_protocol::Dialect;
use switchboard_protocol::codec::Version;
use switchboard_protocol::session::Limits;

use super::conversation::{Conversation, grant};

fn with_grant(rights: &str) -> Conversation {
    Conversation::with(Dialect::Phoenix, Version::V2, Limits::default(), |now| Ok(grant(rights, now)))
}

fn without_token(dialect: Dialect) -> Conversation {
    Conversation::with(dialect, Version::V2, Limits::default(), |_| Err(AuthError::Missing))
}

const JOINED: &str = r#"
    > ["1","1","room:1","phx_join",{}]
    ! subscribe room:1 now
    = subscribed
    < ["1","1","room:1","phx_reply",{"status":"ok","response":{}}]
"#;

#[test]
fn every_right_is_needed_by_itself() {
    with_grant("room:*=subscribe").play(&format!(
        r#"{JOINED}
        > ["1","2","room:1","typing",{{}}]
        < ["1","2","room:1","phx_reply",{{"status":"error","response":{{"reason":"forbidden","message":"this needs the right `publish` in this channel"}}}}]
        > ["1","3","room:1","publish",{{"event":"x","durable":true}}]
        < ["1","3","room:1","phx_reply",{{"status":"error","response":{{"reason":"forbidden","message":"this needs the right `durable` in this channel"}}}}]
        > ["1","4","room:1","presence",{{"event":"track"}}]
        < ["1","4","room:1","phx_reply",{{"status":"error","response":{{"reason":"forbidden","message":"this needs the right `presence` in this channel"}}}}]
        > ["5","5","hall","phx_join",{{}}]
        < ["5","5","hall","phx_reply",{{"status":"error","response":{{"reason":"forbidden","message":"this needs the right `subscribe` in this channel"}}}}]
    "#
    ));
}

#[test]
fn a_token_in_the_join_counts_for_that_channel_alone() {
    without_token(Dialect::Supabase).play(r#"
        > ["1","1","realtime:room","phx_join",{"config":{},"access_token":"secret"}]
        ! authorize secret
        = granted room=subscribe,publish
        ! subscribe room now
        = subscribed
        < ["1","1","realtime:room","phx_reply",{"status":"ok","response":{}}]
        < ["1",null,"realtime:room","system",{"channel":"room","extension":"system","status":"ok","message":"Subscribed"}]
        > ["2","2","realtime:hall","phx_join",{"config":{}}]
        < ["2","2","realtime:hall","phx_reply",{"status":"error","response":{"reason":"missing","message":"a token is needed"}}]
        > ["3","3","realtime:hall","phx_join",{"config":{},"access_token":"other"}]
        ! authorize other
        = granted room=subscribe
        < ["3","3","realtime:hall","phx_reply",{"status":"error","response":{"reason":"forbidden","message":"this needs the right `subscribe` in this channel"}}]
    "#);
}

#[test]
fn a_refresh_that_takes_rights_away_ends_what_needs_them() {
    with_grant("*=subscribe,presence").play(&format!(
        r#"{JOINED}
        > ["1","2","room:1","presence",{{"event":"track"}}]
        ! track 1 room:1 socket-1 {{}}
        = tracked
        < ["1","2","room:1","phx_reply",{{"status":"ok","response":{{}}}}]
        > ["3","3","hall","phx_join",{{}}]
        ! subscribe hall now
        = subscribed
        < ["3","3","hall","phx_reply",{{"status":"ok","response":{{}}}}]
        > ["1","4","room:1","access_token",{{"access_token":"fresh"}}]
        ! authorize fresh
        = granted room:1=subscribe
        < ["1","4","room:1","phx_reply",{{"status":"ok","response":{{}}}}]
        ! untrack 1
        ! unsubscribe 2 cut
        < ["3","3","hall","phx_error",{{"reason":"forbidden","message":"this needs the right `subscribe` in this channel"}}]
    "#
    ));
}

#[test]
fn a_refresh_that_is_not_accepted_changes_nothing() {
    with_grant("*=subscribe,publish until 30s").play(&format!(
        r#"{JOINED}
        > ["1","2","room:1","access_token",{{"access_token":"forged"}}]
        ! authorize forged
        = denied
        < ["1","2","room:1","phx_reply",{{"status":"error","response":{{"reason":"invalid","message":"the token is not valid: no"}}}}]
        > ["1","3","room:1","access_token",{{"access_token":null}}]
        < ["1","3","room:1","phx_reply",{{"status":"error","response":{{"reason":"missing","message":"a token is needed"}}}}]
        > ["1","4","room:1","access_token",{{"access_token":"over by now"}}]
        ! authorize over by now
        = granted *=subscribe,publish until 0s
        < ["1","4","room:1","phx_reply",{{"status":"error","response":{{"reason":"expired","message":"the token has expired"}}}}]
        > ["1","5","room:1","typing",{{}}]
        ! publish room:1 typing {{}}
        @ 30s
        ! unsubscribe 1 cut
        < ["1","1","room:1","phx_error",{{"reason":"expired","message":"the token has expired"}}]
        ! close 4401 token expired
    "#
    ));
}

#[test]
fn b123_at_expiry_every_channel_is_told_before_the_socket_closes_and_nothing_is_delivered_after() {
    let mut conversation = with_grant("*=subscribe until 20s");
    conversation.play(&format!(
        r#"{JOINED}
        > ["2","2","hall","phx_join",{{}}]
        ! subscribe hall now
        = subscribed
        < ["2","2","hall","phx_reply",{{"status":"ok","response":{{}}}}]
    "#
    ));
    assert_eq!(conversation.timeout_in(), Some(Duration::from_secs(20)));
    conversation.play(
        r#"
        @ 19.9s
        = event hall typing {}
        < [null,null,"hall","typing",{}]
        @ 0.1s
        ! unsubscribe 1 cut
        < ["1","1","room:1","phx_error",{"reason":"expired","message":"the token has expired"}]
        ! unsubscribe 2 cut
        < ["2","2","hall","phx_error",{"reason":"expired","message":"the token has expired"}]
        ! close 4401 token expired
        = event hall typing {}
        > ["2","3","hall","typing",{}]
    "#,
    );
    assert_eq!(conversation.timeout_in(), None);
}

#[test]
fn b123_an_event_that_comes_before_the_late_timer_does_not_slip_through() {
    // The process was stopped across the expiry, or the wall clock was put forward: no timer has run.
    for jump in ["sleep 31s", "wall 31s"] {
        let mut conversation = with_grant("*=subscribe until 30s");
        conversation.play(JOINED);
        conversation.jump(jump);
        conversation.play(
            r#"
            = event room:1 typing {}
            ! unsubscribe 1 cut
            < ["1","1","room:1","phx_error",{"reason":"expired","message":"the token has expired"}]
            ! close 4401 token expired
        "#,
        );
    }
}

#[test]
fn a_token_that_knows_a_presence_key_lets_nobody_be_seen_under_another() {
    let mut conversation = with_grant("*=subscribe,presence as alice");
    conversation.play(
        r#"
        > ["1","1","a","phx_join",{"presence":{"key":"bob"}}]
        ! subscribe a now presence
        = subscribed
        < ["1","1","a","phx_reply",{"status":"ok","response":{}}]
        > ["1","2","a","presence",{"event":"track","payload":{}}]
        < ["1","2","a","phx_reply",{"status":"error","response":{"reason":"forbidden","message":"the token lets its holder be seen under the key alice alone"}}]
        > ["2","3","b","phx_join",{}]
        ! subscribe b now
        = subscribed
        < ["2","3","b","phx_reply",{"status":"ok","response":{}}]
        > ["2","4","b","presence",{"event":"track","payload":{}}]
        ! track 2 b alice {}
        = tracked
        < ["2","4","b","phx_reply",{"status":"ok","response":{}}]
        > [null,"5","phoenix","access_token",{"access_token":"of carol"}]
        ! authorize of carol
        = granted *=subscribe,presence as carol
        < [null,"5","phoenix","phx_reply",{"status":"ok","response":{}}]
        ! untrack 2
    "#,
    );
}

#[test]
fn b123_a_refresh_in_band_keeps_the_socket_and_its_events() {
    with_grant("*=subscribe until 20s").play(&format!(
        r#"{JOINED}
        @ 19s
        > ["1","2","room:1","access_token",{{"access_token":"fresh"}}]
        ! authorize fresh
        = event room:1 typing {{"n":1}}
        < [null,null,"room:1","typing",{{"n":1}}]
        = granted *=subscribe until 50s
        < ["1","2","room:1","phx_reply",{{"status":"ok","response":{{}}}}]
        @ 10s
        = event room:1 typing {{"n":2}}
        < [null,null,"room:1","typing",{{"n":2}}]
        > [null,"3","phoenix","access_token",{{"access_token":"fresher"}}]
        ! authorize fresher
        = granted *=subscribe until 80s
        < [null,"3","phoenix","phx_reply",{{"status":"ok","response":{{}}}}]
        @ 40s
        ! ping
        = pong
        @ 11s
        ! unsubscribe 1 cut
        < ["1","1","room:1","phx_error",{{"reason":"expired","message":"the token has expired"}}]
        ! close 4401 token expired
    "#
    ));
}

#[test]
fn b123_a_channel_whose_own_token_expires_ends_alone_while_others_live() {
    without_token(Dialect::Phoenix).play(
        r#"
        > ["1","1","room:1","phx_join",{"access_token":"short"}]
        ! authorize short
        = granted room:1=subscribe until 10s
        ! subscribe room:1 now
        = subscribed
        < ["1","1","room:1","phx_reply",{"status":"ok","response":{}}]
        > ["2","2","room:2","phx_join",{"access_token":"long"}]
        ! authorize long
        = granted room:2=subscribe until 20s
        ! subscribe room:2 now
        = subscribed
        < ["2","2","room:2","phx_reply",{"status":"ok","response":{}}]
        @ 10s
        ! unsubscribe 1 cut
        < ["1","1","room:1","phx_error",{"reason":"expired","message":"the token has expired"}]
        @ 10s
        ! unsubscribe 2 cut
        < ["2","2","room:2","phx_error",{"reason":"expired","message":"the token has expired"}]
        ! close 4401 token expired
    "#,
    );
}

#[test]
fn b123_a_join_whose_own_token_is_being_checked_does_not_end_with_the_sockets() {
    with_grant("*=subscribe until 10s").play(
        r#"
        > ["1","1","room:1","phx_join",{"access_token":"fresh"}]
        ! authorize fresh
        @ 10s
        = granted room:1=subscribe
        ! subscribe room:1 now
    "#,
    );
}

#[test]
fn b124_expired_invalid_and_forbidden_are_told_apart_and_the_socket_stays_for_a_fresh_token() {
    without_token(Dialect::Phoenix).play(r#"
        > ["1","1","room:1","phx_join",{"access_token":"old"}]
        ! authorize old
        = expired
        < ["1","1","room:1","phx_reply",{"status":"error","response":{"reason":"expired","message":"the token has expired"}}]
        > ["2","2","room:1","phx_join",{"access_token":"over by now"}]
        ! authorize over by now
        = granted room:1=subscribe until 0s
        < ["2","2","room:1","phx_reply",{"status":"error","response":{"reason":"expired","message":"the token has expired"}}]
        > ["3","3","room:1","phx_join",{"access_token":"forged"}]
        ! authorize forged
        = denied
        < ["3","3","room:1","phx_reply",{"status":"error","response":{"reason":"invalid","message":"the token is not valid: no"}}]
        > ["4","4","room:1","phx_join",{"access_token":"other"}]
        ! authorize other
        = granted room:2=subscribe
        < ["4","4","room:1","phx_reply",{"status":"error","response":{"reason":"forbidden","message":"this needs the right `subscribe` in this channel"}}]
        > ["5","5","room:1","phx_join",{"access_token":"fresh"}]
        ! authorize fresh
        = granted room:1=subscribe
        ! subscribe room:1 now
    "#);
}

#[test]
fn b124_a_socket_that_was_opened_with_an_expired_token_learns_why_it_may_not_join() {
    let expired = |_| Err(AuthError::Expired);
    Conversation::with(Dialect::Phoenix, Version::V2, Limits::default(), expired).play(r#"
        > ["1","1","room:1","phx_join",{}]
        < ["1","1","room:1","phx_reply",{"status":"error","response":{"reason":"expired","message":"the token has expired"}}]
        @ 9s
        @ 1s
        ! close 4403 no valid token was sent in time
    "#);
}

#[test]
fn tokens_show_themselves_to_nobody() {
    let mut conversation = without_token(Dialect::Phoenix);
    let shown = conversation.debug_of_actions(r#"["1","1","room:1","phx_join",{"access_token":"s3cret"}]"#);
    assert!(shown.contains("Authorize") && !shown.contains("s3cret"), "{shown}");
}
