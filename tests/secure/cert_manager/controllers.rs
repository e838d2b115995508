//! cert-manager's own controllers approve and sign, with its own CRDs: the approver, the
//! ClusterIssuer and the CA issuer.
//!
//! Needs the program of `scripts/cert-manager`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use navarch::api::identity::Identity;
use navarch::security::ca::signer::{CheckedRequest, IssuedChain, SignerError};
use navarch_testkit::cert_manager::{CertManager, Company};
use navarch_testkit::cluster::Cluster;
use navarch_testkit::wait::{until, until_some};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Manager, REQUESTS, as_navarch, by_service};
use crate::own_authority::{WEB, csr};

#[tokio::test]
async fn the_controllers_of_cert_manager_sign() -> Result<()> {
    let Some(programs) = CertManager::find() else {
        return Ok(());
    };
    let cluster = Cluster::start().await?;
    let client = as_navarch(&cluster, &programs.definitions()?).await?;
    let first = Company::new()?;
    let _controllers = programs.start(&cluster, &first).await?;

    let (pinned, roots) = watch::channel(Arc::from(first.root()));
    let manager = Manager::start(client, roots)?;
    let sign = async || -> Result<Result<IssuedChain, SignerError>> {
        let hour = Duration::from_secs(3600);
        let request = CheckedRequest::new(&csr(WEB)?, Identity::parse(WEB)?, hour, "")?;
        Ok(manager.external.sign(&request).await)
    };
    ensure!(*sign().await??.roots == *first.root(), "the pinned root");
    by_service(&manager, first.root()).await?;

    // Its next root is used once it is pinned, not because cert-manager says so.
    let second = Company::new()?;
    second.signs(&cluster)?;
    let unpinned = until_some("the new root signs", async || match sign().await {
        Ok(Err(error)) => Ok(error.to_string()),
        signed => Err(format!("{signed:?}")),
    })
    .await;
    ensure!(unpinned.contains("unusable certificate"), "{unpinned}");
    let both = format!("{}{}", first.root(), second.root());
    pinned.send(Arc::from(both.as_str()))?;
    let issued = until_some("proxies trust the new root", async || {
        sign()
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())
    })
    .await;
    ensure!(*issued.roots == *both, "both pinned roots");
    by_service(&manager, second.root()).await?;

    until("requests are deleted", async || {
        let left = cluster
            .call("GET", REQUESTS, "application/json", &Value::Null)
            .await;
        left.is_ok_and(|left| left["items"] == json!([]))
    })
    .await;
    Ok(())
}
