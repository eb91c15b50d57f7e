//! What the process that runs the check and its nodes tell each other, line by line, as JSON.

use serde::{Deserialize, Serialize};
use switchboard_core::types::{Channel, Position};
use switchboard_testkit::history::Record;

/// The first line of a node's input: all that it has to know. The end of its input is the end of the node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The way to PostgreSQL, through this node's proxy.
    pub(crate) url: String,
    pub(crate) schema: String,
    pub(crate) name: String,
    /// No other process of the run has this number; it makes the node's tokens and operations unique.
    pub(crate) number: u32,
    pub(crate) seed: u64,
    pub(crate) publishers: u16,
    /// Who follows what, and after which position.
    pub(crate) subscribers: Vec<Following>,
}

/// One subscriber.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Following {
    pub(crate) by: String,
    pub(crate) channel: Channel,
    pub(crate) after: Position,
    /// It drops its subscription at random and subscribes again.
    pub(crate) restless: bool,
}

/// The second line of a node's input: publish no more.
pub(crate) const QUIET: &str = "quiet";

/// A line of a node's output.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// This is about to happen, or has happened.
    Record(Record),
    /// No publisher is at work any more.
    Quiet,
}
