//! Two instances of the shop on one PostgreSQL.

#![allow(clippy::unwrap_used, reason = "tests may stop at the first surprise")]

use futures::StreamExt;
use switchboard_core::ports::EphemeralItem;
use switchboard_example_embed::{Shop, Told};
use switchboard_testkit::{LONG, eventually, postgres};
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread")]
async fn instances_know_each_other_and_every_order() {
    let database = postgres::own(&[]).await;
    let here = Shop::open(database.url(), "here", "127.0.0.1:5001").await.unwrap();
    here.order("tea").await.unwrap();
    let there = Shop::open(database.url(), "there", "127.0.0.1:5002").await.unwrap();
    eventually(LONG, "they know each other", async || here.instances() == ["here", "there"]).await;

    let mut told = there.watch().await.unwrap();
    let positions = [here.order("milk").await.unwrap(), there.order("\"sugar\"").await.unwrap()];
    assert_eq!(positions.map(|position| position.seq), [2, 3]);
    for item in ["tea", "milk", "\"sugar\""] {
        assert_eq!(timeout(LONG, told.next()).await.unwrap(), Some(Told::Order(item.to_owned())));
    }

    let mut hesitations = there.hesitations().await.unwrap();
    here.hesitate("Alice").await.unwrap();
    let Some(EphemeralItem::Event(event)) = timeout(LONG, hesitations.next()).await.unwrap() else {
        panic!("nothing came")
    };
    assert_eq!((event.event.as_str(), event.payload.as_str()), ("hesitates", "\"Alice\""));

    here.close().await;
    eventually(LONG, "the other one knows", async || there.instances() == ["there"]).await;
    there.close().await;
}
