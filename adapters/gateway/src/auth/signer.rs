//! The other side: makes tokens, for `switchboard token`, tests, and applications that are their own issuer.

use jsonwebtoken::{EncodingKey, Header, encode};
use serde::Serialize;
use switchboard_core::types::Invalid;

use super::{Keys, backend};

/// Makes tokens with one key. `Debug` does not show it.
#[derive(Debug)]
pub struct Signer(EncodingKey);

/// Why a token could not be made: the claims cannot be written as JSON, or the key does not sign.
#[derive(Debug, thiserror::Error)]
#[error("cannot sign the token: {0}")]
pub struct SignError(#[from] jsonwebtoken::errors::Error);

impl Signer {
    /// Signs with HS256 and a secret of at least 32 bytes. The error does not repeat it.
    pub fn secret(secret: &str) -> Result<Self, Invalid> {
        let refuse = |_| Invalid::new("secret", "(hidden)", "must not be empty");
        Keys::secret(secret)?;
        Ok(Self(EncodingKey::from_secret(secret.as_bytes()).map_err(refuse)?))
    }

    /// Signs with a private key in PEM: RSA (RS256), P-256 (ES256) or Ed25519 (EdDSA), the latter two in PKCS #8.
    /// The error does not repeat it.
    pub fn pem(text: &str) -> Result<Self, Invalid> {
        const RULE: &str = "must be one private key in PEM: RSA of 2048 bits or more, or P-256 or Ed25519 in PKCS #8 \
                            (-----BEGIN PRIVATE KEY-----)";
        backend::install();
        let key = EncodingKey::from_rsa_pem(text.as_bytes())
            .or_else(|_| EncodingKey::from_ec_pem(text.as_bytes()))
            .or_else(|_| EncodingKey::from_ed_pem(text.as_bytes()));
        // Whether a key is any good shows when it signs.
        let signer = key.ok().map(Self).filter(|signer| signer.sign(&()).is_ok());
        signer.ok_or_else(|| Invalid::new("key", "(hidden)", RULE))
    }

    /// The token that makes these claims.
    pub fn sign(&self, claims: &impl Serialize) -> Result<String, SignError> {
        Ok(encode(&Header::new(backend::algorithm(self.0.family())), claims, &self.0)?)
    }
}
