//! Replicas against each other, without a bus, a task or a clock.

mod simulation;
mod stories;
mod world;
