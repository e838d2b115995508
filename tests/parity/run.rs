//! Runs one case with the real server over real ADS streams, and returns each proxy's resources.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use navarch::ambient::AmbientTranslator;
use navarch::envoy::EnvoyTranslator;
use navarch::push::resource::ResourceType;
use navarch::push::worker::{self, Debounce, PushHandle};
use navarch::xds::metrics::Metrics;
use navarch::xds::{Ads, AdsParts, Served};
use navarch_proto::json::Codec;
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
    let everything = BTreeSet::new();
    let mut answers = Answers::new();
    let clusters = client
        .ask(ResourceType::Cluster.type_url(), &everything, codec)
        .await?;
    let eds: BTreeSet<String> = clusters.iter().filter_map(eds_name).collect();

    if !eds.is_empty() {
        answers.insert(
            "endpoints".into(),
            client
                .ask(ResourceType::Endpoint.type_url(), &eds, codec)
                .await?,
        );
    }

    let listeners = client
        .ask(ResourceType::Listener.type_url(), &everything, codec)
        .await?;
    let mut routes = BTreeSet::new();
    listeners
        .iter()
        .for_each(|listener| collect(listener, "routeConfigName", &mut routes));

    if !routes.is_empty() {
        answers.insert(
            "routes".into(),
            client
                .ask(ResourceType::Route.type_url(), &routes, codec)
                .await?,
        );
    }

    let mut secrets = BTreeSet::new();
    clusters
        .iter()
        .chain(&listeners)
        .for_each(|value| collect_secrets(value, &mut secrets));

    if !secrets.is_empty() {
        answers.insert(
            "secrets".into(),
            client
                .ask(ResourceType::Secret.type_url(), &secrets, codec)
                .await?,
        );
    }

    let mut extensions = BTreeSet::new();
    listeners
        .iter()
        .for_each(|value| collect_extensions(value, &mut extensions));

    if !extensions.is_empty() {
        let configs = client
            .ask(ResourceType::ExtensionConfig.type_url(), &extensions, codec)
            .await?;
        answers.insert("extensions".into(), configs);
    }

    if proxy.captures_dns() {
        answers.insert(
            "nametable".into(),
            client
                .ask(ResourceType::NameTable.type_url(), &everything, codec)
                .await?,
        );
    }

    answers.insert("clusters".into(), clusters);
    answers.insert("listeners".into(), listeners);
    Ok(answers)
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The EDS service name of a cluster, if it uses EDS.
pub(crate) fn eds_name(cluster: &Value) -> Option<String> {
    if cluster.get("type")?.as_str()? != "EDS" {
        return None;
    }
    let service = cluster
        .pointer("/edsClusterConfig/serviceName")
        .and_then(Value::as_str);
    service
        .or_else(|| cluster.get("name").and_then(Value::as_str))
        .map(str::to_owned)
}

/// Collects the names of secrets that use ADS.
fn collect_secrets(value: &Value, into: &mut BTreeSet<String>) {
    if let Value::Object(map) = value {
        if value.pointer("/sdsConfig/ads").is_some() {
            into.extend(map.get("name").and_then(Value::as_str).map(str::to_owned));
        }
        map.values().for_each(|value| collect_secrets(value, into));
    } else if let Value::Array(items) = value {
        items.iter().for_each(|value| collect_secrets(value, into));
    }
}

/// Collects the names of filters whose configuration comes by ECDS.
fn collect_extensions(value: &Value, into: &mut BTreeSet<String>) {
    if let Value::Object(map) = value {
        if map.contains_key("configDiscovery") {
            into.extend(map.get("name").and_then(Value::as_str).map(str::to_owned));
        }
        map.values()
            .for_each(|value| collect_extensions(value, into));
    } else if let Value::Array(items) = value {
        items
            .iter()
            .for_each(|value| collect_extensions(value, into));
    }
}

/// Collects the strings of a field, anywhere in a value.
pub(crate) fn collect(value: &Value, field: &str, into: &mut BTreeSet<String>) {
    if let Value::Object(map) = value {
        into.extend(map.get(field).and_then(Value::as_str).map(str::to_owned));
        map.values().for_each(|value| collect(value, field, into));
    } else if let Value::Array(items) = value {
        items.iter().for_each(|value| collect(value, field, into));
    }
}
