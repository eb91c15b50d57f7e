//! What replicas do, story by story.

use super::super::entry::{PresenceError, PresenceLimits};
use super::super::replica::DIGEST_INTERVAL;
use super::super::wire::{Message, Say};
use super::world::{GRACE, World, meta, ms, room, user};
use crate::types::{Identity, NodeId, Payload};

#[test]
fn what_one_tracks_all_show_and_what_it_untracks_nobody() {
    let mut world = World::of(3);
    let reference = world.track(0, &room(0), &user(1), 1);
    world.track(1, &room(0), &user(1), 2);
    world.run(ms(60));
    assert_eq!(world.nodes[&2].told[&room(0)][&user(1)].len(), 2, "one key with two metas");
    world.assert_agreement(&room(0));
    world.untrack(0, reference);
    world.run(ms(60));
    world.assert_agreement(&room(0));
}

#[test]
fn an_update_is_one_diff_that_names_what_peers_were_told_last() {
    let mut world = World::of(2);
    let first = world.track(0, &room(0), &user(1), 0);
    world.run(ms(60));
    // Three updates in one window leave as one.
    let last = (1..=3).fold(first, |reference, n| world.update(0, reference, n));
    world.run(ms(60));
    world.assert_agreement(&room(0));
    for process in world.nodes.values() {
        let known = &process.told[&room(0)][&user(1)];
        assert_eq!((known[0].reference, known[0].previous), (last, Some(first)));
    }
}

#[test]
fn what_came_and_went_before_anybody_was_told_is_not_told() {
    let mut world = World::of(2);
    world.run(DIGEST_INTERVAL);
    let before = world.track(0, &room(0), &user(1), 0);
    world.run(ms(1));
    let reference = world.track(0, &room(0), &user(2), 0);
    let reference = world.update(0, reference, 1);
    world.untrack(0, reference);
    world.untrack(0, before);
    world.run(ms(60));
    world.assert_agreement(&room(0));
    assert_eq!(world.nodes[&1].replica.entries(), 0);
}

#[test]
fn one_lost_diff_is_found_with_the_next() {
    let mut world = World::of(2);
    world.run(DIGEST_INTERVAL);
    world.partition(&[0], &[1]);
    world.track(0, &room(0), &user(1), 1);
    world.run(ms(60));
    world.blocked.clear();
    world.track(0, &room(0), &user(2), 1);
    world.run(ms(250));
    world.assert_agreement(&room(0));
}

#[test]
fn the_last_diff_if_lost_is_found_with_the_next_digest() {
    let mut world = World::of(2);
    world.partition(&[0], &[1]);
    world.track(0, &room(0), &user(1), 1);
    world.run(ms(60));
    world.blocked.clear();
    world.run(DIGEST_INTERVAL + ms(250));
    world.assert_agreement(&room(0));
}

#[test]
fn ten_who_ask_at_once_cost_one_answer() {
    let mut world = World::of(11);
    world.run(DIGEST_INTERVAL);
    let answers = world.nodes[&0].replica.counts.answers.clone();
    let before = answers.get();
    let others: Vec<_> = (1..11).collect();
    world.partition(&[0], &others);
    world.track(0, &room(0), &user(1), 1);
    world.run(ms(60));
    world.blocked.clear();
    world.track(0, &room(0), &user(2), 1);
    world.run(ms(500));
    world.assert_agreement(&room(0));
    assert_eq!(answers.get() - before, 1);
}

#[test]
fn a_cluster_that_is_in_step_sends_nothing_but_digests() {
    let mut world = World::of(10);
    for slot in 0..10 {
        world.track(slot, &room(0), &user(slot), 1);
    }
    world.run(ms(2_000));
    let before = world.sent.0;
    world.run(DIGEST_INTERVAL * 10);
    assert_eq!(world.sent.0 - before, 100);
}

#[test]
fn thirty_nodes_that_start_together_and_track_nobody_ask_once_and_are_silent() {
    let mut world = World::new(1);
    world.latency = 500;
    (0..30).for_each(|slot| world.start(slot));
    world.run(ms(5_000));
    // One ask each, and the answers are shared.
    assert!(world.sent.0 < 30 * 4, "{}", world.sent.0);
    let before = world.sent.0;
    world.run(DIGEST_INTERVAL * 10);
    assert_eq!(world.sent.0, before);
    // Nor does one who comes later make the others ask.
    world.start(30);
    world.run(ms(5_000));
    world.track(30, &room(0), &user(1), 1);
    world.run(ms(600));
    world.assert_agreement(&room(0));
    assert!(world.sent.0 - before < 40, "{}", world.sent.0 - before);
}

#[test]
fn a_newcomer_settles_when_it_knows_what_its_peers_have_or_when_they_are_silent() {
    let mut world = World::of(3);
    for slot in 0..3 {
        world.track(slot, &room(0), &user(slot), 1);
    }
    world.latency = 100;
    world.run(ms(200));
    world.start(3);
    assert!(!world.nodes[&3].replica.has_settled());
    while !world.nodes[&3].replica.has_settled() {
        world.run(ms(1));
    }
    assert_eq!(world.nodes[&3].replica.rooms.len(&room(0)), 3);
    // One that is dead is waited for, though not for long.
    world.kill(0);
    world.start(4);
    world.run(ms(550));
    assert!(!world.nodes[&4].replica.has_settled());
    world.run(ms(60));
    assert!(world.nodes[&4].replica.has_settled());
    assert_eq!(world.nodes[&4].replica.rooms.len(&room(0)), 2);
}

#[test]
fn a_stranger_is_not_shown_until_it_is_a_member() {
    let mut world = World::of(2);
    // Registered, and not yet seen.
    world.latency = 0;
    world.start(2);
    let stranger = world.members.remove(&2).unwrap();
    world.run(ms(10));
    world.track(2, &room(0), &user(1), 1);
    world.run(DIGEST_INTERVAL);
    assert_eq!(world.nodes[&0].replica.rooms.len(&room(0)), 0);
    world.members.insert(2, stranger);
    world.rejoin(2);
    world.run(ms(250));
    world.assert_agreement(&room(0));
    assert_eq!(world.nodes[&0].replica.rooms.len(&room(0)), 1);
}

#[test]
fn users_of_a_swept_node_are_gone_at_once_and_those_of_one_that_left_after_the_grace() {
    let mut world = World::of(3);
    world.track(0, &room(0), &user(0), 1);
    world.track(1, &room(0), &user(1), 1);
    world.run(ms(100));
    world.kill(0);
    world.sweep(0);
    world.run(ms(60));
    world.assert_agreement(&room(0));
    world.leave(1);
    world.run(GRACE / 2);
    assert!(world.nodes[&2].told[&room(0)].contains_key(&user(1)));
    world.run(GRACE / 2 + ms(100));
    world.assert_agreement(&room(0));
}

#[test]
fn a_node_that_joins_again_keeps_its_users_and_tells_nobody_anything() {
    let mut world = World::of(3);
    for n in 0..5 {
        world.track(0, &room(0), &user(n % 2), 1);
        world.track(1, &room(0), &user(2 + n), 1);
    }
    world.run(ms(100));
    let diffs = |world: &World| -> Vec<_> {
        world.nodes.values().map(|process| process.replica.counts.diffs.get()).collect()
    };
    let before = diffs(&world);
    world.rejoin(0);
    world.run(GRACE * 2);
    world.assert_agreement(&room(0));
    assert_eq!(diffs(&world), before);
}

#[test]
fn what_a_zombie_says_is_not_shown() {
    let mut world = World::of(2);
    let zombie = world.members[&0].clone();
    world.sweep(0);
    world.run(ms(100));
    world.track(0, &room(0), &user(1), 1);
    world.run(DIGEST_INTERVAL * 2);
    assert_eq!(world.nodes[&1].replica.rooms.len(&room(0)), 0);
    assert_eq!(world.nodes[&0].identity, zombie);
}

#[test]
fn garbage_is_counted_and_changes_nothing() {
    let mut world = World::of(2);
    world.track(0, &room(0), &user(1), 1);
    world.run(ms(60));
    let (now, from) = (world.now, world.members[&0].clone());
    let replica = &mut world.nodes.get_mut(&1).unwrap().replica;
    let identity = serde_json::to_string(&from).unwrap();
    let bad = [
        "1".to_owned(),
        "{}".to_owned(),
        format!("{{\"from\":{identity},\"say\":\"shout\"}}"),
        format!("{{\"from\":{identity},\"say\":{{\"diff\":{{\"version\":-1}}}}}}"),
        format!("{{\"from\":{identity},\"say\":{{\"diff\":{{\"version\":9,\"gone\":[\"x\"]}}}}}}"),
        format!(
            "{{\"from\":{identity},\"say\":{{\"state\":{{\"version\":9,\"part\":0,\"parts\":1,\"entries\":{{\"\":[]}}}}}}}}"
        ),
    ];
    for text in &bad {
        replica.receive(&Payload::parse(text).unwrap(), now);
    }
    assert_eq!(replica.counts.garbage.get(), bad.len() as u64);
    // Parts that no state begins with, and a state of no parts.
    for say in [
        "{\"state\":{\"version\":9,\"part\":1,\"parts\":4294967295,\"entries\":{}}}",
        "{\"digest\":{\"version\":0,\"hash\":0}}",
    ] {
        replica.receive(&Payload::parse(&format!("{{\"from\":{identity},\"say\":{say}}}")).unwrap(), now);
    }
    let stranger = Identity::fresh(NodeId::parse("stranger").unwrap());
    replica.receive(&Message { from: stranger, say: Say::Bye }.encode().unwrap(), now);
    world.run(ms(250));
    world.assert_agreement(&room(0));
}

#[test]
fn limits_are_kept_and_named() {
    let mut world = World::of(1);
    let replica = &mut world.nodes.get_mut(&0).unwrap().replica;
    replica.limits = PresenceLimits { metas_per_channel: 2, meta_bytes: 7 };
    let first = replica.track(&room(0), &user(1), meta(1)).unwrap();
    replica.track(&room(0), &user(1), meta(1)).unwrap();
    let full = replica.track(&room(0), &user(2), meta(1)).unwrap_err();
    assert_eq!(full.to_string(), "channel room:0 is full: at most 2 presences");
    replica.track(&room(1), &user(2), meta(1)).unwrap();
    assert!(matches!(replica.track(&room(1), &user(2), meta(10)), Err(PresenceError::Rejected(_))));
    // An update takes no room, and one that is refused leaves what was there.
    let second = replica.update(first, meta(2)).unwrap();
    assert!(replica.update(second, meta(10)).is_err());
    assert_eq!(
        replica.rooms.list(&room(0))[&user(1)].iter().filter(|known| known.payload == meta(2)).count(),
        1
    );
}
