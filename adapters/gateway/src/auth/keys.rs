//! The keys that tokens may be signed with, in the forms in which operators have them.
//!
//! Invariant: each key knows its one algorithm. What a token says about itself only chooses among keys, and never how one is used: so a
//! public key is no HMAC secret, and `alg: none` is no algorithm.

use std::fmt;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Header, Validation, decode, decode_header};
use switchboard_core::access::AuthError;
use switchboard_core::types::Invalid;

use super::backend;
use super::claims::Claims;

/// Shortest secret: a shorter one than the hash is weaker than the hash (RFC 7518, 3.2).
const MIN_SECRET: usize = 32;

/// Shortest modulus of an RSA key: 2048 bits.
const MIN_MODULUS: usize = 256;

/// An uncompressed point of P-256, as public keys are.
const POINT: usize = 65;

/// Longest token, in bytes. A larger one is refused unread.
const MAX_TOKEN: usize = 16 * 1024;

/// Keys that tokens may be signed with. `Debug` shows how many, and no key.
#[derive(Clone, Default)]
pub struct Keys(Vec<Key>);

#[derive(Clone)]
struct Key {
    /// A token that names a key is checked by that one, and by those without a name.
    id: Option<String>,
    algorithm: Algorithm,
    decoding: DecodingKey,
}

impl Keys {
    /// One shared secret, for HS256: at least 32 bytes. The error does not repeat it.
    pub fn secret(secret: &str) -> Result<Self, Invalid> {
        backend::install();
        if secret.len() < MIN_SECRET {
            return Err(Invalid::new("secret", "(hidden)", "must be at least 32 bytes"));
        }
        let key = DecodingKey::from_secret(secret.as_bytes());
        let key = key.map_err(|_error| Invalid::new("secret", "(hidden)", "must not be empty"))?;
        Ok(Self(vec![Key::new(None, key)]))
    }

    /// One or more public keys in PEM: RSA (for RS256), P-256 (for ES256) or Ed25519 (for EdDSA). The error repeats nothing of it: it
    /// might be the private one.
    pub fn pem(text: &str) -> Result<Self, Invalid> {
        const BEGIN: &str = "-----BEGIN ";
        const RULE: &str = "must be public keys in PEM (-----BEGIN PUBLIC KEY-----): RSA of 2048 bits or more, P-256 or Ed25519";
        backend::install();
        let refuse = || Invalid::new("key", "(hidden)", RULE);
        let blocks = text.match_indices(BEGIN).map(|(at, _)| {
            let rest = &text[at..];
            let end = rest[BEGIN.len()..].find(BEGIN).map_or(rest.len(), |next| BEGIN.len() + next);
            &rest[..end]
        });
        let keys: Vec<_> = blocks
            .map(|block| {
                if !block.lines().next().is_some_and(|label| label.ends_with("PUBLIC KEY-----")) {
                    return Err(refuse());
                }
                let key = DecodingKey::from_rsa_pem(block.as_bytes())
                    .or_else(|_| DecodingKey::from_ec_pem(block.as_bytes()))
                    .or_else(|_| DecodingKey::from_ed_pem(block.as_bytes()));
                key.ok().filter(is_usable).map(|key| Key::new(None, key)).ok_or_else(refuse)
            })
            .collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(refuse()) } else { Ok(Self(keys)) }
    }

    /// A JSON Web Key Set (RFC 7517). Keys for other purposes, and of kinds that are not used here, are left out; none at all
    /// that can be used is an error. An `oct` key is a secret for HS256.
    pub fn jwks(text: &str) -> Result<Self, Invalid> {
        backend::install();
        let refuse = |rule: String| Invalid::new("key set", "(hidden)", rule);
        let set: JwkSet = serde_json::from_str(text)
            .map_err(|error| refuse(format!("must be a JSON Web Key Set (line {})", error.line())))?;
        let keys: Vec<_> = set.keys.iter().filter_map(Key::from_jwk).collect();
        if keys.is_empty() {
            let kinds = "RS256 of 2048 bits or more, ES256, EdDSA (Ed25519) or HS256 of 32 bytes or more";
            return Err(refuse(format!("must hold a key for signatures: {kinds}")));
        }
        Ok(Self(keys))
    }

    /// These, and those of `others`.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        self.0.extend_from_slice(&others.0);
        self
    }

    /// Whether no token can be checked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What `token` claims, if it is signed with one of these keys.
    pub(super) fn open(&self, token: &str) -> Result<Claims, AuthError> {
        if token.len() > MAX_TOKEN {
            return invalid(format!("it is longer than {MAX_TOKEN} bytes"));
        }
        let Ok(header) = decode_header(token) else {
            return invalid("it is no signed JSON Web Token with an algorithm that is known here");
        };
        let mut reason = "there is no key here for its `alg` and `kid`";
        for key in self.0.iter().filter(|key| key.fits(&header)) {
            match decode(token, &key.decoding, &signature_only(key.algorithm)) {
                Ok(token) => return Ok(token.claims),
                Err(error) => match error.kind() {
                    ErrorKind::InvalidSignature => reason = "it is not signed with a key that is known here",
                    // Its signature was right, so it can be told.
                    ErrorKind::Json(_) => {
                        return invalid("its claims are no JSON object, or one is repeated");
                    }
                    _ => return invalid("it is malformed"),
                },
            }
        }
        invalid(reason)
    }
}

impl Key {
    fn new(id: Option<String>, decoding: DecodingKey) -> Self {
        Self { id, algorithm: backend::algorithm(decoding.family()), decoding }
    }

    /// `None` if it is not for checking signatures by one of the four algorithms.
    fn from_jwk(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        let is_for_signatures =
            common.public_key_use.as_ref().is_none_or(|use_| *use_ == PublicKeyUse::Signature)
                && common
                    .key_operations
                    .as_ref()
                    .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        let is_our_curve = match &jwk.algorithm {
            AlgorithmParameters::EllipticCurve(key) => key.curve == EllipticCurve::P256,
            AlgorithmParameters::OctetKeyPair(key) => key.curve == EllipticCurve::Ed25519,
            _ => true,
        };
        let decoding = DecodingKey::from_jwk(jwk).ok().filter(is_usable)?;
        let key = Self::new(common.key_id.clone(), decoding);
        let is_our_algorithm = common.key_algorithm.is_none_or(|named| named == key.algorithm.into());
        (is_for_signatures && is_our_curve && is_our_algorithm).then_some(key)
    }

    fn fits(&self, header: &Header) -> bool {
        let is_meant = match (&self.id, &header.kid) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        is_meant && header.alg == self.algorithm
    }
}

/// Strong enough, and of the curve that its algorithm wants.
fn is_usable(key: &DecodingKey) -> bool {
    use jsonwebtoken::DecodingKeyKind::{RsaModulusExponent, SecretOrDer};
    match (key.family(), key.kind()) {
        (AlgorithmFamily::Hmac, SecretOrDer(secret)) => secret.len() >= MIN_SECRET,
        (AlgorithmFamily::Rsa, RsaModulusExponent { n, .. }) => {
            n.iter().skip_while(|byte| **byte == 0).count() >= MIN_MODULUS
        }
        (AlgorithmFamily::Rsa, SecretOrDer(der)) => der.len() > MIN_MODULUS,
        (AlgorithmFamily::Ec, SecretOrDer(point)) => point.len() == POINT,
        (AlgorithmFamily::Ed, SecretOrDer(point)) => point.len() == 32,
        _ => false,
    }
}

/// Times, audience and issuer are checked by [`Rules`](super::Rules), with a clock and a leeway that are ours.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation
}

fn invalid<T>(reason: impl Into<String>) -> Result<T, AuthError> {
    Err(AuthError::Invalid(reason.into()))
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}
