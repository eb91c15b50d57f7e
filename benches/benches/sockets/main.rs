//! What sockets cost: idle ones, a crowded channel beside one of Socket.IO, and one reader that does not read.
//!
//! `cargo bench -p switchboard-benches --bench sockets` needs no set-up but Node.js for the comparison: it builds `switchboard`, runs
//! one node of it on a private PostgreSQL, and all clients on one thread of its own. Everything shares the machine. Only ratios
//! within one run mean anything; the spread is over its rounds, in which both systems take turns.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a load program stops at the first surprise and prints its figures"
)]

mod client;
mod crowd;
mod fanout;
#[path = "../durable/figures.rs"]
mod figures;
mod idle;
mod node;
mod process;
mod slow;
mod socket_io;
mod speech;
mod wire;

use std::time::Duration;

use clap::Parser;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use switchboard_embedded_postgres::{Options, PrivatePostgres};
use tokio::runtime::Runtime;

use fanout::Audience;
use figures::{Figures, quantile};
use node::Server;
use speech::Speech;

/// Measures what sockets cost.
#[derive(Parser)]
struct Args {
    /// How often each pair is measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of one measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Clients that are idle, and for how long they are watched.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// How many of them are in one channel.
    #[arg(long, default_value_t = 10)]
    together: usize,
    /// For how long they are watched, in seconds.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// Clients in the crowded channel.
    #[arg(long, default_value_t = 5000)]
    subscribers: usize,
    /// Events that are under way when it is busy.
    #[arg(long, default_value_t = 64)]
    under_way: u64,
    /// Events per second when it is calm.
    #[arg(long, default_value_t = 4)]
    rate: u32,
    /// For how long subscribers are watched with one that does not read, in seconds.
    #[arg(long, default_value_t = 15)]
    slow_seconds: u64,
    /// Only the parts with this in their names: idle, fan-out, slow.
    #[arg(long, default_value = "")]
    only: String,
    /// What `cargo bench` passes.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = Args::parse();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("there is a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("it may be used up");
    let binary = node::build();
    let runtime = Runtime::new().expect("there are threads");
    let postgres = runtime.block_on(PrivatePostgres::start(Options::default())).expect("starts");
    for part in ["idle", "fan-out", "slow"].into_iter().filter(|part| part.contains(&args.only)) {
        println!("\n{part}");
        // Nobody pays for what others have left behind.
        let node = node::start(&binary, postgres.url());
        match part {
            "idle" => idle(&node, &args),
            "fan-out" => fan_out(&node, &args),
            _ => slow(&node, &args),
        }
    }
    runtime.block_on(postgres.stop()).expect("stops");
}

fn idle(node: &Server, args: &Args) {
    let cost = idle::measure(node, args.idle, args.together, Duration::from_secs(args.idle_seconds));
    println!(
        "  {} clients, {} to a channel: {:.1} KiB and {:.2} us/s each",
        args.idle,
        args.together,
        cost.memory / 1024.0,
        cost.time
    );
}

fn fan_out(node: &Server, args: &Args) {
    let other = socket_io::start();
    let length = Duration::from_secs(args.seconds);
    let mut figures = [(); 2].map(|()| [(); 3].map(|()| Figures::default()));
    for round in 0..=args.rounds {
        for (speech, [most, p50, p99]) in Speech::BOTH.into_iter().zip(&mut figures) {
            let server = if speech == Speech::Phoenix { node } else { &other };
            let mut audience = Audience::gather(speech, server, args.subscribers);
            let busy = audience.saturate(args.under_way, length);
            let calm = audience.pace(args.rate, length);
            // The first round warms up, whoever needs it.
            if round > 0 {
                most.push(busy);
                p50.push(quantile(&calm, 0.5).as_secs_f64() * 1000.0);
                p99.push(quantile(&calm, 0.99).as_secs_f64() * 1000.0);
            }
        }
    }
    let [theirs, ours] = &figures;
    for (speech, [most, p50, p99]) in Speech::BOTH.into_iter().zip(&figures) {
        println!(
            "  {}: {} deliveries/s; at {} events/s p50 {} ms, p99 {} ms",
            speech.name(),
            most.show(0),
            args.rate,
            p50.show(1),
            p99.show(1)
        );
    }
    println!(
        "  x Socket.IO: {} deliveries/s, p50 {}, p99 {}",
        ours[0].over(&theirs[0]).show(2),
        ours[1].over(&theirs[1]).show(2),
        ours[2].over(&theirs[2]).show(2)
    );
}

fn slow(node: &Server, args: &Args) {
    let length = Duration::from_secs(args.slow_seconds);
    let mut figures = [(); 2].map(|()| [(); 2].map(|()| Figures::default()));
    for round in 0..=args.rounds {
        let latencies = slow::measure(node, args.subscribers, args.rate, length);
        for (latencies, [p50, p99]) in latencies.iter().zip(&mut figures) {
            // The first round warms up.
            if round > 0 {
                p50.push(quantile(latencies, 0.5).as_secs_f64() * 1000.0);
                p99.push(quantile(latencies, 0.99).as_secs_f64() * 1000.0);
            }
        }
    }
    let [without, with] = &figures;
    for (who, [p50, p99]) in ["without a reader that does not read", "with one"].into_iter().zip(&figures) {
        println!("  {who}: at {} events/s p50 {} ms, p99 {} ms", args.rate, p50.show(1), p99.show(1));
    }
    println!(
        "  x without: p50 {}, p99 {}",
        with[0].over(&without[0]).show(2),
        with[1].over(&without[1]).show(2)
    );
}
