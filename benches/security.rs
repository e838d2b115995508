//! The cost of the CA and of TLS: signing certificates, accepting TLS connections, authenticating
//! callers.

#![allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the macros of criterion generate functions without docs, a bench that cannot start must fail, and prints what it measures"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "certificates and tokens have validity periods"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http::{HeaderMap, HeaderValue};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use navarch::api::identity::Identity;
use navarch::pki::{KeyType, SigningRequest};
use navarch::security::authenticate::{
    Authenticator, Credentials, JwtAuthenticator, JwtRule, TrustedNetworks,
};
use navarch::security::ca::{Authority, Bundle, Subject, in_force};
use navarch::security::serving::{self, ServerCertificate, ServingConfig, ServingTls};
use navarch::security::tls_rules::TlsRules;
use navarch_tests::bare_mesh;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};
use serde_json::json;
use tokio::sync::watch;

use bare_mesh::Mesh;

/// The server's allocator, which is part of the cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The lifetime of certificates and tokens.
const DAY: Duration = Duration::from_secs(86_400);

/// A self-signed CA.
fn authority(key: KeyType) -> Authority {
    let now = SystemTime::now();
    Authority::new(
        &Bundle::self_signed("cluster.local", key, 100 * DAY, now).unwrap(),
        now,
    )
    .unwrap()
}

fn workload() -> Subject {
    Subject::Workload(Identity::parse("spiffe://cluster.local/ns/shop/sa/web").unwrap())
}

/// Parsing, checking and signing CSRs one at a time: the throughput of one core.
fn signing(c: &mut Criterion) {
    let mut group = c.benchmark_group("certificates");
    group.throughput(Throughput::Elements(1));

    for (ca, ca_key) in [("P-256", KeyType::P256), ("RSA", KeyType::Rsa2048)] {
        let authority = authority(ca_key);

        for (name, algorithm) in [
            ("P-256", &PKCS_ECDSA_P256_SHA256),
            ("RSA", &PKCS_RSA_SHA256),
        ] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let csr = CertificateParams::default()
                .serialize_request(&key)
                .unwrap()
                .pem()
                .unwrap();
            group.bench_function(format!("{name} by {ca}"), |b| {
                b.iter(|| {
                    let request = SigningRequest::parse(black_box(&csr)).unwrap();
                    authority
                        .sign(&request, &workload(), DAY, SystemTime::now())
                        .unwrap()
                });
            });
        }
    }
}

/// The server's TLS configuration, and a CA that signs client certificates.
fn server() -> (ServingTls, Arc<Authority>) {
    let (switch, current) = in_force(authority(KeyType::P256));
    let certificate = ServerCertificate::Issued(serving::host_names("istio-system", "", ""));
    let config = ServingConfig {
        certificate,
        further_roots: Vec::new(),
        signer_roots: watch::channel(Arc::default()).1,
        rules: TlsRules::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (tls, _renewal) = runtime
        .block_on(serving::start(current, config, SystemTime::now))
        .unwrap();
    (tls, switch.current())
}

/// Performs a handshake in memory; returns the bytes that both sides have sent.
fn shake_hands(client: Arc<ClientConfig>, tls: &ServingTls) -> usize {
    let name = ServerName::try_from("istiod.istio-system.svc").unwrap();
    let mut client = ClientConnection::new(client, name).unwrap();
    let mut server = ServerConnection::new(tls.get()).unwrap();
    let mut wire = Vec::with_capacity(8 << 10);
    let mut sent = 0;

    while client.is_handshaking() || server.is_handshaking() {
        wire.clear();
        sent += client.write_tls(&mut wire).unwrap();
        let mut read = wire.as_slice();
        while !read.is_empty() {
            server.read_tls(&mut read).unwrap();
            server.process_new_packets().unwrap();
        }

        wire.clear();
        sent += server.write_tls(&mut wire).unwrap();
        let mut read = wire.as_slice();
        while !read.is_empty() {
            client.read_tls(&mut read).unwrap();
            client.process_new_packets().unwrap();
        }
    }

    sent
}

/// A key exchange of TLS, by the name that reports show.
struct KeyExchange {
    name: &'static str,
    group: &'static dyn SupportedKxGroup,
}

/// The one that is offered first, and the one that clients without post-quantum cryptography take.
const KEY_EXCHANGES: [KeyExchange; 2] = [
    KeyExchange {
        name: "X25519MLKEM768",
        group: kx_group::X25519MLKEM768,
    },
    KeyExchange {
        name: "X25519",
        group: kx_group::X25519,
    },
];

/// Accepting connections; the client's half of the handshake is included.
fn accepting(c: &mut Criterion) {
    let (tls, authority) = server();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authority.root_certificates().iter().cloned());
    let builder = |exchange: &KeyExchange| {
        let provider = CryptoProvider {
            kx_groups: vec![exchange.group],
            ..CryptoProvider::clone(&navarch_net::cryptography::provider())
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        builder.with_root_certificates(roots.clone())
    };

    let (chain, key) = authority
        .issue(&workload(), DAY, SystemTime::now())
        .unwrap();
    let mut group = c.benchmark_group("TLS, both ends");
    group.throughput(Throughput::Elements(1));

    for exchange in &KEY_EXCHANGES {
        let own_key = PrivateKeyDer::from(key.clone_key());
        let mutual = builder(exchange)
            .with_client_auth_cert(chain.clone(), own_key)
            .unwrap();

        for (kind, mut config) in [
            ("server alone", builder(exchange).with_no_client_auth()),
            ("mutual", mutual),
        ] {
            // Without resumption every handshake is a full one.
            config.resumption = rustls::client::Resumption::disabled();
            config.alpn_protocols = vec![b"h2".to_vec()];
            let config = Arc::new(config);
            let name = format!("{kind}, {}", exchange.name);
            println!("{name}: {} bytes", shake_hands(config.clone(), &tls));
            group.bench_function(name, |b| b.iter(|| shake_hands(config.clone(), &tls)));
        }
    }
}

/// The JWT rule of an issuer, and one of its tokens.
fn issuer() -> (JwtRule, String) {
    let key = KeyPair::generate().unwrap();
    let point = key.public_key_raw();
    let part = |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + 32).unwrap());
    let jwk = json!({ "kty": "EC", "crv": "P-256", "kid": "one", "x": part(1), "y": part(33) });
    let rule = JwtRule {
        issuer: "https://issuer.example".to_owned(),
        audiences: vec!["istio-ca".to_owned()],
        jwks: json!({ "keys": [jwk] }).to_string(),
        ..JwtRule::default()
    };

    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let claims = json!({
        "iss": rule.issuer, "aud": rule.audiences, "sub": "system:serviceaccount:shop:web", "exp": now + 86_400,
    });
    let header = Header {
        kid: Some("one".into()),
        ..Header::new(Algorithm::ES256)
    };

    let token = jsonwebtoken::encode(
        &header,
        &claims,
        &EncodingKey::from_ec_der(&key.serialize_der()),
    )
    .unwrap();

    (rule, token)
}

/// Authenticating callers, one per request.
fn admitting(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (rule, token) = issuer();
    let jwt = JwtAuthenticator::new(rule).unwrap();
    let authenticator =
        Authenticator::new(Arc::new(Mesh), Some(jwt), None, TrustedNetworks::default());

    let bearer = |token: &str| {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        HeaderMap::from_iter([(http::header::AUTHORIZATION, value)])
    };
    let (chain, _) = authority(KeyType::P256)
        .issue(&workload(), DAY, SystemTime::now())
        .unwrap();
    let forged = format!("{}AAAA", token.get(..token.len() - 4).unwrap());

    let cases: [(&str, Vec<CertificateDer<'static>>, HeaderMap); 4] = [
        ("certificate", chain, HeaderMap::new()),
        ("token", Vec::new(), bearer(&token)),
        ("forged token", Vec::new(), bearer(&forged)),
        ("nothing", Vec::new(), HeaderMap::new()),
    ];

    let mut group = c.benchmark_group("callers");
    group.throughput(Throughput::Elements(1));

    for (name, certificates, headers) in &cases {
        let shown = Credentials {
            peer: None,
            certificates,
            headers,
        };
        group.bench_function(*name, |b| {
            b.iter(|| runtime.block_on(authenticator.admit(black_box(shown))))
        });
    }
}

criterion_group!(benches, signing, accepting, admitting);
criterion_main!(benches);
