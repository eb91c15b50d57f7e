//! The past: pages of it, what was pruned, what never was.

use switchboard_core::ports::{DurableItem, History, StartFrom};
use switchboard_core::types::{Epoch, Position};

use super::{Fixture, next, next_event, publish, publisher};
use crate::suites::channel;

/// Page after page, each after the last of the one before.
pub async fn history_pages_from_the_oldest_to_the_end<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let empty = fixture.bus(0).history(&room, None, 10).await.unwrap();
    assert_eq!(empty, History::Page(vec![]));
    for _ in 0..25 {
        publish(&fixture.bus(0), &room, "1").await;
    }
    let (mut after, mut seen) = (None, 0);
    loop {
        match fixture.bus(1).history(&room, after, 10).await.unwrap() {
            History::Page(events) if events.is_empty() => break,
            History::Page(events) => {
                assert!(events.len() <= 10);
                for event in &events {
                    seen += 1;
                    assert_eq!(event.position.seq, seen);
                }
                after = events.last().map(|event| event.position);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, 25);
}

/// Pages may be short, but never empty before the end and never longer than asked for.
pub async fn history_begins_after_any_position_and_keeps_to_the_limit<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let first = publish(&fixture.bus(0), &room, "1").await;
    for _ in 2..=5 {
        publish(&fixture.bus(0), &room, "1").await;
    }
    for after in 0..=5 {
        for limit in [1, 2, 100] {
            let from = Some(Position { seq: after, ..first });
            let History::Page(events) = fixture.bus(1).history(&room, from, limit).await.unwrap() else {
                panic!("no page after {after}")
            };
            assert!(events.len() <= limit, "{} events, not {limit}", events.len());
            assert_eq!(events.is_empty(), after == 5, "after {after} with limit {limit}");
            assert!(events.iter().zip(after + 1..).all(|(event, seq)| event.position.seq == seq));
        }
    }
}

/// Never silence: whoever comes back too late is told, and goes on with what is left.
pub async fn pruned_history_is_reported_with_the_oldest_that_remains<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let first = publish(&fixture.bus(0), &room, "1").await;
    for _ in 2..=10 {
        publish(&fixture.bus(0), &room, "1").await;
    }
    fixture.prune(&room, 4).await;
    let oldest = Position { seq: 7, ..first };
    assert_eq!(fixture.bus(1).history(&room, Some(first), 10).await.unwrap(), History::Pruned { oldest });
    let mut late = fixture.bus(1).subscribe(&room, StartFrom::After(first)).await.unwrap();
    assert_eq!(next(&mut late).await, DurableItem::Pruned { oldest });
    for seq in 7..=10 {
        assert_eq!(next_event(&mut late).await.position.seq, seq);
    }
    // Nothing is missing between 6 and 7.
    let mut just =
        fixture.bus(1).subscribe(&room, StartFrom::After(Position { seq: 6, ..first })).await.unwrap();
    assert_eq!(next_event(&mut just).await.position.seq, 7);

    fixture.prune(&room, 0).await;
    let mut all_gone = fixture.bus(1).subscribe(&room, StartFrom::After(first)).await.unwrap();
    assert!(matches!(next(&mut all_gone).await, DurableItem::Pruned { oldest } if oldest.seq == 11));
    assert_eq!(publish(&fixture.bus(0), &room, "1").await.seq, 11, "numbers began again");
    assert_eq!(next_event(&mut all_gone).await.position.seq, 11);
}

/// Who asks for what there is has missed nothing.
pub async fn oldest_begins_with_what_remains<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    for _ in 1..=10 {
        publish(&fixture.bus(0), &room, "1").await;
    }
    fixture.prune(&room, 4).await;
    let mut events = fixture.bus(1).subscribe(&room, StartFrom::Oldest).await.unwrap();
    for seq in 7..=10 {
        assert_eq!(next_event(&mut events).await.position.seq, seq);
    }
    let History::Page(page) = fixture.bus(1).history(&room, None, 1).await.unwrap() else {
        panic!("no page")
    };
    assert_eq!(page[0].position.seq, 7);
}

/// Who reads so slowly that its next event is pruned is told so, not served a gap.
pub async fn a_subscriber_that_pruning_overtakes_is_told<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut lazy = fixture.bus(1).subscribe(&room, StartFrom::Now).await.unwrap();
    let mut quick = fixture.bus(1).subscribe(&room, StartFrom::Now).await.unwrap();
    publisher(fixture.bus(0), room.clone(), 2_000).await.unwrap();
    for seq in 1..=2_000 {
        assert_eq!(next_event(&mut quick).await.position.seq, seq);
    }
    fixture.prune(&room, 10).await;
    // What the node still holds for it may come first; then, instead of a gap, the news.
    let mut expected = 1;
    loop {
        match next(&mut lazy).await {
            DurableItem::Event(event) if event.position.seq == expected => expected += 1,
            DurableItem::Pruned { oldest } => {
                assert_eq!(oldest.seq, 1_991);
                break;
            }
            other => panic!("{other:?} instead of {expected}"),
        }
    }
    for seq in 1_991..=2_000 {
        assert_eq!(next_event(&mut lazy).await.position.seq, seq);
    }
}

/// Beyond the head, of another epoch, before the first.
pub async fn positions_of_no_history_are_answered_with_a_reset<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let head = publish(&fixture.bus(0), &room, "1").await;
    let beyond = Position { seq: 99, ..head };
    let foreign = Position { epoch: Epoch::from_bits(!head.epoch.bits()), ..head };
    for wrong in [beyond, foreign, Position { seq: Position::MAX_SEQ, ..head }] {
        assert_eq!(fixture.bus(1).history(&room, Some(wrong), 10).await.unwrap(), History::Reset { head });
        let mut events = fixture.bus(1).subscribe(&room, StartFrom::After(wrong)).await.unwrap();
        assert_eq!(next(&mut events).await, DurableItem::Reset { head });
    }
    // A channel that was never written to knows no position but the one before the first.
    let unwritten = channel("unwritten");
    let reset = fixture.bus(1).history(&unwritten, Some(head), 10).await.unwrap();
    assert!(matches!(reset, History::Reset { head } if head.seq == 0), "{reset:?}");
    for epoch in [head.epoch, foreign.epoch] {
        let start = Position::new(epoch, 0);
        let mut events = fixture.bus(1).subscribe(&room, StartFrom::After(start)).await.unwrap();
        assert_eq!(next_event(&mut events).await.position, head);
    }
}

/// A number that is used again in a new epoch is a new event.
pub async fn a_failover_that_lost_the_tail_is_reported_and_its_numbers_are_not_mistaken<F: Fixture>(
    fixture: &F,
) {
    let room = channel("room:1");
    let mut events = fixture.bus(1).subscribe(&room, StartFrom::Now).await.unwrap();
    let mut last = publish(&fixture.bus(0), &room, "1").await;
    for _ in 2..=6 {
        last = publish(&fixture.bus(0), &room, "1").await;
    }
    for _ in 1..=6 {
        next_event(&mut events).await;
    }
    fixture.fail_over(2).await;
    assert!(matches!(next(&mut events).await, DurableItem::Reset { head } if head.seq == 4));
    let again = publish(&fixture.bus(0), &room, "2").await;
    assert_eq!(again.seq, 5);
    assert_ne!(again.epoch, last.epoch);
    assert_eq!(next_event(&mut events).await.position, again);
    publish(&fixture.bus(0), &room, "3").await;
    let mut resumed = fixture.bus(1).subscribe(&room, StartFrom::After(last)).await.unwrap();
    assert!(matches!(next(&mut resumed).await, DurableItem::Reset { head } if head.seq == 6));
}
