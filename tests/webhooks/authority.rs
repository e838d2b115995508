//! An external CA, in a directory in the form of the mounted Secret `cacerts`.

use std::path::Path;

use ::base64::Engine;
use ::base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

/// A directory with a CA.
pub(crate) struct Authority {
    folder: TempDir,
}

impl Authority {
    /// Creates a CA in a new directory.
    pub(crate) fn new() -> Self {
        let authority = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        authority.replace();
        authority
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its root in PEM.
    pub(crate) fn root(&self) -> String {
        std::fs::read_to_string(self.folder().join("root-cert.pem")).unwrap()
    }

    /// Replaces it by a CA with another root.
    pub(crate) fn replace(&self) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];

        let certificate = params.self_signed(&key).unwrap().pem();
        let write =
            |name: &str, text: &str| std::fs::write(self.folder().join(name), text).unwrap();
        write("ca-key.pem", &key.serialize_pem());
        for name in ["ca-cert.pem", "cert-chain.pem", "root-cert.pem"] {
            write(name, &certificate);
        }
    }
}

/// Decodes base64; empty if invalid.
pub(crate) fn text(encoded: &str) -> String {
    String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap_or_default()).unwrap_or_default()
}
