//! A plugin signs with a key in a PKCS#11 token: SoftHSM, from Debian's package `softhsm2`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use navarch_testkit::skip::skip;
use navarch_testkit::wait::{until, until_some, wanted};
use serde_json::json;
use tempfile::TempDir;
use tonic::Code;

use crate::client::Proof;
use crate::own_authority::{NODE_PROXIES, PODS, WEB, csr, signers, signs_for_sidecars_and_nodes};
use crate::server::Server;

/// The library of Debian's package.
const MODULES: [&str; 2] = [
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
];
/// The label of the token, and the organization of its root.
const TOKEN: &str = "company";

/// A token with a key, and the plugin that signs with it.
struct Token {
    folder: TempDir,
    module: &'static str,
    plugin: Option<Child>,
}

impl Token {
    /// Makes a token with a key; `None` if there is no SoftHSM.
    fn new() -> Result<Option<Self>> {
        let Some(module) = MODULES.into_iter().find(|path| Path::new(path).exists()) else {
            skip("no SoftHSM: install Debian's package softhsm2 (scripts/cluster/packages)");
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let tokens = folder.path().join("tokens");
        std::fs::create_dir(&tokens)?;
        let config = format!("directories.tokendir = {}\n", tokens.display());
        std::fs::write(folder.path().join("softhsm2.conf"), config)?;
        std::fs::write(folder.path().join("pin"), "4711\n")?;

        let token = Self {
            folder,
            module,
            plugin: None,
        };
        let made = token.command("init").output()?;
        ensure!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        Ok(Some(token))
    }

    /// The plugin's program with these arguments.
    fn command(&self, what: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_navarch")).with_file_name("pkcs11signer");
        let mut command = Command::new(program);
        command
            .args([what, self.module, TOKEN])
            .args([self.path("pin"), self.path("root.pem")])
            .env("SOFTHSM2_CONF", self.path("softhsm2.conf"));
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The root in the token.
    fn root(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.path("root.pem"))?)
    }

    /// Starts the plugin, and waits until it listens.
    fn start(&mut self) -> Result<()> {
        let mut plugin = self
            .command("serve")
            .arg(self.path("signer.sock"))
            .stdout(Stdio::piped())
            .spawn()?;
        let output = plugin.stdout.take().context("its output")?;
        self.plugin = Some(plugin);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line == "listening\n", "the plugin does not listen: {line}");
        Ok(())
    }

    fn stop(&mut self) {
        if let Some(mut plugin) = self.plugin.take() {
            let _ = plugin.kill();
            let _ = plugin.wait();
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.stop();
    }
}

#[tokio::test]
async fn a_plugin_signs_with_a_key_in_a_token() -> Result<()> {
    let Some(mut token) = Token::new()? else {
        return Ok(());
    };
    token.start()?;
    let variables = format!(
        "EXTERNAL_CA=NAVARCH_RA_SOCKET NAVARCH_SIGNER_SOCKET={} {NODE_PROXIES} \
         NAVARCH_WORKLOAD_KEY_TYPES=p256",
        token.path("signer.sock").display()
    );
    let server = Server::with_variables(PODS, &variables).await?;
    signs_for_sidecars_and_nodes(&server, &token.root()?).await?;

    let shown = signers(&server).await?;
    ensure!(shown[0]["name"] == "socket", "{shown}");
    ensure!(
        shown[0]["roots"][0]["subject"] == format!("O={TOKEN}"),
        "{shown}"
    );
    let metrics = server.metrics().await?;
    let issued = r#"navarch_signer_requests_total{signer="socket",result="issued"}"#;
    ensure!(metrics.contains(issued), "{metrics}");

    // The type of key is the operator's choice.
    let proof = Proof::Token(server.issuer.token(json!({})));
    let rsa = crate::openssl::request(server.folder(), &["rsa:2048"])?;
    let rejected = server.certificate(&proof, &rsa, 3600).await;
    let status = rejected.err().context("an RSA key")?;
    ensure!(
        status.code() == Code::InvalidArgument && status.message().contains("p256"),
        "{status}"
    );

    // A certificate of the authority is a proof for the control plane as well.
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.subject_alt_names = vec![rcgen::SanType::URI(WEB.try_into()?)];
    let own = params.serialize_request(&key)?.pem()?;
    let mut chain = server.certificate(&proof, &own, 3600).await?.cert_chain;
    chain.pop();
    let by_certificate = Proof::Certificate(chain.concat(), key.serialize_pem());
    server
        .certificate(&by_certificate, &csr(WEB)?, 3600)
        .await?;

    away_and_back(&mut token, &server, &proof).await
}

/// Without the plugin, requests fail at once and are found by the doctor; with it, they succeed
/// again, and in between the control plane stays ready.
async fn away_and_back(token: &mut Token, server: &Server, proof: &Proof) -> Result<()> {
    token.stop();
    let request = csr(WEB)?;
    until("requests fail with the reason", async || {
        let answer = server.certificate(proof, &request, 3600).await;
        answer.is_err_and(|status| status.code() == Code::Unavailable)
    })
    .await;
    until_some("the doctor finds it", async || {
        // The way is closed after some failures.
        let _ = server.certificate(proof, &request, 3600).await;
        let found = server
            .page("doctor")
            .await
            .map_err(|error| error.to_string())?;
        wanted(found, |found| {
            found.contains("the signer socket is unreachable")
        })
    })
    .await;

    let ready = navarch_testkit::client::get(server.http(), "navarch", "/ready", &[]).await?;
    ensure!(ready.status == 200, "it stays ready");
    token.start()?;
    until("it signs again", async || {
        server.certificate(proof, &request, 3600).await.is_ok()
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn namespaces_may_have_other_signers() -> Result<()> {
    let Some(mut token) = Token::new()? else {
        return Ok(());
    };
    token.start()?;
    let variables = format!(
        "NAVARCH_NAMESPACE_SIGNERS=shop=NAVARCH_RA_SOCKET NAVARCH_SIGNER_SOCKET={}",
        token.path("signer.sock").display()
    );
    let server = Server::with_variables(PODS, &variables).await?;
    let root = token.root()?;
    let own = server.root();

    for (account, identity, signer) in [
        ("shop:web", WEB, &root),
        ("bank:web", "spiffe://cluster.local/ns/bank/sa/web", &own),
    ] {
        let sub = format!("system:serviceaccount:{account}");
        let proof = Proof::Token(server.issuer.token(json!({"sub": sub})));
        let answer = server.certificate(&proof, &csr(identity)?, 3600).await?;
        crate::own_authority::check_chain(&answer.cert_chain, identity, signer)?;

        let roots = answer.cert_chain.last().context("roots")?;
        ensure!(
            roots.matches("BEGIN CERTIFICATE").count() == 2,
            "everyone trusts both: {roots}"
        );
    }
    Ok(())
}
