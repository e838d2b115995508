//! Runs one case with the real server over real ADS streams, and returns each proxy's resources.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use navarch::ambient::AmbientTranslator;
use navarch::envoy::EnvoyTranslator;
use navarch::push::resource::ResourceType;
use navarch::push::worker::{self, Debounce, PushHandle};
use navarch::xds::metrics::Metrics;
use navarch::xds::{Ads, AdsParts, Served};
use navarch_proto::json::Codec;
use navarch_shadow::subscriptions;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::ads::Client;
use super::caller;
use super::case::{Case, CaseProxy};
use super::grpc;
use super::input;
use super::ztunnel;

/// Resources by type name (`clusters`, `endpoints`, …).
pub(crate) type Answers = BTreeMap<String, Vec<Value>>;

/// The resources of each proxy of a case, or the reason why the case cannot run.
pub(crate) async fn run(case: &Case, codec: &Codec) -> Result<BTreeMap<String, Answers>, String> {
    let (settings, changes) = input::read(case)?;
    let (push, _) = worker::start(
        settings,
        Debounce::default(),
        Arc::new(AmbientTranslator(EnvoyTranslator)),
    )
    .map_err(text)?;
    push.change(changes).await.map_err(text)?;
    push.full_sync().await.map_err(text)?;
    answers(&push, case, codec).await
}

/// The resources of each proxy of a case, from a running push thread.
pub(crate) async fn answers(
    push: &PushHandle,
    case: &Case,
    codec: &Codec,
) -> Result<BTreeMap<String, Answers>, String> {
    push.wait_synced().await.map_err(text)?;
    let drain = CancellationToken::new();
    let metrics = Metrics::register(&mut Registry::default());
    let parts = AdsParts::new(push.clone(), metrics, jiff::Timestamp::now(), drain.clone());
    let served = Served::under(&input::settings(case)?);
    let ads = Ads::new(AdsParts { served, ..parts });
    let mut answers = BTreeMap::new();
    let mut servers = Vec::new();

    for proxy in &case.proxies {
        let (address, server) = caller::serve(&ads, proxy, drain.clone()).await?;
        servers.push(server);
        let got = if proxy.is_ztunnel() {
            ztunnel::ask_all(address, proxy, codec).await
        } else {
            ask_all(address, proxy, codec).await
        };

        let got = match got {
            // A kind of proxy that is not supported is rejected, and gets no resources.
            Err(error) if error.contains("are not supported by this control plane") => {
                Answers::new()
            }
            got => got?,
        };

        answers.insert(proxy.name.clone(), got);
    }

    drain.cancel();
    for server in servers {
        server.await.map_err(text)?;
    }

    ads.ended().await;
    no_faults(push).await?;
    Ok(answers)
}

/// Fails if a translator has panicked.
pub(crate) async fn no_faults(push: &PushHandle) -> Result<(), String> {
    let faults = push
        .inspect(|inspect| inspect.engine.faults())
        .await
        .map_err(text)?;
    faults.first().map_or(Ok(()), |fault| {
        Err(format!("{} panicked: {}", fault.query, fault.message))
    })
}

/// Subscribes as the cases were recorded: clusters, their endpoints, listeners, their routes, then
/// everything that a resource names.
async fn ask_all(server: SocketAddr, proxy: &CaseProxy, codec: &Codec) -> Result<Answers, String> {
    if proxy.is_grpc() {
        return grpc::ask_all(server, proxy, codec).await;
    }

    let mut client = Client::connect(server, proxy, codec).await?;
    let mut answers = subscriptions::ResourcesByType::new();

    for resource_type in subscriptions::ENVOY {
        let is_wanted = resource_type != ResourceType::NameTable || proxy.captures_dns();
        let names = subscriptions::names(resource_type, &answers).filter(|_| is_wanted);
        if let Some(names) = names {
            let resources = client.ask(resource_type.type_url(), &names, codec).await?;
            answers.insert(resource_type, resources);
        }
    }

    Ok(answers
        .into_iter()
        .map(|(resource_type, resources)| {
            (subscriptions::plural(resource_type).to_owned(), resources)
        })
        .collect())
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
