//! The durable bus side by side with the naive way, on one server, in one run.
//!
//! `cargo bench -p switchboard-benches --bench durable` needs no set-up: it runs a private PostgreSQL with `fsync` on. The naive way is
//! one `INSERT` and one `pg_notify` per event and transaction, on 16 connections. Everything shares the machine: server,
//! publishers and the subscribers of three nodes. Only ratios within one run mean anything; the spread is over its rounds.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a load program stops at the first surprise and prints its figures"
)]

mod beside;
mod bus;
mod figures;
mod load;
mod naive;
mod past;

use std::time::Duration;

use clap::Parser;
use switchboard_embedded_postgres::{Options, PrivatePostgres};

use bus::Bus;
use figures::{Figures, quantile};
use load::{Spread, latencies, throughput};
use naive::Naive;

/// Rate at which latency is measured, events/s.
const CALM: u32 = 200;

/// Compares the durable bus with the naive way.
#[derive(Parser)]
struct Args {
    /// How often each pair is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Length of one measurement.
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Only the parts with this in their names: throughput, latency, beside, catch-up, memory.
    #[arg(long, default_value = "")]
    only: String,
    /// What `cargo bench` passes.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    let length = Duration::from_secs(args.seconds);
    let configuration =
        [("fsync", "on"), ("max_connections", "200"), ("max_wal_size", "8GB"), ("shared_buffers", "512MB")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = Options { configuration: configuration.to_vec(), ..Options::default() };
    let server = PrivatePostgres::start(options).await.expect("starts");
    let (bus, naive) = (Bus::start(server.url()).await, Naive::start(server.url()).await);

    let parts: [&str; 5] = ["throughput", "latency", "beside", "catch-up", "memory"];
    for part in parts.into_iter().filter(|part| part.contains(&args.only)) {
        println!("\n{part}");
        match part {
            "throughput" => compare_throughput(&bus, &naive, args.rounds, length).await,
            "latency" => compare_latency(&bus, &naive, args.rounds, length).await,
            "beside" => beside::compare(&server, &bus, &naive, args.rounds, length).await,
            "catch-up" => past::catch_up(server.url(), &bus, args.rounds).await,
            _ => past::memory(server.url(), &bus).await,
        }
    }
    drop(bus);
    server.stop().await.expect("stops");
}

async fn compare_throughput(bus: &Bus, naive: &Naive, rounds: usize, length: Duration) {
    let spreads = [
        ("one node, 100 channels", Spread { nodes: 1, channels: 100 }),
        ("three nodes, 100 channels", Spread { nodes: 3, channels: 100 }),
        ("one node, one channel", Spread { nodes: 1, channels: 1 }),
    ];
    let (mut theirs, mut ours) = (Figures::default(), [(); 3].map(|()| Figures::default()));
    for _ in 0..rounds {
        theirs.push(throughput(naive, Spread { nodes: 1, channels: 1 }, length).await);
        for ((_, spread), figures) in spreads.iter().zip(&mut ours) {
            figures.push(throughput(bus, *spread, length).await);
        }
    }
    println!("  naive: {} events/s", theirs.show(0));
    for ((name, _), figures) in spreads.iter().zip(&ours) {
        println!("  {name}: {} events/s, {} x naive", figures.show(0), figures.over(&theirs).show(1));
    }
}

async fn compare_latency(bus: &Bus, naive: &Naive, rounds: usize, length: Duration) {
    let (mut theirs, mut ours) =
        ([Figures::default(), Figures::default()], [Figures::default(), Figures::default()]);
    for _ in 0..rounds {
        for (name, all) in [("naive", &mut theirs), ("bus", &mut ours)] {
            let seen = if name == "naive" {
                latencies(naive, CALM, length).await
            } else {
                latencies(bus, CALM, length).await
            };
            for (figures, q) in all.iter_mut().zip([0.5, 0.99]) {
                figures.push(quantile(&seen, q).as_secs_f64() * 1000.0);
            }
        }
    }
    for (index, name) in ["p50", "p99"].iter().enumerate() {
        let (theirs, ours) = (&theirs[index], &ours[index]);
        println!(
            "  {name} at {CALM} events/s: naive {} ms, bus {} ms, {} x naive",
            theirs.show(2),
            ours.show(2),
            ours.over(theirs).show(2)
        );
    }
}
