//! Runs a private PostgreSQL until its standard input ends, and prints how to reach it.
//!
//! `cargo run -p switchboard-embedded-postgres --example private_postgres -- [--data-dir DIR] [--download] [--freeze]`
//!
//! Prints three lines: the URL, the pid of the postmaster, the private directory. The integration tests kill it in every
//! way there is and look at what remains.
#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::io::Read;

use switchboard_embedded_postgres::{Binaries, Error, Options, PrivatePostgres};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::default();
    let mut freeze = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--data-dir" => options.data_dir = arguments.next().map(Into::into),
            "--download" => options.binaries = Binaries::Download,
            "--freeze" => freeze = true,
            other => return Err(format!("unknown argument {other:?}").into()),
        }
    }
    if let Err(error) = run(options, freeze).await {
        // As a person at a terminal should see it, not as Debug prints it.
        println!("{error}");
        std::process::exit(1);
    }
    Ok(())
}

async fn run(options: Options, freeze: bool) -> Result<(), Error> {
    let postgres = PrivatePostgres::start(options).await?;
    println!("{}", postgres.url());
    println!("{}", postgres.postmaster_pid().unwrap_or_default());
    println!("{}", postgres.home().display());
    if freeze {
        postgres.freeze();
        println!("frozen");
    }
    // Blocks the runtime, which has nothing else to do.
    let _ = std::io::stdin().read(&mut [0]);
    postgres.stop().await
}
