//! What a node tells about itself with each heartbeat.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A JSON object of measurements. Whatever keys are present are shown; none is required.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stats(pub Map<String, Value>);

impl From<Map<String, Value>> for Stats {
    fn from(map: Map<String, Value>) -> Self {
        Self(map)
    }
}
