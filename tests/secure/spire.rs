//! A real SPIRE server signs, over its own socket and over TCP by the control plane's SVID.
//!
//! Needs the programs of `scripts/spire`.

use anyhow::{Context, Result, ensure};
use navarch_proto::istio::mesh::v1alpha1::ProxyConfig;
use navarch_testkit::spire::Spire;
use navarch_testkit::wait::{until_some, wanted};
use prost::Message;
use serde_json::json;

use crate::client::Proof;
use crate::own_authority::{NODE_PROXIES, PODS, signers, signs_for_sidecars_and_nodes};
use crate::server::{self, Server};

/// The type of the trust bundle.
const TRUST_BUNDLE: &str = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig";
/// The trust domain that the server federates with.
const PARTNER: &str = "partner.example";

/// The roots that proxies get by PCDS.
async fn trusted(server: &Server) -> Result<String> {
    let proof = Proof::Token(server.issuer.token(json!({})));
    let found = server
        .resources(&proof, server::node("shop", "web"), TRUST_BUNDLE, &[])
        .await?;
    let mut roots = String::new();
    for resource in found {
        let body = resource.resource.context("a body")?.value;
        roots.push_str(
            &ProxyConfig::decode(body.as_slice())?
                .ca_certificates_pem
                .concat(),
        );
    }
    Ok(roots)
}

#[tokio::test]
async fn a_spire_server_signs_over_its_socket_and_its_federated_bundles_are_trusted() -> Result<()>
{
    let Some(spire) = Spire::start().await? else {
        return Ok(());
    };
    let partner = partners_root()?;
    std::fs::write(spire.path("partner.pem"), &partner)?;
    let file = spire.path("partner.pem").display().to_string();
    let id = format!("spiffe://{PARTNER}");
    spire.server(&["bundle", "set", "-id", &id, "-path", &file])?;

    let variables = format!(
        "EXTERNAL_CA=NAVARCH_RA_SPIRE NAVARCH_SPIRE_SERVER=unix:{} \
         NAVARCH_SPIRE_FEDERATES_WITH={PARTNER} {NODE_PROXIES}",
        spire.socket().display()
    );
    let server = Server::with_variables(PODS, &variables).await?;
    let roots = spire.roots()?;
    signs_for_sidecars_and_nodes(&server, &roots).await?;
    let shown = signers(&server).await?;
    ensure!(shown[0]["name"] == "spire", "{shown}");

    let body = |pem: &str| pem.lines().nth(1).unwrap_or_default().to_owned();
    until_some("proxies trust the partner's root", async || {
        let found = trusted(&server).await.map_err(|error| error.to_string())?;
        wanted(found, |found| {
            found.contains(&body(&partner)) && found.contains(&body(&roots))
        })
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn a_spire_server_signs_for_the_svid_of_the_control_plane() -> Result<()> {
    let Some(mut spire) = Spire::start().await? else {
        return Ok(());
    };
    spire.start_agent().await?;
    let variables = format!(
        "EXTERNAL_CA=NAVARCH_RA_SPIRE NAVARCH_SPIRE_SERVER=127.0.0.1:{} \
         SPIFFE_ENDPOINT_SOCKET=unix://{} {NODE_PROXIES}",
        spire.port(),
        spire.agent_socket().display()
    );
    let server = Server::with_variables(PODS, &variables).await?;
    let roots = spire.roots()?;
    signs_for_sidecars_and_nodes(&server, &roots).await
}

/// A root of another company.
fn partners_root() -> Result<String> {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let id = format!("spiffe://{PARTNER}");
    params.subject_alt_names = vec![rcgen::SanType::URI(id.as_str().try_into()?)];
    Ok(params.self_signed(&rcgen::KeyPair::generate()?)?.pem())
}
