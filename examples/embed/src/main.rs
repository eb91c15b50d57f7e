//! The shop at a terminal: each line is an order, and every instance prints all of them.
//!
//!     DATABASE_URL=postgres://… cargo run -p switchboard-example-embed -- shop-1 127.0.0.1:5001

use anyhow::Context;
use futures::StreamExt;
use switchboard_example_embed::{Shop, Told};
use tokio::sync::mpsc;

#[tokio::main]
#[allow(clippy::print_stdout, reason = "it talks to the person at the terminal")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (name, endpoint) = arguments.next().zip(arguments.next()).context("usage: shop NAME HOST:PORT")?;
    let database = std::env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
    let shop = Shop::open(&database, &name, &endpoint).await?;
    println!("open: {}", shop.instances().join(", "));
    let (mut told, mut lines) = (shop.watch().await?, typed());
    let outcome = loop {
        tokio::select! {
            Some(told) = told.next() => match told {
                Told::Order(item) => println!("ordered: {item}"),
                Told::ReadAgain => println!("orders may be missing above"),
            },
            line = lines.recv() => match line {
                Some(item) => println!("taken: {item} at {}", shop.order(&item).await?),
                None => break Ok(()),
            },
            _ = tokio::signal::ctrl_c() => break Ok(()),
            error = shop.ended() => break Err(error),
        }
    };
    shop.close().await;
    outcome
}

/// On a thread of its own: what waits for a line cannot be stopped, and one of Tokio's would keep the process from ending.
fn typed() -> mpsc::UnboundedReceiver<String> {
    let (lines, typed) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
    });
    typed
}
