//! `COMPLIANCE_POLICY` on the ports and in the clients of a running Navarch, scanned with every
//! cipher suite and key exchange that rustls has.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_net::any_certificate::AnyCertificate;
use navarch_net::cryptography;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::ServerName;
use rustls::server::Acceptor;
use rustls::{CipherSuite, ClientConfig, NamedGroup, SupportedCipherSuite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::server::{MESH, Server};

const GROUPS: [&dyn SupportedKxGroup; 4] = [
    kx_group::X25519MLKEM768,
    kx_group::X25519,
    kx_group::SECP256R1,
    kx_group::SECP384R1,
];

/// A handshake that a port accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) suite: CipherSuite,
    pub(crate) group: NamedGroup,
}

impl Accepted {
    fn is_newest(self) -> bool {
        matches!(
            self.suite,
            CipherSuite::TLS13_AES_128_GCM_SHA256
                | CipherSuite::TLS13_AES_256_GCM_SHA384
                | CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        )
    }

    fn is_chacha20(self) -> bool {
        format!("{:?}", self.suite).contains("CHACHA20")
    }
}

/// Whether a server accepts a client with one suite and one key exchange.
async fn accepts(
    port: SocketAddr,
    suite: SupportedCipherSuite,
    group: &'static dyn SupportedKxGroup,
) -> Result<bool> {
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![suite],
        kx_groups: vec![group],
        ..CryptoProvider::clone(&cryptography::provider())
    });
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(AnyCertificate::new(provider))
        .with_no_client_auth();

    let stream = TcpStream::connect(port).await?;
    let name = ServerName::try_from("istiod.istio-system.svc")?;
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    Ok(tokio::time::timeout(Duration::from_secs(20), handshake)
        .await
        .context("no end of the handshake")?
        .is_ok())
}

/// All handshakes that a port accepts.
pub(crate) async fn scan(port: SocketAddr) -> Result<Vec<Accepted>> {
    let mut accepted = Vec::new();

    for suite in aws_lc_rs::ALL_CIPHER_SUITES {
        for group in GROUPS {
            if accepts(port, *suite, group).await? {
                accepted.push(Accepted {
                    suite: suite.suite(),
                    group: group.name(),
                });
            }
        }
    }

    Ok(accepted)
}

#[tokio::test]
async fn compliance_policies_restrict_both_tls_ports() -> Result<()> {
    let unrestricted = Server::start().await?;
    let all = scan(unrestricted.secure).await?;
    ensure!(all == scan(unrestricted.https).await?, "{all:?}");
    // TLS 1.3 with all groups, and TLS 1.2 with the suites of the key's type and the older groups.
    ensure!(all.len() == 3 * 4 + 3 * 3, "{all:?}");
    drop(unrestricted);

    let nist = [NamedGroup::secp256r1, NamedGroup::secp384r1];
    let policies: [(&str, &dyn Fn(Accepted) -> bool); 3] = [
        ("fips-140-2", &|one| {
            !one.is_newest() && one.group == NamedGroup::secp256r1
        }),
        ("fips-140-3", &|one| nist.contains(&one.group)),
        ("pqc", &|one| {
            one.is_newest() && one.group == NamedGroup::X25519MLKEM768
        }),
    ];

    for (policy, is_allowed) in policies {
        let variables = format!("COMPLIANCE_POLICY={policy}");
        let server = Server::with_variables(MESH, &variables).await?;
        let expected: Vec<Accepted> = all
            .iter()
            .copied()
            .filter(|one| !one.is_chacha20() && is_allowed(*one))
            .collect();

        for port in [server.secure, server.https] {
            let accepted = scan(port).await?;
            ensure!(accepted == expected, "{policy} at {port}: {accepted:?}");
        }
    }

    Ok(())
}

#[tokio::test]
async fn a_policy_overrides_the_flags_for_tls_and_an_unknown_one_is_logged() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("mesh"))?;
    let flags = ["--tls-min-version=1.3".to_owned()];
    let issuer = crate::issuer::Issuer::with_new_key();
    let variables = "COMPLIANCE_POLICY=fips-140-2".to_owned();
    let loopback = std::net::Ipv4Addr::LOCALHOST.into();
    let server = Server::start_in(folder, issuer, variables, loopback, &flags).await?;

    let accepted = scan(server.secure).await?;
    ensure!(!accepted.is_empty() && accepted.iter().all(|one| !one.is_newest()));
    ensure!(server.output().contains("COMPLIANCE_POLICY overrides"));
    drop(server);

    let server = Server::with_variables(MESH, "COMPLIANCE_POLICY=FIPS-140-3").await?;
    let log = server.output();
    ensure!(
        log.contains("unknown policy") && log.contains("FIPS-140-3"),
        "{log}"
    );
    Ok(())
}

/// The first flight of a TLS client.
struct Offered {
    suites: Vec<CipherSuite>,
    groups: Vec<NamedGroup>,
}

/// What the first client that connects offers.
fn offered_to(listener: &TcpListener) -> Result<Offered> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut acceptor = Acceptor::default();

    loop {
        ensure!(acceptor.read_tls(&mut stream)? > 0, "the client has closed");
        let accepted = acceptor
            .accept()
            .map_err(|(error, _)| anyhow::anyhow!(error))?;
        if let Some(accepted) = accepted {
            let hello = accepted.client_hello();
            return Ok(Offered {
                suites: hello.cipher_suites().to_vec(),
                groups: hello.named_groups().unwrap_or_default().to_vec(),
            });
        }
    }
}

/// What Navarch offers as a client of an API server.
async fn offered_to_an_api_server(policy: &str) -> Result<Offered> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}],\n\
         clusters: [{{name: a, cluster: {{server: 'https://{address}'}}}}], users: [{{name: a, user: {{token: t}}}}]}}"
    );
    std::fs::write(&kubeconfig, text)?;

    let mut client = Command::new(env!("CARGO_BIN_EXE_navarch"))
        .args(["doctor", "--kubeconfig"])
        .arg(&kubeconfig)
        .env("COMPLIANCE_POLICY", policy)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let offered = tokio::task::spawn_blocking(move || offered_to(&listener));
    let offered = tokio::time::timeout(Duration::from_secs(20), offered).await;
    client.kill()?;
    client.wait()?;

    let mut log = String::new();
    if let Some(mut stderr) = client.stderr.take() {
        stderr.read_to_string(&mut log)?;
    }
    offered.with_context(|| log.clone())??.with_context(|| log)
}

#[tokio::test]
async fn compliance_policies_restrict_clients_and_post_quantum_is_offered_first() -> Result<()> {
    let offered = offered_to_an_api_server("").await?;
    ensure!(
        offered.groups.first() == Some(&NamedGroup::X25519MLKEM768),
        "{:?}",
        offered.groups
    );

    for (policy, groups) in [
        ("fips-140-2", [NamedGroup::secp256r1].as_slice()),
        (
            "fips-140-3",
            &[NamedGroup::secp256r1, NamedGroup::secp384r1],
        ),
        ("pqc", &[NamedGroup::X25519MLKEM768]),
    ] {
        let offered = offered_to_an_api_server(policy).await?;
        ensure!(offered.groups == groups, "{policy}: {:?}", offered.groups);
        let weak = offered
            .suites
            .iter()
            .any(|suite| format!("{suite:?}").contains("CHACHA20"));
        ensure!(!weak, "{policy}: {:?}", offered.suites);
    }

    Ok(())
}
