//! What other write transactions of the same server notice: `pgbench -N` alone, beside the naive way, and beside the bus.

use std::process::Stdio;
use std::time::Duration;

use switchboard_embedded_postgres::PrivatePostgres;
use tokio::process::Command;

use super::bus::Bus;
use super::figures::Figures;
use super::load::{Way, pace};
use super::naive::Naive;

/// Events/s while others write.
const BUSY: u32 = 5_000;

pub(crate) async fn compare(
    server: &PrivatePostgres,
    bus: &Bus,
    naive: &Naive,
    rounds: usize,
    length: Duration,
) {
    pgbench(server, &["-i", "-s", "10", "-q"]).await;
    let [mut alone, mut theirs, mut ours] = [(); 3].map(|()| Figures::default());
    let [mut their_rate, mut our_rate] = [(); 2].map(|()| Figures::default());
    for _ in 0..rounds {
        alone.push(transactions(server, length).await);
        let (transactions_beside, rate) = under(server, naive, length).await;
        theirs.push(transactions_beside);
        their_rate.push(rate);
        let (transactions_beside, rate) = under(server, bus, length).await;
        ours.push(transactions_beside);
        our_rate.push(rate);
    }
    println!("  pgbench -N alone: {} transactions/s", alone.show(0));
    println!("  beside the naive way at {} events/s: {} transactions/s", their_rate.show(0), theirs.show(0));
    println!(
        "  beside the bus at {} events/s: {} transactions/s, {} x naive",
        our_rate.show(0),
        ours.show(0),
        ours.over(&theirs).show(2)
    );
}

async fn under<W: Way>(server: &PrivatePostgres, way: &W, length: Duration) -> (f64, f64) {
    // The load outlasts the measurement on both sides.
    let load = async { pace(way, BUSY, length + Duration::from_secs(2)).await.1 };
    let measured = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        transactions(server, length).await
    };
    tokio::join!(measured, load)
}

/// Transactions/s of 8 clients.
async fn transactions(server: &PrivatePostgres, length: Duration) -> f64 {
    let seconds = length.as_secs().to_string();
    let report = pgbench(server, &["-N", "-c", "8", "-T", &seconds, "-M", "prepared"]).await;
    let tps = report.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
    tps.and_then(|tps| tps.parse().ok()).expect("pgbench reports tps")
}

async fn pgbench(server: &PrivatePostgres, arguments: &[&str]) -> String {
    let program = server.installation().bin_dir().join("pgbench");
    let run = Command::new(program).args(arguments).arg(server.url()).stderr(Stdio::null()).output();
    let output = run.await.expect("pgbench runs");
    assert!(output.status.success(), "pgbench failed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
