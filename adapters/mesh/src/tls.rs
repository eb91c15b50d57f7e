//! The handshake: TLS 1.3, both ends prove that they hold the key that the registry lists for them. Who cannot is refused before a
//! single frame is read.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    ServerConfig, SignatureScheme,
};
use switchboard_core::types::Identity;

use crate::error::MeshError;
use crate::key::{Fingerprint, KeyPair};
use crate::members::Trusted;

/// The protocol with its major version: who speaks another one is refused in the handshake.
const ALPN: &[u8] = b"switchboard-mesh/1";

/// What the dialler asks for by name; keys are checked, names are not.
pub(crate) const SERVER_NAME: &str = "switchboard-mesh";

/// For those who are dialled.
pub(crate) fn server(key: &KeyPair, trusted: &Trusted) -> Result<QuicServerConfig, MeshError> {
    let proof = Arc::new(Proof { provider: provider(), trusted: trusted.clone(), expected: None });
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|_| MeshError::Key)?
        .with_client_cert_verifier(proof)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&key.certified))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // No resumption: every connection proves its keys anew.
    config.send_tls13_tickets = 0;
    QuicServerConfig::try_from(config).map_err(|_| MeshError::Key)
}

/// For one dial, to the holder of `expected`.
pub(crate) fn client(
    key: &KeyPair,
    trusted: &Trusted,
    expected: Fingerprint,
) -> Result<QuicClientConfig, MeshError> {
    let proof = Arc::new(Proof { provider: provider(), trusted: trusted.clone(), expected: Some(expected) });
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|_| MeshError::Key)?
        .dangerous()
        .with_custom_certificate_verifier(proof)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
            &key.certified,
        ))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    QuicClientConfig::try_from(config).map_err(|_| MeshError::Key)
}

/// Who is at the other end, as the registry has it now.
pub(crate) fn peer(connection: &quinn::Connection, trusted: &Trusted) -> Option<Identity> {
    let keys = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    trusted.owner(&Fingerprint::of(keys.first()?))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Checks the other end's key against the registry.
#[derive(Debug)]
struct Proof {
    provider: Arc<CryptoProvider>,
    trusted: Trusted,
    /// The key of whoever was dialled.
    expected: Option<Fingerprint>,
}

impl Proof {
    fn check(&self, key: &[u8]) -> Result<(), Error> {
        let key = Fingerprint::of(key);
        let meant = self.expected.is_none_or(|expected| expected == key);
        if meant && self.trusted.owner(&key).is_some() {
            return Ok(());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }
}

fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic))
}

impl ServerCertVerifier for Proof {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Proof {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
