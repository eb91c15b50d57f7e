//! `switchboard top`: the cluster, live, as one of its nodes sees it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use switchboard_core::types::Invalid;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::client::{Client, ClientArgs};
use crate::config::duration;
use crate::output;
use crate::stop::Stop;
use crate::top::{self, Answer, Key, Screen, View};

/// Ages are shown to the tenth of a second, but nobody watches them change.
const REDRAW: Duration = Duration::from_millis(500);

/// Longest wait for a list: meanwhile the last one is shown.
const LIMIT: Duration = Duration::from_secs(5);

/// What it takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Time from one look to the next: a duration from 100ms to 1h. What nodes tell is as new as their heartbeats.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,

    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stop = Stop::listen(false)?;
    let client = Client::new(args.client)?;
    let watch = async {
        // Whoever cannot be asked at all is told so in plain words, before the terminal is taken over.
        let view = View::new(Instant::now(), look(&client).await?);
        if top::is_available() {
            on_screen(&client, view, args.interval).await
        } else {
            as_lines(&client, view, args.interval).await
        }
    };
    tokio::select! {
        outcome = watch => outcome.map(|()| ExitCode::SUCCESS),
        _ = stop.asked() => Ok(ExitCode::SUCCESS),
    }
}

async fn look(client: &Client) -> anyhow::Result<Answer> {
    let answer = timeout(LIMIT, client.get(&["api", "admin", "cluster"])).await;
    Ok(answer.map_err(|_elapsed| {
        anyhow::anyhow!("the node at {} did not answer within {LIMIT:?}", client.url())
    })??)
}

/// Until somebody quits.
async fn on_screen(client: &Client, mut view: View, pause: Duration) -> anyhow::Result<()> {
    let mut screen = Screen::open()?;
    let mut redraw = interval(REDRAW);
    redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let next = || async move {
        tokio::time::sleep(pause).await;
        look(client).await
    };
    let mut looking = Box::pin(next());
    loop {
        screen.draw(&view)?;
        tokio::select! {
            _ = redraw.tick() => {}
            key = screen.key() => match key {
                Key::Quit => return Ok(()),
                Key::Scroll(by) => view.scroll(by),
                Key::Redraw => {}
            },
            answer = &mut looking => {
                match answer {
                    Ok(answer) => view.read(Instant::now(), answer),
                    Err(error) => view.fail(format!("{error:#}")),
                }
                looking = Box::pin(next());
            }
        }
    }
}

/// Until nobody reads them: a line for each node at each look, its fields separated by tabs.
async fn as_lines(client: &Client, mut view: View, pause: Duration) -> anyhow::Result<()> {
    output::line(top::head())?;
    loop {
        for line in top::lines(&view, Instant::now()) {
            output::line(line)?;
        }
        while let Err(error) = {
            tokio::time::sleep(pause).await;
            look(client).await.map(|answer| view.read(Instant::now(), answer))
        } {
            output::note(format_args!("{error:#}; trying again"));
        }
    }
}

fn parse_interval(text: &str) -> Result<Duration, Invalid> {
    let interval = duration::parse_at_most(text, Duration::from_hours(1))?;
    if interval < Duration::from_millis(100) {
        return Err(Invalid::new("duration", text, "must be at least 100ms"));
    }
    Ok(interval)
}
