//! Tokens: from the text that a client sends to what it may do. Knows nothing of HTTP; every transport asks the same [`Verifier`].
//!
//! A token is a JSON Web Token (RFC 7519) in its compact form, signed with HS256, RS256, ES256 (P-256) or EdDSA (Ed25519).
//!
//! | claim | |
//! |---|---|
//! | `exp` | seconds since 1970 from which on it is worth nothing; required |
//! | `nbf` | seconds since 1970 before which it is worth nothing |
//! | `aud`, `iss` | checked when [`Rules`] name one; `aud` may be an array |
//! | `sub` | who it is |
//! | `channels` | an object: channel pattern → array of `subscribe`, `publish`, `durable`, `presence`; patterns add up, and without it there are no rights |
//!
//! Invariants: the algorithm is the key's, never the token's word; the leeway of [`Rules`] is the only one; and no token, nor a part
//! of one that was not proven genuine, gets into a message, a log or a `Debug`.

mod backend;
mod claims;
mod expiry;
mod jwks;
mod keys;
mod signer;
mod verifier;

pub use claims::Rules;
pub(crate) use expiry::expiry;
pub use jwks::{JwksError, JwksFile};
pub use keys::Keys;
pub use signer::{SignError, Signer};
pub use verifier::{AuthConfig, Verifier};
