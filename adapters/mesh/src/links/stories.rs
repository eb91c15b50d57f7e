//! Single turns of the table, told one by one.

use std::time::{Duration, Instant};

use switchboard_core::types::{Endpoint, Identity, Incarnation, NodeId};

use super::{Action, CloseReason, Input, LinkId, LinkTable, Rank, Rules, Target};
use crate::key::Fingerprint;

fn identity(name: &str) -> Identity {
    Identity { node_id: NodeId::parse(name).unwrap(), incarnation: Incarnation::from_bits(1) }
}

fn target(name: &str) -> Target {
    let endpoint = Endpoint::parse(&format!("{name}:1")).unwrap();
    Target { identity: identity(name), endpoint, key: Fingerprint([0; 32]) }
}

/// The table of `me`, which knows `peer`, and its first dial, made by `now`.
fn table(me: &str, peer: &str, now: Instant) -> (LinkTable, LinkId, Rank) {
    let mut table = LinkTable::new(identity(me).node_id, Rules::default(), 0);
    let known = if me < peer { now } else { now.checked_sub(Duration::from_secs(1)).unwrap() };
    let mut actions = table.step(known, Input::Members(vec![target(peer)]));
    actions.extend(table.step(now, Input::Tick));
    let [Action::Dial { link, rank, .. }] = actions[..] else { panic!("{actions:?}") };
    (table, link, rank)
}

fn offer(table: &mut LinkTable, now: Instant, from: &str, rank: Rank) -> (LinkId, Vec<Action>) {
    let link = table.next_id();
    (link, table.step(now, Input::Offered { link, from: identity(from), rank }))
}

fn uses(link: LinkId, peer: &str, rank: Rank) -> Action {
    Action::Use { link, peer: identity(peer), era: rank.era() }
}

#[test]
fn b097_a_link_that_only_one_end_still_holds_does_not_keep_the_new_one_out() {
    let now = Instant::now();
    for (holder, loser) in [("a", "b"), ("b", "a")] {
        for dialler in [holder, loser] {
            let (mut holding, mut losing) = (table(holder, loser, now), table(loser, holder, now));
            let (held, lost, rank) = if dialler == holder {
                let (lost, _) = {
                    // Its own dial is overtaken.
                    let own = losing.1;
                    losing.0.step(now, Input::DialFailed { link: own, duplicate: true });
                    offer(&mut losing.0, now, holder, holding.2)
                };
                holding.0.step(now, Input::Answered { link: holding.1 });
                (holding.1, lost, holding.2)
            } else {
                holding.0.step(now, Input::DialFailed { link: holding.1, duplicate: true });
                let (held, _) = offer(&mut holding.0, now, loser, losing.2);
                losing.0.step(now, Input::Answered { link: losing.1 });
                (held, losing.1, losing.2)
            };
            let mut actions = losing.0.step(now, Input::Closed { link: lost, left: false });
            actions.extend(losing.0.step(now + Duration::from_secs(1), Input::Tick));
            let [Action::Dial { rank: again, .. }] = actions[..] else { panic!("{actions:?}") };
            assert!(again > rank);
            let (link, actions) = offer(&mut holding.0, now + Duration::from_secs(1), loser, again);
            let replaced = Action::Close { link: held, reason: CloseReason::Duplicate };
            assert_eq!(
                actions,
                [uses(link, loser, again), replaced],
                "{holder} holds what {dialler} dialled"
            );
        }
    }
}

/// Each has taken the other's dial when its own is answered.
#[test]
fn b097_of_two_connections_that_were_both_taken_the_same_one_survives_on_both_sides() {
    let start = Instant::now();
    let ((mut a, a_dial, a_rank), (mut b, b_dial, b_rank)) = (table("a", "b", start), table("b", "a", start));
    let late = start + Rules::default().trust * 2;
    let (b_at_a, actions) = offer(&mut a, late, "b", b_rank);
    assert_eq!(actions, [uses(b_at_a, "b", b_rank)], "nobody waits for an answer for ever");
    let (a_at_b, actions) = offer(&mut b, late, "a", a_rank);
    assert_eq!(actions, [Action::Abandon { link: b_dial }, uses(a_at_b, "a", a_rank)]);
    let actions = a.step(late, Input::Answered { link: a_dial });
    let replaced = Action::Close { link: b_at_a, reason: CloseReason::Duplicate };
    assert_eq!(actions, [uses(a_dial, "b", a_rank), replaced]);
}

#[test]
fn b097_the_lesser_node_ids_dial_goes_first_while_its_answer_is_awaited() {
    let now = Instant::now();
    let (mut a, _, a_rank) = table("a", "b", now);
    let (mut b, b_dial, b_rank) = table("b", "a", now);
    let (link, actions) = offer(&mut a, now, "b", b_rank);
    assert_eq!(actions, [Action::Close { link, reason: CloseReason::Duplicate }]);
    let (link, actions) = offer(&mut b, now, "a", a_rank);
    assert_eq!(actions, [Action::Abandon { link: b_dial }, uses(link, "a", a_rank)]);
    // A straggler of lower rank, and an answer that comes too late.
    let (straggler, actions) = offer(&mut b, now, "a", Rank { generation: 0, ..a_rank });
    assert_eq!(actions, [Action::Close { link: straggler, reason: CloseReason::Duplicate }]);
    assert_eq!(b.step(now, Input::Answered { link: b_dial }), []);
}

#[test]
fn a_better_connection_ends_the_dial_that_it_overtakes() {
    let now = Instant::now();
    let (mut b, b_dial, b_rank) = table("b", "a", now);
    // Known to `a` to be the second generation: it has lost one that `b` never had.
    let better = Rank { generation: b_rank.generation + 1, by_lesser: true, attempt: 1 };
    let (link, actions) = offer(&mut b, now, "a", better);
    assert_eq!(actions, [Action::Abandon { link: b_dial }, uses(link, "a", better)]);
}

#[test]
fn who_is_not_listed_is_refused_whoever_it_says_it_is() {
    let now = Instant::now();
    let (mut a, _, rank) = table("a", "b", now);
    let (link, actions) = offer(&mut a, now, "c", rank);
    assert_eq!(actions, [Action::Close { link, reason: CloseReason::NotAMember }]);
    let link = a.next_id();
    let successor = Identity { incarnation: Incarnation::from_bits(2), ..identity("b") };
    let actions = a.step(now, Input::Offered { link, from: successor, rank });
    assert_eq!(actions, [Action::Close { link, reason: CloseReason::NotAMember }]);
}

#[test]
fn late_news_of_an_earlier_incarnations_connections_says_nothing_about_this_ones() {
    let now = Instant::now();
    let (mut a, before, _) = table("a", "b", now);
    a.reset();
    let dialled = a.step(now, Input::Members(vec![target("b")]));
    let [Action::Dial { link, .. }] = dialled[..] else { panic!("{dialled:?}") };
    assert_ne!(link, before);
    for late in [Input::Answered { link: before }, Input::Closed { link: before, left: true }] {
        assert_eq!(a.step(now, late), []);
    }
    assert!(matches!(a.step(now, Input::Answered { link })[..], [Action::Use { .. }]));
}

#[test]
fn who_has_said_good_bye_is_not_dialled_again() {
    let now = Instant::now();
    let (mut a, link, _) = table("a", "b", now);
    a.step(now, Input::Answered { link });
    assert_eq!(a.step(now, Input::Closed { link, left: true }), []);
    assert_eq!((a.wake_at(), a.unlinked().count()), (None, 0));
    assert_eq!(a.step(now, Input::Members(vec![target("b")])), []);
}

#[test]
fn b089_peers_that_do_not_answer_keep_no_live_one_waiting() {
    let now = Instant::now();
    let rules = Rules { dials: 2, ..Rules::default() };
    let mut table = LinkTable::new(NodeId::parse("a").unwrap(), rules, 0);
    let targets = (0..10).map(|n| target(&format!("n{n}")));
    let mut dialled = std::collections::HashSet::new();
    let mut actions = table.step(now, Input::Members(targets.collect()));
    for round in 0..5 {
        let links: Vec<_> = std::mem::take(&mut actions)
            .into_iter()
            .map(|action| match action {
                Action::Dial { link, target, .. } => {
                    assert!(dialled.insert(target.identity), "dialled again before all were dialled once");
                    link
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(links.len(), 2, "round {round}");
        for link in links {
            actions.extend(table.step(
                now + Duration::from_secs(3) * (round + 1),
                Input::DialFailed { link, duplicate: false },
            ));
        }
    }
    assert_eq!(dialled.len(), 10);
}

#[test]
fn b019_a_new_incarnation_is_dialled_at_once_and_the_old_one_never_again() {
    let now = Instant::now();
    let mut table = LinkTable::new(NodeId::parse("a").unwrap(), Rules::default(), 0);
    let peer = |incarnation, port: u16| Target {
        identity: Identity { incarnation: Incarnation::from_bits(incarnation), ..identity("n1") },
        endpoint: Endpoint::parse(&format!("n1:{port}")).unwrap(),
        key: Fingerprint([u8::try_from(incarnation).unwrap(); 32]),
    };
    let dialled = table.step(now, Input::Members(vec![peer(1, 1)]));
    let [Action::Dial { link, .. }] = dialled[..] else { panic!("{dialled:?}") };
    table.step(now, Input::Answered { link });
    let actions = table.step(now, Input::Members(vec![peer(2, 2)]));
    let [Action::Close { link: closed, reason: CloseReason::NotAMember }, Action::Dial { target, .. }] =
        &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!((*closed, target), (link, &peer(2, 2)));
    assert!(table.step(now + Duration::from_mins(1), Input::Closed { link, left: false }).is_empty());
}
