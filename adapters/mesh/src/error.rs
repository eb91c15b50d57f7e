//! What can go wrong before there is a mesh. Once there is one, failures are of single links, and heal or are fallen back from.

use std::io;

/// Why a mesh could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// The address cannot be had. Retry only with another one.
    #[error("cannot open a UDP socket on {address}")]
    Bind {
        /// Where it was to be.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// No key could be made: the system gives no random numbers, or TLS lacks what the mesh needs. Do not retry.
    #[error("cannot make a key for the mesh")]
    Key,
}
