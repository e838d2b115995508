//! A company's authority signs for pods with sidecars, a machine and a real ztunnel, whose
//! certificates are renewed under traffic: one with its key in a PKCS#11 token, a real SPIRE server,
//! and cert-manager's own controllers.
//!
//! Needs SoftHSM, the programs of `scripts/spire` or that of `scripts/cert-manager`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use navarch_testkit::istio;
use navarch_testkit::skip::skip_test;
use navarch_testkit::wait::{until, until_some};
use navarch_tests::chain::check_chain;
use serde_json::{Value, json};

use crate::ambient::{identity, members, without_lost_requests};
use crate::company::Company;
use crate::machine;
use crate::node::{NODE_VARIABLES, Node};
use crate::pod::{Pod, PodKind};
use crate::world::{SIDECAR_VARIABLES, World};

/// The lifetime of certificates: they are renewed after half of it.
const LIFETIME: Duration = Duration::from_secs(20);
/// A pod with such certificates.
const SHORT: PodKind = PodKind::Sidecar {
    capture: &[],
    lifetime: "20s",
};
/// How long requests are sent: every certificate is renewed twice.
const LOAD: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_company_signs_for_sidecars_and_machines() -> Result<()> {
    match Company::with_token()? {
        Some(company) => signs_for_sidecars_and_machines(company).await,
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spire_server_signs_for_sidecars_and_machines() -> Result<()> {
    match Company::with_spire().await? {
        Some(company) => signs_for_sidecars_and_machines(company).await,
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cert_manager_signs_for_sidecars_and_machines() -> Result<()> {
    match Company::with_cert_manager()? {
        Some(company) => signs_for_sidecars_and_machines(company).await,
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_company_signs_for_a_real_ztunnel() -> Result<()> {
    match Company::with_token()? {
        Some(company) => signs_for_a_real_ztunnel(company).await,
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spire_server_signs_for_a_real_ztunnel() -> Result<()> {
    match Company::with_spire().await? {
        Some(company) => signs_for_a_real_ztunnel(company).await,
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cert_manager_signs_for_a_real_ztunnel() -> Result<()> {
    match Company::with_cert_manager()? {
        Some(company) => signs_for_a_real_ztunnel(company).await,
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_when_cert_manager_changes_its_root() -> Result<()> {
    let Some(mut company) = Company::with_cert_manager()? else {
        return Ok(());
    };
    let variables = [SIDECAR_VARIABLES, &[("NAVARCH_ROOT_OVERLAP", "2s")]].concat();
    let mut world = company.world(&variables).await?.with_sidecars().await?;
    let client = world.pod_with_files("client", SHORT).await?;
    let web = world.pod_with_files("web", SHORT).await?;
    for pod in [&client, &web] {
        pod.wait_ready().await.with_context(|| world.output())?;
    }
    is_called_by(&client, "client").await;

    let changed = async {
        let next = company.name_next_root()?;
        until("proxies trust both roots", async || {
            let found = world.authorities().await.unwrap_or_default();
            let roots = found["signers"][0]["roots"].as_array().map(Vec::as_slice);
            let roots = roots.unwrap_or_default();
            roots.len() == 2 && roots.iter().all(|root| root["isDistributed"] == true)
        })
        .await;

        next.signs(world.cluster())?;
        for name in ["client", "web"] {
            until("the pod has a certificate of the new root", async || {
                let chain = written_chain(&world, name).await;
                check_chain(&[chain], &identity(name), next.root()).is_ok()
            })
            .await;
        }
        anyhow::Ok(())
    };
    let (outcome, changed) = tokio::join!(under_load(&client), changed);
    changed.with_context(|| world.output())?;
    outcome.with_context(|| world.output())?;
    is_called_by(&client, "client").await;
    Ok(())
}

/// Sends requests to the service, none of which may be lost.
async fn under_load(client: &Pod) -> Result<()> {
    let order =
        json!({"op": "load", "host": "web.shop", "path": "/open", "millis": LOAD.as_millis()});
    let outcome = client.app(&order).await?;
    let is_whole = outcome["ok"].as_u64() > Some(100) && outcome["failed"] == 0;
    ensure!(is_whole, "requests were lost: {outcome}");
    println!("requests: {outcome}");
    Ok(())
}

/// Two pods with sidecars and a machine have chains that end in the company's roots, call each
/// other with their identities, and lose no request while certificates are renewed.
async fn signs_for_sidecars_and_machines(mut company: Company) -> Result<()> {
    let mut world = company
        .world(SIDECAR_VARIABLES)
        .await?
        .with_sidecars()
        .await?;
    for object in machine::objects() {
        world.writer().put(&object).await?;
    }

    let client = world.pod_with_files("client", SHORT).await?;
    let web = world.pod_with_files("web", SHORT).await?;
    let machine = world.machine(machine::launch).await?;
    for pod in [&client, &web, &machine] {
        pod.wait_ready().await.with_context(|| world.output())?;
    }
    for name in ["client", "web", "machine"] {
        let chain = written_chain(&world, name).await;
        check_chain(&[chain], &identity(name), &company.roots).context(name)?;
    }

    for (caller, name) in [(&machine, "machine"), (&client, "client")] {
        is_called_by(caller, name).await;
    }

    let before = [client.certificate().await?, web.certificate().await?];
    under_load(&client).await.with_context(|| world.output())?;
    for (pod, before) in [&client, &web].into_iter().zip(before) {
        let now = pod.certificate().await?;
        ensure!(now.serial != before.serial, "it was renewed: {now:?}");
    }
    Ok(())
}

/// The certificates that an agent has written.
async fn written_chain(world: &World, name: &str) -> String {
    let path = world.folder().join(name).join("etc/certs/cert-chain.pem");
    until_some("the agent has a certificate", async || {
        std::fs::read_to_string(&path)
    })
    .await
}

/// Waits until the service answers a pod, and sees its identity.
async fn is_called_by(caller: &Pod, name: &str) {
    let own = identity(name);
    until("the service sees the caller's identity", async || {
        let answer = caller.get("web.shop", "/open").await.unwrap_or_default();
        let body = answer["body"].as_str().unwrap_or_default();
        answer["status"] == 200 && body.contains(&own)
    })
    .await;
}

/// The certificates of a ztunnel have chains that end in the company's roots, its pods speak with
/// their identities, and lose no request while certificates are renewed.
async fn signs_for_a_real_ztunnel(mut company: Company) -> Result<()> {
    let Some(program) = istio::ztunnel() else {
        skip_test("NAVARCH_ZTUNNEL is not set to a built ztunnel");
        return Ok(());
    };
    let world = company.world(NODE_VARIABLES).await?;
    let node = Node::start_in(world, program, Some(LIFETIME)).await?;
    node.wait_served("client", true, "at first").await;

    until("both ends have logged who spoke with whom", async || {
        let lines = node.ztunnel.connections();
        lines.iter().any(|line| {
            line["src.identity"] == identity("client") && line["dst.identity"] == identity("web")
        })
    })
    .await;

    let root = &company.roots;
    let before = serials(&node, root).await?;
    without_lost_requests(&node, LOAD, async {
        until("every certificate is renewed", async || {
            let now = serials(&node, root).await.unwrap_or_default();
            now.len() == before.len() && now.iter().all(|serial| !before.contains(serial))
        })
        .await;
        Ok(())
    })
    .await
}

/// The serial numbers of ztunnel's certificates, whose chains end in the root.
async fn serials(node: &Node, root: &str) -> Result<Vec<String>> {
    let config = node.ztunnel.config().await?;
    let mut serials = Vec::new();
    for account in ["client", "web"] {
        let identity = identity(account);
        let mut all = members(&config["certificates"]).into_iter();
        let own = all
            .find(|one| one["identity"] == identity && one["state"] == "Available")
            .with_context(|| format!("no certificate of {account}: {config:#}"))?;

        let chain: Vec<String> = members(&own["certChain"])
            .into_iter()
            .map(pem)
            .collect::<Result<_>>()?;
        check_chain(&chain, &identity, root)?;
        let serial = own["certChain"][0]["serialNumber"].as_str();
        serials.push(serial.context("a serial number")?.to_owned());
    }
    Ok(serials)
}

/// A certificate in PEM as ztunnel shows it: in base64 once more.
fn pem(certificate: &Value) -> Result<String> {
    let encoded = certificate["pem"].as_str().context("a certificate")?;
    Ok(String::from_utf8(STANDARD.decode(encoded)?)?)
}
