//! Who a process is to its peers: a key pair of its own, made at boot, never stored, named by the SHA-256 of its public key.
//!
//! Keys travel as raw public keys (RFC 7250). There is no certificate, so there is no name, address or date in one that could be wrong.

use std::fmt;
use std::sync::Arc;

use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use crate::error::MeshError;

/// The key pair of this process.
#[derive(Clone)]
pub(crate) struct KeyPair {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) fingerprint: Fingerprint,
}

impl KeyPair {
    pub(crate) fn generate() -> Result<Self, MeshError> {
        let secret = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| MeshError::Key)?;
        let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(secret.as_ref())).map_err(|_| MeshError::Key)?;
        let public = key.public_key().ok_or(MeshError::Key)?.to_vec();
        let fingerprint = Fingerprint::of(&public);
        Ok(Self {
            certified: Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key)),
            fingerprint,
        })
    }
}

/// SHA-256 of a public key (its `SubjectPublicKeyInfo`), shown as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    pub(crate) fn of(public_key: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, public_key).as_ref());
        Self(bytes)
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_has_another_key_and_its_name_survives_its_text_form() {
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        assert_ne!(one.fingerprint, other.fingerprint);
        assert_eq!(Fingerprint::parse(&one.fingerprint.to_string()), Some(one.fingerprint));
        for bad in ["", "00", &"g".repeat(64), &"0".repeat(65), &"é".repeat(32)] {
            assert_eq!(Fingerprint::parse(bad), None, "{bad:?}");
        }
    }
}
