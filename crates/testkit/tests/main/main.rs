//! The testkit tests itself: suites that can fail, a proxy and processes that do what they say.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod calibration;
mod process;
mod proxy;
mod wait;
