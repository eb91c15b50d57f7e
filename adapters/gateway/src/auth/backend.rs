//! Signatures by `ring`, which is in the program for TLS already, behind the interface that `jsonwebtoken` wants.
//!
//! Exactly four algorithms, one for each kind of key. What else a token or a key asks for is refused.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents, UnparsedPublicKey,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| Ok(Box::new(Signing(supported(*algorithm, key.family())?, key.clone()))),
    verifier_factory: |algorithm, key| {
        Ok(Box::new(Verifying(supported(*algorithm, key.family())?, key.clone())))
    },
    // For making key sets, which nobody does here.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes signatures possible in this process. An embedding application that has chosen a provider by itself keeps it.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

/// The one algorithm that keys of a family are used with.
pub(super) fn algorithm(family: AlgorithmFamily) -> Algorithm {
    match family {
        AlgorithmFamily::Hmac => Algorithm::HS256,
        AlgorithmFamily::Rsa => Algorithm::RS256,
        AlgorithmFamily::Ec => Algorithm::ES256,
        AlgorithmFamily::Ed => Algorithm::EdDSA,
    }
}

fn supported(asked: Algorithm, family: AlgorithmFamily) -> Result<Algorithm, Error> {
    if asked == algorithm(family) { Ok(asked) } else { Err(ErrorKind::InvalidAlgorithm.into()) }
}

struct Verifying(Algorithm, DecodingKey);

impl Verifier<Vec<u8>> for Verifying {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let parameters = match self.0.family() {
            AlgorithmFamily::Hmac => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, bytes(&self.1)?);
                return hmac::verify(&key, message, signature).map_err(failed);
            }
            AlgorithmFamily::Rsa => {
                if let DecodingKeyKind::RsaModulusExponent { n, e } = self.1.kind() {
                    let key = RsaPublicKeyComponents { n, e };
                    return key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).map_err(failed);
                }
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, bytes(&self.1)?)
            }
            AlgorithmFamily::Ec => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, bytes(&self.1)?),
            AlgorithmFamily::Ed => UnparsedPublicKey::new(&ED25519, bytes(&self.1)?),
        };
        parameters.verify(message, signature).map_err(failed)
    }
}

impl JwtVerifier for Verifying {
    fn algorithm(&self) -> Algorithm {
        self.0
    }
}

struct Signing(Algorithm, EncodingKey);

impl Signer<Vec<u8>> for Signing {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        let (key, random) = (self.1.as_bytes(), SystemRandom::new());
        match self.0.family() {
            AlgorithmFamily::Hmac => {
                Ok(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec())
            }
            AlgorithmFamily::Rsa => {
                let pair = RsaKeyPair::from_der(key).map_err(failed)?;
                let mut made = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut made).map_err(failed)?;
                Ok(made)
            }
            AlgorithmFamily::Ec => {
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, &random);
                Ok(pair.map_err(failed)?.sign(&random, message).map_err(failed)?.as_ref().to_vec())
            }
            AlgorithmFamily::Ed => {
                // OpenSSL writes the private half alone.
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key).map_err(failed)?;
                Ok(pair.sign(message).as_ref().to_vec())
            }
        }
    }
}

impl JwtSigner for Signing {
    fn algorithm(&self) -> Algorithm {
        self.0
    }
}

fn bytes(key: &DecodingKey) -> Result<&[u8], signature::Error> {
    key.try_get_as_bytes().map_err(signature::Error::from_source)
}

/// Why is the library's secret, or of no use to whoever asked.
fn failed<E>(_reason: E) -> signature::Error {
    signature::Error::new()
}
