#![expect(clippy::disallowed_methods, reason = "the server ends with the test")]

use std::net::SocketAddr;

use navarch_base::error_chain::chain;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::super::connection;
use super::*;

/// A CA and its files, in PEM.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: String,
}

/// A certificate and its key, in PEM.
struct Leaf {
    chain: String,
    key: String,
    params: CertificateParams,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            root,
        }
    }

    fn leaf(&self, name: &str) -> Leaf {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(77));
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Leaf {
            chain,
            key: key.serialize_pem(),
            params,
        }
    }

    /// A revocation list with these certificates.
    fn revokes(&self, leaf: &[&Leaf]) -> String {
        let revoked = leaf.iter().map(|leaf| RevokedCertParams {
            serial_number: leaf.params.serial_number.clone().unwrap(),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2999, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// A server that reports the SNI of each client, and whether the client sent a certificate.
struct Server {
    address: SocketAddr,
    seen: mpsc::Receiver<(Option<String>, bool)>,
    serve: JoinHandle<()>,
}

impl Server {
    async fn start(leaf: &Leaf, clients: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(
            readable_certificates(clients.root.as_bytes(), "root").unwrap(),
        );
        let provider = navarch_net::cryptography::provider();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let verifier = verifier.allow_unauthenticated().build().unwrap();

        let key = private_key(leaf.key.as_bytes(), "key").unwrap();
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = builder.with_client_cert_verifier(verifier);
        let mut config = builder
            .with_single_cert(
                readable_certificates(leaf.chain.as_bytes(), "chain").unwrap(),
                key,
            )
            .unwrap();

        config.alpn_protocols = vec![b"h2".to_vec()];
        let (sender, seen) = mpsc::channel(64);
        let serve = tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));

            // Connections stay open while the server runs.
            let mut open = Vec::new();

            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let session = stream.get_ref().1;
                let seen = (
                    session.server_name().map(str::to_owned),
                    session.peer_certificates().is_some(),
                );
                _ = sender.try_send(seen);
                open.push(stream);
            }
        });

        Self {
            address,
            seen,
            serve,
        }
    }

    /// Connects with these settings; returns what the server observed, or the error.
    async fn connect(
        &mut self,
        settings: &ClientTlsSettings,
    ) -> Result<(Option<String>, bool), String> {
        let tls = client(settings, None, &Namespace::default())
            .await
            .map_err(|error| chain(&error))?;
        connection::connect(&self.address.to_string(), tls)
            .await
            .map_err(|error| chain(&error))?;
        Ok(self.seen.recv().await.unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serve.abort();
    }
}

/// Valid settings for a server `istiod.west` with a certificate of this CA.
fn simple(authority: &Authority) -> ClientTlsSettings {
    ClientTlsSettings {
        mode: ClientTlsMode::Simple,
        sni: "istiod.west".to_owned(),
        ca_certificates: authority.root.clone(),
        ..ClientTlsSettings::default()
    }
}

#[tokio::test]
async fn every_setting_has_its_effect() {
    let authority = Authority::new();
    let other = Authority::new();
    let served = authority.leaf("istiod.west");
    let own = authority.leaf("istiod.east");
    let mut server = Server::start(&served, &authority).await;
    let simple = simple(&authority);
    let seen = |sni: &str, certificate| Ok((Some(sni.to_owned()), certificate));
    assert_eq!(server.connect(&simple).await, seen("istiod.west", false));

    // The settings may name files, which are read for each connection.
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };

    let mutual = ClientTlsSettings {
        mode: ClientTlsMode::Mutual,
        ca_certificates: file("root.pem", &authority.root),
        client_certificate: file("chain.pem", &own.chain),
        private_key: file("key.pem", &own.key),
        subject_alt_names: vec!["istiod.north".to_owned(), "istiod.west".to_owned()],
        ..simple.clone()
    };

    assert_eq!(server.connect(&mutual).await, seen("istiod.west", true));
    file("root.pem", &other.root);
    assert!(
        server
            .connect(&mutual)
            .await
            .unwrap_err()
            .contains("invalid peer certificate")
    );

    let unchecked = ClientTlsSettings {
        insecure_skip_verify: Some(true),
        sni: "anything".to_owned(),
        subject_alt_names: vec!["istiod.north".to_owned()],
        ..simple.clone()
    };

    assert_eq!(server.connect(&unchecked).await, seen("anything", false));
    let current = ClientTlsSettings {
        ca_crl: authority.revokes(&[]),
        ..simple.clone()
    };
    assert_eq!(
        server.connect(&current).await,
        seen("istiod.west", false),
        "a list without this certificate"
    );

    assert!(
        client(&ClientTlsSettings::default(), None, &Namespace::default())
            .await
            .unwrap()
            .is_none(),
        "plain text"
    );
}

#[tokio::test]
async fn invalid_tls_settings_and_wrong_peers_are_rejected_with_a_reason() {
    let authority = Authority::new();
    let served = authority.leaf("istiod.west");
    let own = authority.leaf("istiod.east");
    let mut server = Server::start(&served, &authority).await;
    let simple = simple(&authority);
    let mutual = ClientTlsSettings {
        mode: ClientTlsMode::Mutual,
        ..simple.clone()
    };

    let with = |change: fn(&mut ClientTlsSettings)| {
        let mut settings = simple.clone();
        change(&mut settings);
        settings
    };
    let nobody = "/nowhere/root.pem";
    let rejected = [
        (
            with(|tls| tls.sni = "istiod.east".to_owned()),
            "not valid for name",
        ),
        (with(|tls| tls.sni.clear()), "not valid for name"),
        (
            with(|tls| tls.subject_alt_names = vec!["istiod.north".to_owned()]),
            "the server certificate's names istiod.west match none of subjectAltNames istiod.north",
        ),
        (
            ClientTlsSettings {
                ca_crl: authority.revokes(&[&served]),
                ..simple.clone()
            },
            "Revoked",
        ),
        (
            with(|tls| tls.ca_crl = "-----BEGIN nothing".to_owned()),
            "no PEM certificate revocation list in caCrl",
        ),
        (
            with(|tls| tls.ca_certificates = "-----BEGIN nothing".to_owned()),
            "no PEM certificate in caCertificates",
        ),
        (
            ClientTlsSettings {
                ca_certificates: nobody.to_owned(),
                ..simple.clone()
            },
            "failed to read /nowhere/root.pem",
        ),
        (
            with(|tls| tls.mode = ClientTlsMode::Mutual),
            "clientCertificate is required for mode MUTUAL",
        ),
        (
            with(|tls| tls.mode = ClientTlsMode::IstioMutual),
            "mode ISTIO_MUTUAL is not supported for configSources",
        ),
        (
            with(|tls| tls.credential_name = "west".to_owned()),
            "no cluster to read Secret \"west\" from",
        ),
        (
            with(|tls| tls.ca_cert_credential_name = "west".to_owned()),
            "caCertCredentialName is not supported for configSources",
        ),
        (
            ClientTlsSettings {
                private_key: own.chain.clone(),
                client_certificate: own.chain.clone(),
                ..mutual.clone()
            },
            "no PEM private key in privateKey",
        ),
        (
            ClientTlsSettings {
                private_key: served.key.clone(),
                client_certificate: own.chain.clone(),
                ..mutual.clone()
            },
            "invalid clientCertificate or privateKey",
        ),
    ];

    for (settings, reason) in rejected {
        let error = server.connect(&settings).await.unwrap_err();
        assert!(error.contains(reason), "{reason}: {error}");
    }
}
