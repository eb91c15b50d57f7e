//! The mesh beside NATS core: one publisher, and the subscribers of other nodes.
//!
//! `cargo bench -p switchboard-benches --bench mesh` needs no set-up; without `nats-server` (`apt install nats-server`) it measures the mesh
//! alone. Every node and every client of NATS is a process of its own, on one machine and over loopback; nodes find each other in a private
//! PostgreSQL. Both systems take turns, round by round, and only ratios within one run mean anything.
//!
//! At the most means: as many events as possible while never more than `--under-way` have not been confirmed by every subscriber, the slowest
//! included, which confirms over the system that is measured. So neither system is measured by what it drops.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a load program stops at the first surprise and prints its figures"
)]

mod bus;
#[path = "../durable/figures.rs"]
mod figures;
mod nats;
mod node;
mod payload;
#[path = "../sockets/process.rs"]
#[allow(dead_code, reason = "memory is asked for elsewhere")]
mod process;
mod publisher;
mod subscriber;
mod team;
mod udp;

use std::time::Duration;

use clap::Parser;
use switchboard_embedded_postgres::{Options, PrivatePostgres};
use tokio::runtime::Runtime;

use bus::Way;
use figures::Figures;
use team::Team;

/// Rates at which latency is measured, events/s.
const CALM: [u32; 2] = [1_000, 20_000];

/// Compares the mesh with NATS core.
#[derive(Parser)]
struct Args {
    /// How often each is measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of one measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Most events that some subscriber has not confirmed.
    #[arg(long, default_value_t = 1024)]
    under_way: u64,
    /// Peers of the node that publishes, each with one subscriber.
    #[arg(long, default_value_t = 2)]
    peers: usize,
    /// Subscribers of NATS.
    #[arg(long, default_value_t = 3)]
    nats_subscribers: usize,
    /// Only the parts with this in their names: most, latency, nobody.
    #[arg(long, default_value = "")]
    only: String,
    /// What this process is, if it is measured.
    #[arg(long, hide = true)]
    role: Option<Role>,
    /// Which system it is part of.
    #[arg(long, hide = true, default_value = "mesh")]
    way: Way,
    /// Where PostgreSQL, or NATS, is.
    #[arg(long, hide = true, default_value = "")]
    url: String,
    /// Its number among subscribers, or how many there are.
    #[arg(long, hide = true, default_value_t = 0)]
    number: usize,
    /// What `cargo bench` passes.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    Publisher,
    Subscriber,
}

/// As the server has.
#[cfg(any(target_os = "linux", target_os = "macos"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let args = Args::parse();
    let runtime = Runtime::new().expect("there are threads");
    if let Some(role) = args.role {
        // In a task, as what serves a request is.
        let task = runtime.spawn(async move {
            match role {
                Role::Publisher => publisher::run(args.way, &args.url, args.number).await,
                Role::Subscriber => subscriber::run(args.way, &args.url, args.number).await,
            }
        });
        return runtime.block_on(task).expect("ends by itself");
    }
    let postgres = runtime.block_on(PrivatePostgres::start(Options::default())).expect("starts");
    let mut teams = vec![Team::gather(Way::Mesh, None, postgres.url(), args.peers)];
    if let Some((server, url)) = nats::start() {
        teams.insert(0, Team::gather(Way::Nats, Some(server), &url, args.nats_subscribers));
    } else {
        println!("there is no nats-server: the mesh is measured alone");
    }
    for part in ["most", "latency", "nobody"].into_iter().filter(|part| part.contains(&args.only)) {
        println!("\n{part}");
        match part {
            "most" => most(&mut teams, &args),
            "latency" => latency(&mut teams, &args),
            _ => nobody(teams.last_mut().expect("there is the mesh")),
        }
    }
    drop(teams);
    runtime.block_on(postgres.stop()).expect("stops");
}

fn most(teams: &mut [Team], args: &Args) {
    let length = Duration::from_secs(args.seconds);
    let mut figures: Vec<_> = teams.iter().map(|_| [(); 3].map(|()| Figures::default())).collect();
    // The first round warms up.
    for round in 0..=args.rounds {
        for (team, [rate, per_event, per_delivery]) in teams.iter_mut().zip(&mut figures) {
            let load = team.saturate(args.under_way, length);
            if round > 0 {
                rate.push(load.deliveries);
                per_event.push(load.per_event);
                per_delivery.push(load.per_delivery);
            }
        }
    }
    for (team, [rate, per_event, per_delivery]) in teams.iter().zip(&figures) {
        println!(
            "  {}: {} deliveries/s to each subscriber; {} us of CPU per event, {} per delivery",
            team.name(),
            rate.show(0),
            per_event.show(2),
            per_delivery.show(2)
        );
    }
    if let [[their_rate, _, their_cost], [our_rate, _, our_cost]] = &figures[..] {
        println!(
            "  x NATS: {} deliveries/s, {} CPU per delivery",
            our_rate.over(their_rate).show(2),
            our_cost.over(their_cost).show(2)
        );
    }
}

fn latency(teams: &mut [Team], args: &Args) {
    let length = Duration::from_secs(args.seconds);
    for rate in CALM {
        let mut figures: Vec<_> = teams.iter().map(|_| [(); 3].map(|()| Figures::default())).collect();
        for round in 0..=args.rounds {
            for (team, [p50, p99, per_event]) in teams.iter_mut().zip(&mut figures) {
                let pace = team.pace(rate, length);
                if round > 0 {
                    p50.push(pace.p50);
                    p99.push(pace.p99);
                    per_event.push(pace.per_event);
                }
            }
        }
        for (team, [p50, p99, per_event]) in teams.iter().zip(&figures) {
            println!(
                "  {} at {rate} events/s: p50 {} us, p99 {} us; {} us of CPU per event",
                team.name(),
                p50.show(0),
                p99.show(0),
                per_event.show(1)
            );
        }
        if let [[their_p50, their_p99, _], [our_p50, our_p99, _]] = &figures[..] {
            println!(
                "  x NATS: p50 {}, p99 {}",
                our_p50.over(their_p50).show(2),
                our_p99.over(their_p99).show(2)
            );
        }
    }
}

fn nobody(mesh: &mut Team) {
    let [events, bursts, silent, datagrams, sent] = mesh.alone();
    println!(
        "  {events} events in {bursts} bursts to a channel that nobody else subscribes to: {sent} were sent, and the whole machine sent no \
         datagram during {silent} bursts, {datagrams} during the others"
    );
    // Keep-alives are sent at any time, and others may use the machine; a burst that costs a packet costs one each time.
    assert!(sent == 0 && silent * 2 > bursts, "publishing to nobody costs packets");
}
