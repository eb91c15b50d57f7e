//! What may be wrong between nodes and their registry.

/// The state of a path to the registry: one node's, or everybody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Link {
    /// Works.
    #[default]
    Up,
    /// Refused at once, as a closed port does.
    Down,
    /// Requests vanish: nothing happens and nobody answers.
    RequestsLost,
    /// Requests are on their way for as long as this lasts, and are then carried out, whether or not their caller still waits.
    RequestsHeld,
    /// Requests are carried out, and nobody answers.
    AnswersLost,
}
