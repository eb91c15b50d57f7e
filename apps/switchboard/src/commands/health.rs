//! `switchboard health`: a probe for where there is no curl, such as a container. The exit code is the answer.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::client::Client;
use crate::config::{HTTP_ADDR, HttpAddr};
use crate::output;

/// What it takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Ask whether the process is alive (`/livez`), whatever its database does, and not whether it should get work (`/readyz`).
    #[arg(long)]
    live: bool,

    /// The URL of the node. [default: where a node with this `HTTP_ADDR` serves on this machine]
    #[arg(long, env = "SWITCHBOARD_URL", hide_env_values = true, value_name = "URL")]
    url: Option<OsString>,

    /// Where the node serves HTTP, as it was told itself.
    #[arg(
        long,
        env = "HTTP_ADDR",
        hide_env_values = true,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:4000"
    )]
    http_addr: OsString,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let url = match args.url {
        Some(url) => url,
        None => HTTP_ADDR.parse(&args.http_addr, HttpAddr::parse)?.local_url().into(),
    };
    let answer = Client::without_token(&url)?.probe(if args.live { "livez" } else { "readyz" }).await?;
    output::line(answer.trim_end())?;
    Ok(ExitCode::SUCCESS)
}
