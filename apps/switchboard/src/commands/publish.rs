//! `switchboard publish`: one event into a channel.

use std::io::Read;
use std::process::ExitCode;

use anyhow::Context;
use switchboard_core::types::{Channel, EventName, IdempotencyKey, Payload};

use crate::client::{Client, ClientArgs};
use crate::output;

/// What it takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The channel: 1 to 255 bytes without control characters, such as room:1.
    channel: Channel,

    /// What kind of event it is, such as message.
    event: EventName,

    /// What it says: JSON text, or - to read it from standard input.
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    payload: String,

    /// Send it to those who listen now, and do not store it.
    #[arg(long)]
    ephemeral: bool,

    /// Names this event, so that publishing it again, say after an answer that was lost, does not store it again.
    #[arg(long, value_name = "TEXT", conflicts_with = "ephemeral")]
    key: Option<IdempotencyKey>,

    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let payload = if args.payload == "-" { read_stdin()? } else { args.payload };
    let payload = Payload::parse(&payload)?;
    let client = Client::new(args.client)?;
    let position =
        client.publish(&args.channel, &args.event, &payload, args.ephemeral, args.key.as_ref()).await?;
    if let Some(position) = position {
        output::line(position)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .read_to_string(&mut text)
        .context("cannot read the payload from standard input")?;
    Ok(text)
}
