//! Whole conversations as npm `phoenix` 1.8 leads them.

use switchboard_protocol::Dialect;
use switchboard_protocol::codec::Version;

use super::conversation::Conversation;

fn v2(script: &str) {
    Conversation::new(Dialect::Phoenix, Version::V2).play(script);
}

fn v1(script: &str) {
    Conversation::new(Dialect::Phoenix, Version::V1).play(script);
}

#[test]
fn a_client_joins_pushes_beats_and_leaves() {
    v2(r#"
        > ["3","3","room:1","phx_join",{}]
        ! subscribe room:1 now
        = subscribed
        < ["3","3","room:1","phx_reply",{"status":"ok","response":{}}]
        > ["3","4","room:1","typing",{"n":9007199254740993, "n":1}]
        ! publish room:1 typing {"n":9007199254740993, "n":1}
        = queued
        < ["3","4","room:1","phx_reply",{"status":"ok","response":{}}]
        = own room:1 typing {"n":1}
        = event room:1 typing {"n":1.50}
        < [null,null,"room:1","typing",{"n":1.50}]
        > [null,"5","phoenix","heartbeat",{}]
        < [null,"5","phoenix","phx_reply",{"status":"ok","response":{}}]
        > ["3","6","room:1","phx_leave",{}]
        ! unsubscribe 1 left
        < ["3","6","room:1","phx_reply",{"status":"ok","response":{}}]
        < ["3","3","room:1","phx_close",{}]
        = event room:1 typing {"n":2}
    "#);
}

#[test]
fn version_1_says_the_same_in_objects() {
    v1(r#"
        > {"topic":"room:1","event":"phx_join","payload":{},"ref":"3","join_ref":"3"}
        ! subscribe room:1 now
        = subscribed
        < {"topic":"room:1","event":"phx_reply","payload":{"status":"ok","response":{}},"ref":"3","join_ref":"3"}
        > {"topic":"room:1","event":"typing","payload":[1],"ref":"4","join_ref":"3"}
        ! publish room:1 typing [1]
        = queued
        < {"topic":"room:1","event":"phx_reply","payload":{"status":"ok","response":{}},"ref":"4","join_ref":"3"}
        = durable 0000000000000001-7 room:1 message "hi"
        < {"topic":"room:1","event":"message","payload":"hi","ref":"0000000000000001-7","join_ref":null}
        > {"topic":"phoenix","event":"heartbeat","payload":{},"ref":"5"}
        < {"topic":"phoenix","event":"phx_reply","payload":{"status":"ok","response":{}},"ref":"5","join_ref":null}
        > {"topic":"room:1","event":"phx_leave","payload":{},"ref":"6","join_ref":"3"}
        ! unsubscribe 1 left
        < {"topic":"room:1","event":"phx_reply","payload":{"status":"ok","response":{}},"ref":"6","join_ref":"3"}
        < {"topic":"room:1","event":"phx_close","payload":{},"ref":"3","join_ref":"3"}
    "#);
}

#[test]
fn a_client_without_join_refs_is_served_by_the_reference_of_its_join() {
    v1(r#"
        > {"topic":"room:1","event":"phx_join","payload":{},"ref":"1"}
        ! subscribe room:1 now
        = subscribed
        < {"topic":"room:1","event":"phx_reply","payload":{"status":"ok","response":{}},"ref":"1","join_ref":"1"}
        > {"topic":"room:1","event":"typing","payload":{},"ref":"2"}
        ! publish room:1 typing {}
    "#);
}

#[test]
fn the_sender_hears_itself_if_it_asked_to() {
    v2(r#"
        > ["1","1","room:1","phx_join",{"self":true}]
        ! subscribe room:1 now echo
        = subscribed
        < ["1","1","room:1","phx_reply",{"status":"ok","response":{}}]
        = own room:1 typing {}
        < [null,null,"room:1","typing",{}]
    "#);
}

#[test]
fn a_binary_push_reaches_those_who_take_binary_frames_as_it_was_sent() {
    let join = r#"
        > ["1","1","a","phx_join",{}]
        ! subscribe a now
        = subscribed
        < ["1","1","a","phx_reply",{"status":"ok","response":{}}]
    "#;
    v2(&format!(
        r#"{join}
        >b \x00\x01\x01\x01\x0212aup\x00\xff
        ! publish a up {{"$switchboard:base64":"AP8="}}
        = queued
        < ["1","2","a","phx_reply",{{"status":"ok","response":{{}}}}]
        = event a up {{"$switchboard:base64":"AP8="}}
        <b \x02\x01\x02aup\x00\xff
        = durable 0000000000000001-7 a up {{"$switchboard:base64":"AP8="}}
        < [null,"0000000000000001-7","a","up",{{"$switchboard:base64":"AP8="}}]
    "#
    ));
    v1(r#"
        > {"topic":"a","event":"phx_join","payload":{},"ref":"1","join_ref":"1"}
        ! subscribe a now
        = event a up {"$switchboard:base64":"AP8="}
        < {"topic":"a","event":"up","payload":{"$switchboard:base64":"AP8="},"ref":null,"join_ref":null}
    "#);
}

#[test]
fn a_durable_event_is_stored_and_its_position_is_the_reference_of_what_arrives() {
    v2(r#"
        > ["1","1","room:1","phx_join",{"after":"0000000000000001-6"}]
        ! subscribe room:1 after 0000000000000001-6
        = subscribed
        < ["1","1","room:1","phx_reply",{"status":"ok","response":{}}]
        = replayed 0000000000000001-7 room:1 message {"a": 1}
        < [null,"0000000000000001-7","room:1","message",{"a": 1}]
        > ["1","2","room:1","publish",{"event":"message","payload":{"b": 2},"durable":true,"key":"k"}]
        ! store room:1 message {"b": 2} key k
        = stored 0000000000000001-8
        < ["1","2","room:1","phx_reply",{"status":"ok","response":{"position":"0000000000000001-8"}}]
        > ["1","3","room:1","publish",{"event":"message","durable":true}]
        ! store room:1 message {}
        = unpublishable
        < ["1","3","room:1","phx_reply",{"status":"error","response":{"reason":"unavailable","message":"not now"}}]
        > ["1","4","room:1","publish",{"event":"publish","payload":1}]
        ! publish room:1 publish 1
        > ["1","5","room:1","publish",{"event":"x","key":"k"}]
        < ["1","5","room:1","phx_reply",{"status":"error","response":{"reason":"bad_payload","message":"only a durable event can have a key"}}]
    "#);
}

#[test]
fn lost_history_and_lost_events_are_told_apart() {
    v2(r#"
        > ["1","1","room:1","phx_join",{"after":"oldest"}]
        ! subscribe room:1 oldest
        = subscribed
        < ["1","1","room:1","phx_reply",{"status":"ok","response":{}}]
        = pruned 0000000000000001-7
        < ["1",null,"room:1","switchboard:pruned",{"oldest":"0000000000000001-7"}]
        = reset 0000000000000002-3
        < ["1",null,"room:1","switchboard:reset",{"head":"0000000000000002-3"}]
        = lagged 5
        < ["1",null,"room:1","switchboard:lagged",{"missed":5}]
        = ended
        ! unsubscribe 1 cut
        < ["1","1","room:1","phx_error",{"reason":"unavailable","message":"not now"}]
    "#);
}

#[test]
fn who_is_present_is_told_in_the_words_of_phoenix() {
    v2(r#"
        > ["1","1","room:1","phx_join",{"presence":{"key":"alice"}}]
        ! subscribe room:1 now presence
        = subscribed
        < ["1","1","room:1","phx_reply",{"status":"ok","response":{}}]
        = present bob/r1//{"at": 1}
        < ["1",null,"room:1","presence_state",{"bob":{"metas":[{"at": 1,"phx_ref":"r1"}]}}]
        > ["1","2","room:1","presence",{"type":"presence","event":"track","payload":{"at": 2}}]
        ! track 1 room:1 alice {"at": 2}
        = tracked
        < ["1","2","room:1","phx_reply",{"status":"ok","response":{}}]
        = came room:1 alice/r2//{"at": 2}
        < [null,null,"room:1","presence_diff",{"joins":{"alice":{"metas":[{"at": 2,"phx_ref":"r2"}]}},"leaves":{}}]
        > ["1","3","room:1","presence",{"event":"untrack"}]
        ! untrack 1
        < ["1","3","room:1","phx_reply",{"status":"ok","response":{}}]
        > ["1","4","room:1","presence",{"event":"untrack"}]
        < ["1","4","room:1","phx_reply",{"status":"ok","response":{}}]
        > ["1","5","room:1","presence",{"event":"track","payload":[]}]
        < ["1","5","room:1","phx_reply",{"status":"error","response":{"reason":"bad_payload","message":"what is tracked must be an object"}}]
    "#);
}

#[test]
fn a_second_join_closes_the_first_and_what_belongs_to_the_first_is_ignored() {
    v2(r#"
        > ["1","1","room:1","phx_join",{}]
        ! subscribe room:1 now
        = subscribed
        < ["1","1","room:1","phx_reply",{"status":"ok","response":{}}]
        > ["2","2","room:1","phx_join",{}]
        ! unsubscribe 1 cut
        < ["1","1","room:1","phx_close",{}]
        ! subscribe room:1 now
        = subscribed
        < ["2","2","room:1","phx_reply",{"status":"ok","response":{}}]
        > ["1","3","room:1","typing",{}]
        > ["1","4","room:1","phx_leave",{}]
        > ["2","5","room:1","typing",{}]
        ! publish room:1 typing {}
    "#);
}

#[test]
fn what_is_not_joined_is_an_unmatched_topic_and_can_be_left() {
    let unmatched =
        r#"{"status":"error","response":{"reason":"unmatched topic","message":"the topic is not joined"}}"#;
    v2(&format!(
        r#"
        > ["1","2","room:1","typing",{{}}]
        < ["1","2","room:1","phx_reply",{unmatched}]
        > [null,"3","phoenix","hello",{{}}]
        < [null,"3","phoenix","phx_reply",{unmatched}]
        > ["1","4","room:1","phx_leave",{{}}]
        < ["1","4","room:1","phx_reply",{{"status":"ok","response":{{}}}}]
        > ["1","5","room:1","phx_join",{{}}]
        ! subscribe room:1 now
        > ["1","6","room:1","typing",{{}}]
        > ["1","7","room:1","phx_leave",{{}}]
        ! unsubscribe 1 left
        < ["1","7","room:1","phx_reply",{{"status":"ok","response":{{}}}}]
        < ["1","1","room:1","phx_close",{{}}]
        = subscribed
    "#
    ));
}

#[test]
fn what_is_said_before_the_join_is_answered_is_done_after_it_in_order() {
    v2(r#"
        > ["1","1","room:1","phx_join",{}]
        ! subscribe room:1 now
        > ["1","2","room:1","typing",{"n":1}]
        > ["0","3","room:1","typing",{"of":"an older join"}]
        > ["1","4","room:1","presence",{"event":"track","payload":{"a":1}}]
        >b \x00\x01\x01\x06\x0416room:1move\xff
        > [null,"5","phoenix","heartbeat",{}]
        < [null,"5","phoenix","phx_reply",{"status":"ok","response":{}}]
        = subscribed
        < ["1","1","room:1","phx_reply",{"status":"ok","response":{}}]
        ! publish room:1 typing {"n":1}
        ! track 1 room:1 socket-1 {"a":1}
        ! publish room:1 move {"$switchboard:base64":"/w=="}
    "#);
}

#[test]
fn what_was_said_before_a_join_fails_is_refused_after_it() {
    v2(r#"
        > ["1","1","room:1","phx_join",{}]
        ! subscribe room:1 now
        > ["1","2","room:1","typing",{}]
        = unsubscribable
        < ["1","1","room:1","phx_reply",{"status":"error","response":{"reason":"unavailable","message":"not now"}}]
        < ["1","2","room:1","phx_reply",{"status":"error","response":{"reason":"unmatched topic","message":"the topic is not joined"}}]
    "#);
}

#[test]
fn the_socket_s_own_topic_is_no_channel() {
    v2(r#"
        > ["1","1","phoenix","phx_join",{}]
        < ["1","1","phoenix","phx_reply",{"status":"error","response":{"reason":"bad_topic","message":"phoenix is the topic of the socket itself; its channel cannot be joined"}}]
    "#);
}

#[test]
fn a_join_that_cannot_be_served_is_an_error_and_can_be_repeated() {
    v2(r#"
        > ["1","1","room:1","phx_join",{}]
        ! subscribe room:1 now
        = unsubscribable
        < ["1","1","room:1","phx_reply",{"status":"error","response":{"reason":"unavailable","message":"not now"}}]
        > ["2","2","room:1","phx_join",{"after":7}]
        < ["2","2","room:1","phx_reply",{"status":"error","response":{"reason":"bad_payload","message":"the payload does not fit: invalid type: integer `7`, expected a string at line 1 column 10"}}]
        > ["3","3","room:1","phx_join",{}]
        ! subscribe room:1 now
    "#);
}

#[test]
fn words_of_the_server_cannot_be_forged() {
    v2(r#"
        > ["1","1","room:1","phx_join",{}]
        ! subscribe room:1 now
        = subscribed
        < ["1","1","room:1","phx_reply",{"status":"ok","response":{}}]
        > ["1","2","room:1","phx_close",{}]
        < ["1","2","room:1","phx_reply",{"status":"error","response":{"reason":"reserved_event","message":"clients must not publish under phx_close"}}]
        > ["1","3","room:1","publish",{"event":"presence_state"}]
        < ["1","3","room:1","phx_reply",{"status":"error","response":{"reason":"reserved_event","message":"clients must not publish under presence_state"}}]
        = event room:1 phx_error {}
        < [null,null,"room:1","switchboard:phx_error",{}]
    "#);
}
