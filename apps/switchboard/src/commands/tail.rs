//! `switchboard tail`: prints what happens in a channel, and goes on where it stopped when its node goes away.

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::anyhow;
use eventsource_stream::{Event, EventStreamError, Eventsource};
use futures::StreamExt;
use reqwest::Response;
use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_core::types::{Channel, Invalid, Position};
use tokio::time::sleep;

use crate::client::{Client, ClientArgs, ClientError};
use crate::output;
use crate::stop::Stop;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What it takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The channel, such as room:1.
    channel: Channel,

    /// Begin after this position, as tail and publish print it, or with the `oldest` event that remains.
    #[arg(long, value_name = "POSITION")]
    after: Option<After>,

    /// Print each event as one JSON object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    client: ClientArgs,
}

/// Where to begin.
#[derive(Debug, Clone)]
enum After {
    Position(Position),
    Oldest,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stop = Stop::listen(false)?;
    let after = args.after.map(|after| match after {
        After::Position(position) => position.to_string(),
        After::Oldest => "oldest".to_owned(),
    });
    let tail =
        Tail { client: Client::new(args.client)?, channel: args.channel, json: args.json, last_id: after };
    tokio::select! {
        outcome = tail.follow() => outcome.map(|()| ExitCode::SUCCESS),
        _ = stop.asked() => Ok(ExitCode::SUCCESS),
    }
}

struct Tail {
    client: Client,
    channel: Channel,
    json: bool,
    /// What the stream goes on after when it is opened again.
    last_id: Option<String>,
}

impl Tail {
    /// Never returns but with an error: one that trying again does not mend, or that of the output.
    async fn follow(mut self) -> anyhow::Result<()> {
        let mut response = self.client.subscribe(&self.channel, self.last_id.as_deref()).await?;
        loop {
            let obstacle = self.print(response).await?;
            output::note(format_args!("{obstacle}; trying again"));
            response = self.reconnect().await?;
            if let Some(id) = &self.last_id {
                output::note(format_args!("listening again, after {id}"));
            }
        }
    }

    async fn reconnect(&self) -> Result<Response, ClientError> {
        let mut pause = FIRST_PAUSE;
        loop {
            sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            match self.client.subscribe(&self.channel, self.last_id.as_deref()).await {
                Err(error) if error.is_transient() => pause = (pause * 2).min(LONGEST_PAUSE),
                outcome => return outcome,
            }
        }
    }

    /// Prints events until the stream breaks off; answers why it did.
    async fn print(&mut self, response: Response) -> anyhow::Result<String> {
        let mut events = response.bytes_stream().eventsource();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.show(&event)?,
                Err(EventStreamError::Transport(error)) => {
                    return Ok(ClientError::lost(self.client.url(), &error).to_string());
                }
                Err(error) => return Err(self.strange(&error.to_string())),
            }
        }
        Ok(format!("the node at {} ended the stream", self.client.url()))
    }

    fn show(&mut self, event: &Event) -> anyhow::Result<()> {
        match event.event.as_str() {
            "message" => output::line(self.line(&event.data)?)?,
            // Its id is what matters.
            "listening" => {}
            kind => output::note(self.remark(kind, &event.data)?),
        }
        // Only now: what was not printed is asked for again.
        if !event.id.is_empty() {
            self.last_id = Some(event.id.clone());
        }
        Ok(())
    }

    fn line(&self, data: &str) -> anyhow::Result<String> {
        #[derive(Deserialize)]
        struct Message<'a> {
            event: String,
            position: Option<String>,
            #[serde(borrow)]
            payload: &'a RawValue,
        }
        let message: Message<'_> =
            serde_json::from_str(data).map_err(|error| self.strange(&error.to_string()))?;
        if self.json {
            return Ok(on_one_line(data));
        }
        let position = message.position.as_deref().unwrap_or("-");
        Ok(format!("{position}\t{}\t{}", message.event, on_one_line(message.payload.get())))
    }

    /// What a node says about the stream itself.
    fn remark(&self, kind: &str, data: &str) -> anyhow::Result<String> {
        #[derive(Deserialize)]
        struct Remark {
            oldest: Option<Position>,
            head: Option<Position>,
            missed: Option<u64>,
        }
        let remark: Remark = serde_json::from_str(data).map_err(|error| self.strange(&error.to_string()))?;
        Ok(match (kind, remark) {
            ("pruned", Remark { oldest: Some(oldest), .. }) => {
                format!("events were pruned before they could be shown; going on with {oldest}")
            }
            ("reset", Remark { head: Some(head), .. }) => format!(
                "the last position is not part of the history (a failover lost it, or a backup was restored); going on after {head}"
            ),
            ("lagged", Remark { missed: Some(missed), .. }) => {
                format!("too slow: {missed} ephemeral events were dropped")
            }
            _ => format!("the node says {kind}: {}", on_one_line(data)),
        })
    }

    fn strange(&self, reason: &str) -> anyhow::Error {
        anyhow!("the stream of {} is not that of a node: {reason}", self.client.url())
    }
}

/// Line breaks in JSON stand only between tokens, where a space means the same.
fn on_one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

impl FromStr for After {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text == "oldest" {
            return Ok(Self::Oldest);
        }
        text.parse().map(Self::Position).map_err(|invalid: Invalid| {
            Invalid::new(invalid.what(), text, format!("{}, or oldest", invalid.rule()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_between_tokens_do_not_break_the_line() {
        assert_eq!(on_one_line("{\r\n\"a\":\n\"\\n\"}"), "{  \"a\": \"\\n\"}");
    }

    #[test]
    fn a_position_or_the_oldest_is_where_to_begin() {
        assert!(matches!("oldest".parse(), Ok(After::Oldest)));
        assert!(matches!("0123456789abcdef-7".parse(), Ok(After::Position(position)) if position.seq == 7));
        for bad in ["", "7", "newest", "0123456789abcdef-"] {
            let error = bad.parse::<After>().expect_err(bad).to_string();
            assert!(error.ends_with("such as \"0123456789abcdef-42\", or oldest"), "{error}");
        }
    }
}
