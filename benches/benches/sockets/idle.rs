//! What clients cost that have joined a channel and do nothing but say that they are there.

use std::time::{Duration, Instant};

use super::crowd::Crowd;
use super::node::Server;
use super::speech::Speech;

/// How often a client says that it is there. `phoenix` does every 30 s, `@supabase/realtime-js` every 25 s.
const HEARTBEAT: Duration = Duration::from_secs(25);

/// What a client costs.
pub(crate) struct Cost {
    /// Resident memory, in bytes.
    pub(crate) memory: f64,
    /// Processor time, in microseconds per second.
    pub(crate) time: f64,
}

/// Connects `size` clients, `together` to a channel; once each of them has said that it is there, measures for `length`.
#[allow(clippy::cast_precision_loss, reason = "bytes and clients")]
pub(crate) fn measure(server: &Server, size: usize, together: usize, length: Duration) -> Cost {
    // What the first client brings about is not the price of one.
    drop(Crowd::join(Speech::Phoenix, server.address, &server.token, 10, |n| format!("idle:{n}")));
    let before = server.process.memory();
    let channel = |n| format!("idle:{}", n / together);
    let mut crowd = Crowd::join(Speech::Phoenix, server.address, &server.token, size, channel);
    let mut next = 0;
    beat(&mut crowd, &mut next, HEARTBEAT);
    let (began, time) = (Instant::now(), server.process.time());
    beat(&mut crowd, &mut next, length);
    let (time, length) = (server.process.time().saturating_sub(time), began.elapsed());
    let memory = server.process.memory().saturating_sub(before);
    crowd.turn_for(Duration::from_secs(1));
    assert_eq!(crowd.heard.alive, next, "a heartbeat was not answered");
    Cost {
        memory: memory as f64 / size as f64,
        time: time.as_secs_f64() * 1e6 / length.as_secs_f64() / size as f64,
    }
}

/// Lets all of them say that they are there, one after the other, each every [`HEARTBEAT`].
fn beat(crowd: &mut Crowd, next: &mut u64, length: Duration) {
    let (began, first) = (Instant::now(), *next);
    let size = u32::try_from(crowd.len()).expect("there are fewer");
    let pause = HEARTBEAT / size;
    while began.elapsed() < length {
        let due = pause * u32::try_from(*next - first).expect("there are fewer");
        match due.checked_sub(began.elapsed()) {
            Some(left) if !left.is_zero() => crowd.turn(left),
            _ => {
                let client = usize::try_from(*next % u64::from(size)).expect("there are fewer");
                crowd.client(client).say(Speech::HEARTBEAT);
                *next += 1;
            }
        }
    }
}
