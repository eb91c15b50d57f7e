//! A cluster of link tables, a network that delays, loses and cuts, a registry that nodes read late. Thousands of seeds.
//!
//! What is checked: while anything goes wrong, no table does what its host could not carry out; once nothing goes wrong any more, every
//! pair has exactly one connection, which both ends use, and it stays.

mod world;

use std::time::Duration;

use rand::RngExt;
use rand::seq::IndexedRandom;

use super::{Action, Input};
use world::World;

fn seeds(default: u64) -> std::ops::Range<u64> {
    0..std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn b097_nodes_that_start_together_have_one_link_per_pair_within_two_seconds_and_keep_it() {
    for seed in seeds(2_000) {
        let mut world = World::new(seed, 5);
        world.registry_changed();
        world.run(Duration::from_secs(2));
        assert_eq!(world.flaw(), None, "seed {seed}");
        let uses = world.uses;
        world.run(Duration::from_mins(1));
        assert_eq!(world.flaw(), None, "seed {seed}");
        assert_eq!(world.uses, uses, "seed {seed}: links change although nothing happens");
    }
}

#[test]
fn b097_whatever_went_wrong_one_link_per_pair_remains() {
    for seed in seeds(3_000) {
        let size = 2 + usize::try_from(seed % 4).unwrap();
        let mut world = World::new(seed, size);
        // Slow enough, too, for answers that come when nobody trusts in them any more.
        world.latency = Duration::from_millis([5, 40, 300, 1200][usize::try_from(seed / 4 % 4).unwrap()]);
        world.registry_changed();
        for _ in 0..world.random.random_range(1..12) {
            let hosts: Vec<_> = (0..size).collect();
            let (a, b) =
                (*hosts.choose(&mut world.random).unwrap(), *hosts.choose(&mut world.random).unwrap());
            match world.random.random_range(0..5) {
                0 if a != b => world.cut(a, b),
                1 => world.restart(a),
                2 => world.cut.clear(),
                3 => world.lose_any_end(),
                _ => {}
            }
            let span = Duration::from_millis(world.random.random_range(0..4_000));
            world.run(span);
        }
        world.cut.clear();
        world.run(Duration::from_secs(12));
        assert_eq!(world.flaw(), None, "seed {seed}");
        let uses = world.uses;
        world.run(Duration::from_secs(30));
        assert_eq!((world.flaw(), world.uses), (None, uses), "seed {seed}");
    }
}

#[test]
fn b088_a_dead_endpoint_is_dialled_less_and_less_and_not_at_all_once_its_row_is_gone() {
    let mut world = World::new(1, 2);
    world.registry_changed();
    world.cut(0, 1);
    world.run(Duration::from_mins(30));
    // Each end: at most one attempt per limit and half the longest pause.
    assert!(world.connections.len() < 2 * 30 * 60 / 5 + 40, "{} dials", world.connections.len());
    let dialled = world.connections.len();
    let now = world.now;
    for host in 0..2 {
        for action in world.hosts[host].table.step(now, Input::Members(Vec::new())) {
            assert!(matches!(action, Action::Abandon { .. }), "{action:?}");
        }
        assert_eq!(world.hosts[host].table.wake_at(), None);
    }
    assert_eq!(world.connections.len(), dialled);
}
