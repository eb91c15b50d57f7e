//! Conversations, faults and properties of the client protocol, without sockets and without waiting.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod codec;
mod conversation;
mod faults;
mod limits;
mod phoenix;
mod supabase;
mod tokens;
