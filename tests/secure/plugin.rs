//! A plugin signs with a key in a PKCS#11 token: SoftHSM, from Debian's package `softhsm2`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use navarch_testkit::pkcs11::{LABEL, Token};
use navarch_testkit::wait::{until, until_some, wanted};
use navarch_tests::chain::check_chain;
use serde_json::json;
use tonic::Code;

use crate::client::Proof;
use crate::own_authority::{NODE_PROXIES, PODS, WEB, csr, signers, signs_for_sidecars_and_nodes};
use crate::server::Server;

/// A token of a company; `None` if there is no SoftHSM.
fn token() -> Result<Option<Token>> {
    Token::new(Path::new(env!("CARGO_BIN_EXE_navarch")))
}

#[tokio::test]
async fn a_plugin_signs_with_a_key_in_a_token() -> Result<()> {
    let Some(mut token) = token()? else {
        return Ok(());
    };
    token.start()?;
    let variables = format!(
        "EXTERNAL_CA=NAVARCH_RA_SOCKET NAVARCH_SIGNER_SOCKET={} {NODE_PROXIES} \
         NAVARCH_WORKLOAD_KEY_TYPES=p256",
        token.socket().display()
    );
    let server = Server::with_variables(PODS, &variables).await?;
    signs_for_sidecars_and_nodes(&server, &token.root()?).await?;

    let shown = signers(&server).await?;
    ensure!(shown[0]["name"] == "socket", "{shown}");
    ensure!(
        shown[0]["roots"][0]["subject"] == format!("O={LABEL}"),
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
    let Some(mut token) = token()? else {
        return Ok(());
    };
    token.start()?;
    let variables = format!(
        "NAVARCH_NAMESPACE_SIGNERS=shop=NAVARCH_RA_SOCKET NAVARCH_SIGNER_SOCKET={}",
        token.socket().display()
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
        check_chain(&answer.cert_chain, identity, signer)?;

        let roots = answer.cert_chain.last().context("roots")?;
        ensure!(
            roots.matches("BEGIN CERTIFICATE").count() == 2,
            "everyone trusts both: {roots}"
        );
    }
    Ok(())
}
