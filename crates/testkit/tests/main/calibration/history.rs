//! Histories that may not be, each one change away from one that may, and what the checker must say of them.

use switchboard_core::types::{Channel, Epoch, Position};
use switchboard_testkit::history::{History, Record, Summary, Token, Violation, Witness};

/// Five events of one channel: two by one operation, one whose publisher never learned its fate, two by operations of their own.
/// Another event was rolled back, another one was lost on the way to the server. Two subscribers and the log have the five.
fn sound() -> Vec<Record> {
    let mut records = vec![joined("steady"), joined("restless")];
    records.extend([invoked(1, &[11, 12]), committed(1, &[1, 2])]);
    records.extend([invoked(2, &[13]), Record::Failed { operation: 2 }]);
    records.extend([invoked(3, &[14]), Record::Unknown { operation: 3 }]);
    records.extend([invoked(4, &[15]), committed(4, &[4])]);
    records.extend([invoked(5, &[16]), committed(5, &[5])]);
    // Its process was killed before it could say anything.
    records.push(invoked(6, &[17]));
    let stored = [(1, 11), (2, 12), (3, 14), (4, 15), (5, 16)];
    for by in ["steady", "restless"] {
        records.push(Record::Subscribed { by: by.to_owned(), channel: room() });
        records.extend(stored.map(|(seq, token)| received(by, seq, token)));
    }
    records.extend(stored.map(|(seq, token)| Record::Stored { channel: room(), position: at(seq), token }));
    records.push(Record::Head { channel: room(), position: at(5) });
    records
}

#[test]
fn a_history_that_keeps_every_promise() {
    assert_eq!(verdict(sound()), []);
}

#[test]
fn an_event_that_was_never_delivered() {
    let records = sound_without(&received("steady", 3, 14));
    let gap = Violation::Gap { by: steady(), channel: room(), after: 2, position: at(4) };
    let lost = Violation::Lost { by: steady(), channel: room(), seq: 3, token: 14 };
    assert_eq!(verdict(records), [gap, lost]);
}

#[test]
fn an_event_that_was_delivered_and_is_not_in_the_log() {
    let records = sound_without(&Record::Stored { channel: room(), position: at(4), token: 15 });
    let gap = Violation::Gap { by: Witness::Log, channel: room(), after: 3, position: at(5) };
    let lost = Violation::Lost { by: Witness::Log, channel: room(), seq: 4, token: 15 };
    assert_eq!(verdict(records), [gap, lost]);
}

#[test]
fn an_acknowledged_tail_that_the_log_lacks() {
    let mut records = sound_without(&Record::Stored { channel: room(), position: at(5), token: 16 });
    replace(&mut records, &Record::Head { channel: room(), position: at(5) }, head(4));
    let lost = Violation::Lost { by: Witness::Log, channel: room(), seq: 5, token: 16 };
    assert_eq!(verdict(records), [lost]);
}

#[test]
fn an_acknowledged_event_of_a_channel_that_nobody_heard_of_again() {
    let other = Channel::parse("room:2").unwrap();
    let mut records = sound();
    records.push(Record::Invoked { operation: 9, events: vec![(other.clone(), 19)] });
    records.push(committed(9, &[1]));
    assert_eq!(verdict(records), [Violation::Lost { by: Witness::Log, channel: other, seq: 1, token: 19 }]);
}

#[test]
fn a_head_that_counts_an_event_which_is_not_there() {
    let mut records = sound();
    replace(&mut records, &head(5), head(6));
    let stuck = Violation::Stuck { by: Witness::Log, channel: room(), at: 5, head: 6 };
    assert_eq!(verdict(records), [stuck]);
}

#[test]
fn a_subscriber_that_got_no_further() {
    let records = sound_without(&received("steady", 5, 16));
    let stuck = Violation::Stuck { by: steady(), channel: room(), at: 4, head: 5 };
    assert_eq!(verdict(records), [stuck]);
}

#[test]
fn a_subscriber_that_never_got_anything() {
    let mut records = sound();
    records.push(joined("silent"));
    let by = Witness::Subscriber("silent".to_owned());
    assert_eq!(verdict(records), [Violation::Stuck { by, channel: room(), at: 0, head: 5 }]);
}

#[test]
fn an_event_that_came_twice() {
    let mut records = sound();
    insert_after(&mut records, &received("steady", 3, 14), received("steady", 3, 14));
    assert_eq!(verdict(records), [Violation::Duplicate { by: steady(), channel: room(), position: at(3) }]);
}

#[test]
fn events_that_came_in_the_wrong_order() {
    let mut records = sound_without(&received("steady", 3, 14));
    insert_after(&mut records, &received("steady", 4, 15), received("steady", 3, 14));
    let gap = Violation::Gap { by: steady(), channel: room(), after: 2, position: at(4) };
    let late = Violation::OutOfOrder { by: steady(), channel: room(), position: at(3), after: 4 };
    assert_eq!(verdict(records), [gap, late]);
}

#[test]
fn an_event_that_was_rolled_back_and_seen() {
    let mut records = sound();
    records.push(received("steady", 6, 13));
    let seen = Violation::Uncommitted { by: steady(), channel: room(), position: at(6), token: 13 };
    assert_eq!(verdict(records), [seen]);
}

#[test]
fn an_event_that_was_rolled_back_and_stored() {
    let mut records = sound();
    records.push(Record::Stored { channel: room(), position: at(6), token: 13 });
    replace(&mut records, &head(5), head(6));
    let seen = Violation::Uncommitted { by: Witness::Log, channel: room(), position: at(6), token: 13 };
    assert_eq!(verdict(records), [seen]);
}

#[test]
fn an_event_that_nobody_published() {
    let mut records = sound();
    replace(&mut records, &received("steady", 3, 14), received("steady", 3, 0));
    let made_up = Violation::MadeUp { by: steady(), channel: room(), position: at(3), token: 0 };
    assert_eq!(verdict(records), [made_up]);
}

#[test]
fn an_event_that_went_astray() {
    let other = Channel::parse("room:2").unwrap();
    let mut records = sound();
    let by = "elsewhere".to_owned();
    let astray = Record::Received { by: by.clone(), channel: other.clone(), position: at(1), token: 11 };
    records.push(astray);
    let (by, to) = (Witness::Subscriber(by), room());
    let astray = Violation::Astray { by, channel: other, position: at(1), token: 11, to };
    assert_eq!(verdict(records), [astray]);
}

#[test]
fn a_publisher_that_was_told_the_wrong_position() {
    let mut records = sound();
    replace(&mut records, &committed(5, &[5]), committed(5, &[6]));
    let violations = verdict(records);
    for by in [Witness::Log, steady()] {
        let channel = room();
        let wrong = Violation::Misnumbered { by, channel, token: 16, position: at(5), other: at(6) };
        assert!(violations.contains(&wrong), "{violations:?}");
    }
}

#[test]
fn an_event_that_was_stored_twice_although_its_publisher_learned_nothing() {
    let mut records = sound();
    records.push(Record::Stored { channel: room(), position: at(6), token: 14 });
    replace(&mut records, &head(5), head(6));
    let by = Witness::Log;
    let twice = Violation::Misnumbered { by, channel: room(), token: 14, position: at(6), other: at(3) };
    assert_eq!(verdict(records), [twice]);
}

#[test]
fn a_position_that_another_epoch_gave_out() {
    let elsewhere = Position::new(Epoch::from_bits(2), 3);
    let mut records = sound();
    let changed =
        Record::Received { by: "steady".to_owned(), channel: room(), position: elsewhere, token: 14 };
    replace(&mut records, &received("steady", 3, 14), changed);
    let (by, channel) = (steady(), room());
    let wrong = Violation::Misnumbered { by, channel, token: 14, position: elsewhere, other: at(3) };
    assert_eq!(verdict(records), [wrong]);
}

#[test]
fn a_number_that_was_given_out_twice() {
    let mut records = sound();
    replace(&mut records, &committed(5, &[5]), committed(5, &[4]));
    let disputed = |violation: &Violation| matches!(violation, Violation::Disputed { seq: 4, .. });
    assert!(verdict(records).iter().any(disputed));
}

#[test]
fn a_publisher_that_was_told_too_few_positions() {
    let mut records = sound();
    replace(&mut records, &committed(1, &[1, 2]), committed(1, &[1]));
    assert_eq!(verdict(records), [Violation::Miscounted { operation: 1, events: 2, positions: 1 }]);
}

#[test]
fn an_event_of_unknown_fate_that_nobody_has_is_no_violation() {
    let mut records = sound();
    records.push(invoked(7, &[18]));
    records.push(Record::Unknown { operation: 7 });
    assert_eq!(verdict(records), []);
}

#[test]
fn an_event_of_unknown_fate_that_only_a_subscriber_has() {
    let mut records = sound();
    records.push(received("steady", 6, 17));
    let unstored = Violation::Lost { by: Witness::Log, channel: room(), seq: 6, token: 17 };
    let by = Witness::Subscriber("restless".to_owned());
    let stuck = Violation::Stuck { by, channel: room(), at: 5, head: 6 };
    assert_eq!(verdict(records), [unstored, stuck]);
}

/// What stood before is not in the log any more, and one who was told so need not have it; the other one must.
#[test]
fn pruning_that_a_subscriber_was_told_of_is_no_violation() {
    assert_eq!(verdict(pruned_before(4)), []);
}

#[test]
fn pruning_that_a_subscriber_was_not_told_of() {
    let mut records = pruned_before(4);
    records.retain(|record| !matches!(record, Record::Pruned { .. }));
    let gap = Violation::Gap { by: steady(), channel: room(), after: 0, position: at(4) };
    let lost = |seq, token| Violation::Lost { by: steady(), channel: room(), seq, token };
    assert_eq!(verdict(records), [gap, lost(1, 11), lost(2, 12), lost(3, 14)]);
}

#[test]
fn more_than_was_told_is_missing() {
    let mut records = pruned_before(4);
    let told = |seq| Record::Pruned { by: "steady".to_owned(), channel: room(), oldest: at(seq) };
    replace(&mut records, &told(4), told(3));
    let gap = Violation::Gap { by: steady(), channel: room(), after: 2, position: at(4) };
    let lost = Violation::Lost { by: steady(), channel: room(), seq: 3, token: 14 };
    assert_eq!(verdict(records), [gap, lost]);
}

#[test]
fn events_that_are_said_to_be_pruned_and_are_still_there() {
    let mut records = sound_without(&received("steady", 1, 11));
    let (by, oldest) = ("steady".to_owned(), at(2));
    let told = Record::Pruned { by: by.clone(), channel: room(), oldest };
    let first = records.iter().position(|record| *record == received("steady", 2, 12)).unwrap();
    records.insert(first, told);
    assert_eq!(verdict(records), [Violation::NotPruned { by, channel: room(), oldest, begins: 1 }]);
}

#[test]
fn a_reset_in_a_history_that_was_never_replaced() {
    let mut records = sound();
    let by = "steady".to_owned();
    let reset = Record::Reset { by: by.clone(), channel: room(), head: at(3) };
    insert_after(&mut records, &received("steady", 3, 14), reset);
    assert_eq!(verdict(records), [Violation::Reset { by, channel: room(), head: at(3) }]);
}

#[test]
fn a_history_is_counted_and_knows_who_is_behind() {
    let mut history = History::default();
    history.extend(sound_without(&received("steady", 5, 16)));
    let counted = Summary {
        published: 7,
        committed: 4,
        failed: 1,
        unknown: 2,
        delivered: 9,
        pruned: 0,
        subscriptions: 2,
    };
    assert_eq!(history.summary(), counted);
    assert_eq!(history.last("steady", &room()), Some(at(4)));
    let behind: Vec<_> = history.behind(&[(room(), at(5))].into()).collect();
    assert_eq!(behind, [Violation::Stuck { by: steady(), channel: room(), at: 4, head: 5 }]);
}

/// The sound history, but one subscriber began after everything before `oldest` was pruned, and was told so.
fn pruned_before(oldest: u64) -> Vec<Record> {
    let mut records = sound();
    records.retain(|record| match record {
        Record::Stored { position, .. } => position.seq >= oldest,
        Record::Received { by, position, .. } => by != "steady" || position.seq >= oldest,
        _ => true,
    });
    let (by, channel) = ("steady".to_owned(), room());
    let subscribed = Record::Subscribed { by: by.clone(), channel: channel.clone() };
    insert_after(&mut records, &subscribed, Record::Pruned { by, channel, oldest: at(oldest) });
    records
}

fn verdict(records: Vec<Record>) -> Vec<Violation> {
    let mut history = History::default();
    history.extend(records);
    history.check()
}

fn sound_without(record: &Record) -> Vec<Record> {
    let mut records = sound();
    records.retain(|other| other != record);
    assert_eq!(records.len() + 1, sound().len(), "{record:?}");
    records
}

fn place(records: &[Record], record: &Record) -> usize {
    records.iter().position(|other| other == record).unwrap()
}

fn replace(records: &mut [Record], record: &Record, by: Record) {
    let place = place(records, record);
    records[place] = by;
}

fn insert_after(records: &mut Vec<Record>, record: &Record, next: Record) {
    let place = place(records, record);
    records.insert(place + 1, next);
}

fn room() -> Channel {
    Channel::parse("room:1").unwrap()
}

fn at(seq: u64) -> Position {
    Position::new(Epoch::from_bits(1), seq)
}

fn steady() -> Witness {
    Witness::Subscriber("steady".to_owned())
}

fn joined(by: &str) -> Record {
    Record::Joined { by: by.to_owned(), channel: room() }
}

fn invoked(operation: u64, tokens: &[Token]) -> Record {
    Record::Invoked { operation, events: tokens.iter().map(|token| (room(), *token)).collect() }
}

fn committed(operation: u64, seqs: &[u64]) -> Record {
    Record::Committed { operation, positions: seqs.iter().map(|seq| at(*seq)).collect() }
}

fn received(by: &str, seq: u64, token: Token) -> Record {
    Record::Received { by: by.to_owned(), channel: room(), position: at(seq), token }
}

fn head(seq: u64) -> Record {
    Record::Head { channel: room(), position: at(seq) }
}
