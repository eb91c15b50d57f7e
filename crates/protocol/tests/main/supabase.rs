//! Whole conversations as npm `@supabase/realtime-js` 2.109 leads them.

use switchboard_protocol::Dialect;
use switchboard_protocol::codec::Version;

use super::conversation::Conversation;

fn v2(script: &str) {
    Conversation::new(Dialect::Supabase, Version::V2).play(script);
}

const JOINED: &str = r#"
    > ["1","1","realtime:room","phx_join",{"config":{"broadcast":{"ack":false,"self":false},"presence":{"key":"","enabled":false},"postgres_changes":[],"private":false}}]
    ! subscribe room now
    = subscribed
    < ["1","1","realtime:room","phx_reply",{"status":"ok","response":{}}]
    < ["1",null,"realtime:room","system",{"channel":"room","extension":"system","status":"ok","message":"Subscribed"}]
"#;

#[test]
fn a_channel_is_subscribed_sends_without_ack_and_receives() {
    v2(&format!(
        r#"{JOINED}
        >b \x03\x01\x01\x0d\x04\x00\x0112realtime:roommove{{"x": 1}}
        ! publish room move {{"x": 1}}
        = queued
        = own room move {{"x": 1}}
        = event room move {{"x": 2}}
        < [null,null,"realtime:room","broadcast",{{"type":"broadcast","event":"move","payload":{{"x": 2}}}}]
        > ["1","3","realtime:room","phx_leave",{{}}]
        ! unsubscribe 1 left
        < ["1","3","realtime:room","phx_reply",{{"status":"ok","response":{{}}}}]
        < ["1","1","realtime:room","phx_close",{{}}]
    "#
    ));
}

#[test]
fn an_array_buffer_arrives_as_one() {
    v2(&format!(
        r#"{JOINED}
        >b \x03\x01\x01\x0d\x02\x00\x0012realtime:roomup\x00\xff
        ! publish room up {{"$switchboard:base64":"AP8="}}
        = queued
        = event room up {{"$switchboard:base64":"AP8="}}
        <b \x04\r\x02\x00\x00realtime:roomup\x00\xff
        = replayed 0000000000000001-7 room up {{"$switchboard:base64":"AP8="}}
        <b \x04\r\x02K\x00realtime:roomup{{\"id\":\"0000000000000001-7\",\"position\":\"0000000000000001-7\",\"replayed\":true}}\x00\xff
    "#
    ));
}

#[test]
fn with_ack_and_self_the_sender_gets_a_reply_and_its_own_event() {
    v2(r#"
        > ["1","1","realtime:room","phx_join",{"config":{"broadcast":{"ack":true,"self":true},"presence":{"key":"","enabled":false},"postgres_changes":[],"private":true}}]
        ! subscribe room now echo
        = subscribed
        < ["1","1","realtime:room","phx_reply",{"status":"ok","response":{}}]
        < ["1",null,"realtime:room","system",{"channel":"room","extension":"system","status":"ok","message":"Subscribed"}]
        >b \x03\x01\x01\x0d\x04\x00\x0112realtime:roommove{}
        ! publish room move {}
        = queued
        < ["1","2","realtime:room","phx_reply",{"status":"ok","response":{}}]
        = own room move {}
        < [null,null,"realtime:room","broadcast",{"type":"broadcast","event":"move","payload":{}}]
    "#);
}

#[test]
fn a_failed_broadcast_is_an_error_even_without_ack() {
    v2(&format!(
        r#"{JOINED}
        >b \x03\x01\x01\x0d\x04\x00\x0112realtime:roommove{{}}
        ! publish room move {{}}
        = unpublishable
        < ["1","2","realtime:room","phx_reply",{{"status":"error","response":{{"reason":"unavailable","message":"not now"}}}}]
        >b \x03\x01\x01\x0d\x01\x00\x0113realtime:room\x07{{}}
        < ["1","3","realtime:room","phx_reply",{{"status":"error","response":{{"reason":"bad_payload","message":"event name \"\\u{{7}}\": must be 1 to 255 bytes of UTF-8 without control characters"}}}}]
    "#
    ));
}

#[test]
fn version_1_sends_and_receives_objects() {
    Conversation::new(Dialect::Supabase, Version::V1).play(r#"
        > {"topic":"realtime:room","event":"phx_join","payload":{"config":{"broadcast":{"ack":true},"presence":{"key":""},"postgres_changes":[]}},"ref":"1","join_ref":"1"}
        ! subscribe room now presence
        = subscribed
        < {"topic":"realtime:room","event":"phx_reply","payload":{"status":"ok","response":{}},"ref":"1","join_ref":"1"}
        < {"topic":"realtime:room","event":"system","payload":{"channel":"room","extension":"system","status":"ok","message":"Subscribed"},"ref":null,"join_ref":"1"}
        > {"topic":"realtime:room","event":"broadcast","payload":{"type":"broadcast","event":"move","payload":{"x":1}},"ref":"2","join_ref":"1"}
        ! publish room move {"x":1}
        = queued
        < {"topic":"realtime:room","event":"phx_reply","payload":{"status":"ok","response":{}},"ref":"2","join_ref":"1"}
        = event room move {"x":2}
        < {"topic":"realtime:room","event":"broadcast","payload":{"type":"broadcast","event":"move","payload":{"x":2}},"ref":null,"join_ref":null}
        = event room up {"$switchboard:base64":"AP8="}
        < {"topic":"realtime:room","event":"broadcast","payload":{"type":"broadcast","event":"up","payload":{"$switchboard:base64":"AP8="}},"ref":null,"join_ref":null}
    "#);
}

#[test]
fn replayed_messages_carry_meta() {
    v2(r#"
        > ["1","1","realtime:room","phx_join",{"config":{"broadcast":{"replay":{"since":1700000000123,"limit":25},"replication_ready":true},"presence":{"enabled":false},"postgres_changes":[],"private":true}}]
        ! subscribe room since 1700000000 limit 25
        = subscribed
        < ["1","1","realtime:room","phx_reply",{"status":"ok","response":{}}]
        < ["1",null,"realtime:room","system",{"channel":"room","extension":"system","status":"ok","message":"Replication connection established"}]
        = replayed 0000000000000001-7 room message {"a": 1}
        < [null,null,"realtime:room","broadcast",{"type":"broadcast","event":"message","payload":{"a": 1},"meta":{"id":"0000000000000001-7","position":"0000000000000001-7","replayed":true}}]
        = durable 0000000000000001-8 room message {"a": 2}
        < [null,null,"realtime:room","broadcast",{"type":"broadcast","event":"message","payload":{"a": 2},"meta":{"id":"0000000000000001-8","position":"0000000000000001-8","replayed":false}}]
        = pruned 0000000000000001-9
        < ["1",null,"realtime:room","system",{"channel":"room","extension":"switchboard","status":"error","reason":"pruned","message":"events before this position are gone: reload what they would have told","oldest":"0000000000000001-9"}]
        = lagged 3
        < ["1",null,"realtime:room","system",{"channel":"room","extension":"switchboard","status":"error","reason":"lagged","message":"the connection was too slow for so many ephemeral events","missed":3}]
    "#);
}

#[test]
fn a_durable_event_is_sent_as_type_publish_or_with_the_option_durable() {
    v2(&format!(
        r#"{JOINED}
        > ["1","2","realtime:room","publish",{{"type":"publish","event":"message","payload":{{"a": 1}},"durable":true,"key":"k"}}]
        ! store room message {{"a": 1}} key k
        = stored 0000000000000001-7
        < ["1","2","realtime:room","phx_reply",{{"status":"ok","response":{{"position":"0000000000000001-7"}}}}]
        >b \x03\x01\x01\x0d\x01\x10\x0113realtime:roomm{{"durable":true}}[1]
        ! store room m [1]
    "#
    ));
}

#[test]
fn presence_is_tracked_under_the_key_of_the_join_or_of_the_socket() {
    v2(r#"
        > ["1","1","realtime:room","phx_join",{"config":{"broadcast":{"ack":false,"self":false},"presence":{"key":"alice","enabled":true},"postgres_changes":[],"private":false}}]
        ! subscribe room now presence
        = subscribed
        < ["1","1","realtime:room","phx_reply",{"status":"ok","response":{}}]
        < ["1",null,"realtime:room","system",{"channel":"room","extension":"system","status":"ok","message":"Subscribed"}]
        = present
        < ["1",null,"realtime:room","presence_state",{}]
        > ["1","2","realtime:room","presence",{"type":"presence","event":"track","payload":{"user":1}}]
        ! track 1 room alice {"user":1}
        = tracked
        < ["1","2","realtime:room","phx_reply",{"status":"ok","response":{}}]
        = came room alice/r1//{"user":1}
        < [null,null,"realtime:room","presence_diff",{"joins":{"alice":{"metas":[{"user":1,"phx_ref":"r1"}]}},"leaves":{}}]
        > ["1","3","realtime:room","presence",{"type":"presence","event":"untrack"}]
        ! untrack 1
        < ["1","3","realtime:room","phx_reply",{"status":"ok","response":{}}]
        > ["2","4","realtime:hall","phx_join",{"config":{"presence":{"key":"","enabled":true}}}]
        ! subscribe hall now presence
        = subscribed
        < ["2","4","realtime:hall","phx_reply",{"status":"ok","response":{}}]
        < ["2",null,"realtime:hall","system",{"channel":"hall","extension":"system","status":"ok","message":"Subscribed"}]
        > ["2","5","realtime:hall","presence",{"type":"presence","event":"track"}]
        ! track 2 hall socket-1 {}
        = untrackable
        < ["2","5","realtime:hall","phx_reply",{"status":"error","response":{"reason":"unavailable","message":"not now"}}]
    "#);
}

#[test]
fn what_cannot_be_served_is_refused_and_never_ignored() {
    v2(r#"
        > ["1","1","realtime:room","phx_join",{"config":{"postgres_changes":[{"event":"*","schema":"public"}]}}]
        < ["1","1","realtime:room","phx_reply",{"status":"error","response":{"reason":"postgres_changes_unsupported","message":"changes of tables are not streamed here: let a trigger publish events instead"}}]
        > ["2","2","room","phx_join",{"config":{}}]
        < ["2","2","room","phx_reply",{"status":"error","response":{"reason":"bad_topic","message":"topic \"room\": must start with realtime:"}}]
        > ["3","3","realtime:","phx_join",{"config":{}}]
        < ["3","3","realtime:","phx_reply",{"status":"error","response":{"reason":"bad_topic","message":"channel \"\": must be 1 to 255 bytes of UTF-8 without control characters"}}]
    "#);
    v2(&format!(
        r#"{JOINED}
        > ["1","2","realtime:room","postgres_changes",{{"type":"postgres_changes","event":"x"}}]
        < ["1","2","realtime:room","phx_reply",{{"status":"error","response":{{"reason":"unknown_event","message":"there is no event postgres_changes; use broadcast, presence, publish or access_token"}}}}]
    "#
    ));
}

#[test]
fn names_that_the_client_writes_as_latin_1_are_understood() {
    v2(r#"
        > ["1","1","realtime:été","phx_join",{"config":{}}]
        ! subscribe été now
        = subscribed
        < ["1","1","realtime:été","phx_reply",{"status":"ok","response":{}}]
        < ["1",null,"realtime:été","system",{"channel":"été","extension":"system","status":"ok","message":"Subscribed"}]
        >b \x03\x01\x01\x0c\x04\x00\x0112realtime:\xe9t\xe9caf\xe9{}
        ! publish été café {}
    "#);
}
