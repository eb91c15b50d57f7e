//! Waiting says what it waited for.

use std::time::Duration;

use switchboard_testkit::eventually;

#[tokio::test(start_paused = true)]
async fn a_condition_that_comes_true_ends_the_wait() {
    let mut asked = 0;
    eventually(Duration::from_secs(5), "three questions", async || {
        asked += 1;
        asked == 3
    })
    .await;
    assert_eq!(asked, 3);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "not within 5s: the sky falls")]
async fn a_condition_that_never_comes_true_is_named() {
    eventually(Duration::from_secs(5), "the sky falls", async || false).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "not within 5s: an answer")]
async fn a_condition_that_hangs_is_named() {
    eventually(Duration::from_secs(5), "an answer", async || std::future::pending().await).await;
}
