//! The debug API over xDS for istioctl: `istio.io/debug`, `istio.io/debug/syncz`,
//! `istio.io/debug/config_dump` and `istio.io/connections`.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Uri};
use axum::middleware::from_fn_with_state;
use navarch_proto::any::pack;
use navarch_proto::envoy::admin::v3::UpdateFailureState;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::status::v3::client_config::GenericXdsConfig;
use navarch_proto::envoy::service::status::v3::{ClientConfig, ConfigStatus};
use prost_types::value::Kind as ValueKind;
use prost_types::{Any, Struct, Timestamp, Value};
use serde_json::json;
use tokio::sync::Semaphore;
use tonic::Status;
use tower_service::Service as _;

use super::state::AdminState;
use super::{access, config_dump, debug, health, paths};
use navarch_api::identity::Caller;
use navarch_push::proxy::{Proxy, ProxyKind};
use navarch_security::rules::{self, Visibility};
use navarch_xds::connections::{ConnectionInfo, TypeInfo};
use navarch_xds::{DebugPages, DebugRequest, DebugResponse, DebugResponseFuture};

/// Maximum concurrent requests; others wait.
const MAX_CONCURRENT_REQUESTS: usize = 2;
/// The type whose resources are debug pages.
const PAGE: &str = "istio.io/debug";
/// The page with the sync status of all proxies.
const SYNCZ: &str = "istio.io/debug/syncz";
/// The page with the resources of one proxy.
const CONFIG_DUMP: &str = "istio.io/debug/config_dump";
/// The page with the connected clients.
const CONNECTIONS: &str = "istio.io/connections";

/// Answers requests over xDS with the pages of the HTTP port.
#[derive(Debug)]
pub struct DebugOverXds {
    state: AdminState,
    pages: Router,
    /// A dump costs more than most other requests.
    turns: Semaphore,
}

impl DebugOverXds {
    /// Uses the state of the HTTP pages. If pages are disabled, as on HTTP, the sync status is
    /// still served.
    #[must_use]
    pub fn new(state: AdminState, has_pages: bool) -> Self {
        let pages = match has_pages {
            true => debug::pages(&state)
                .route_layer(from_fn_with_state(state.clone(), health::guard))
                .merge(debug::own_pages(&state)),
            false => Router::new(),
        };
        let pages = pages.fallback(paths::fallback).with_state(state.clone());
        Self {
            state,
            pages,
            turns: Semaphore::new(MAX_CONCURRENT_REQUESTS),
        }
    }

    /// One debug page. Callers without access are rejected; the proxies in it depend on the caller.
    async fn page(&self, names: Vec<String>, proxy: &Proxy) -> Result<DebugResponse, Status> {
        let caller = known(proxy)?;
        let [name] = <[String; 1]>::try_from(names)
            .map_err(|_| Status::invalid_argument("exactly one debug request is required"))?;
        let uri: Uri = format!("/debug/{name}").parse().map_err(|_| {
            Status::invalid_argument("the name of the debug page is not a valid path")
        })?;
        let visibility = match rules::visibility(
            access::page(uri.path()),
            &caller,
            &self.state.access.operators,
        ) {
            // Operators get the list of pages instead.
            Visibility::Nothing if access::is_operator(&self.state, &caller) => {
                Visibility::Everything
            }
            Visibility::Nothing => return Err(denied(proxy)),
            visibility @ (Visibility::Everything | Visibility::Namespaces(_)) => visibility,
        };

        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uri;
        request.extensions_mut().insert(visibility);
        let response = self
            .pages
            .clone()
            .call(request)
            .await
            .unwrap_or_else(|never| match never {});

        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        let value = body
            .map_err(|error| Status::internal(error.to_string()))?
            .to_vec();
        let resources = vec![(
            name,
            Any {
                type_url: PAGE.to_owned(),
                value,
            },
        )];

        // `istioctl x internal-debug --all` lists pages by control plane. istiod does not set it,
        // so istioctl shows only the last one.
        Ok(DebugResponse {
            resources,
            control_plane: Some(self.control_plane()),
        })
    }

    /// The sync status of proxies, as Envoy's client status; connected tools are omitted.
    fn syncz(&self, visibility: &Visibility) -> DebugResponse {
        let resource =
            |info: ConnectionInfo| (info.proxy.name.to_string(), pack(&client_status(&info)));
        let resources = self.proxies(visibility).map(resource).collect();
        DebugResponse {
            resources,
            control_plane: Some(self.control_plane()),
        }
    }

    /// The resources of one proxy; nothing if it is not connected here.
    fn config_dump(&self, names: &[String], visibility: &Visibility) -> DebugResponse {
        let [name] = names else {
            return DebugResponse::default();
        };
        let found = self
            .visible(visibility)
            .find(|info| info.id.contains(name.as_str()));
        let sections = found
            .map(|info| config_dump::whole(&info, false))
            .unwrap_or_default();
        let resources = sections
            .into_iter()
            .map(|section| (String::new(), section))
            .collect();
        DebugResponse {
            resources,
            control_plane: None,
        }
    }

    /// The nodes of connected proxies.
    fn connections(&self, visibility: &Visibility) -> DebugResponse {
        let resource = |info: ConnectionInfo| {
            let node = Node {
                id: info.proxy.name.to_string(),
                metadata: Some(metadata(&info)),
                ..Node::default()
            };
            (info.proxy.name.to_string(), pack(&node))
        };
        DebugResponse {
            resources: self.proxies(visibility).map(resource).collect(),
            control_plane: None,
        }
    }

    /// The proxies that the caller may see. Streams of tools do not describe a proxy's
    /// configuration.
    fn proxies(&self, visibility: &Visibility) -> impl Iterator<Item = ConnectionInfo> {
        let is_proxy = |info: &ConnectionInfo| {
            info.proxy.kind == ProxyKind::Ztunnel
                || info
                    .proxy
                    .metadata
                    .get("PROXY_CONFIG")
                    .is_some_and(|c| !c.is_null())
        };
        self.visible(visibility).filter(is_proxy)
    }

    /// The connections that the caller may see.
    fn visible(&self, visibility: &Visibility) -> impl Iterator<Item = ConnectionInfo> {
        let visibility = visibility.clone();
        let is_visible = move |info: &ConnectionInfo| match &visibility {
            Visibility::Everything => true,
            Visibility::Namespaces(namespaces) => namespaces.contains(&info.proxy.namespace),
            Visibility::Nothing => false,
        };
        self.state.connections.list().into_iter().filter(is_visible)
    }

    /// The identifier of this control plane in istiod's format: a JSON object.
    fn control_plane(&self) -> String {
        let info = self.state.build.info();
        json!({ "Component": "istiod", "ID": &*self.state.pod, "Info": info }).to_string()
    }
}

impl DebugPages for DebugOverXds {
    fn answer(&self, question: DebugRequest) -> DebugResponseFuture<'_> {
        Box::pin(async move {
            let DebugRequest {
                type_url,
                names,
                proxy: asker,
            } = question;
            known(&asker)?;
            let _turn = self
                .turns
                .acquire()
                .await
                .map_err(|_| Status::unavailable("the server is going away"))?;

            if type_url == PAGE {
                return self.page(names, &asker).await;
            }

            let caller = known(&asker)?;

            // Callers other than operators see the proxies of their own namespace.
            let visibility = match access::is_operator(&self.state, &caller) {
                true => Visibility::Everything,
                false => Visibility::Namespaces(
                    caller
                        .identities
                        .iter()
                        .map(|identity| identity.namespace.clone())
                        .collect(),
                ),
            };

            Ok(match type_url.as_str() {
                SYNCZ => self.syncz(&visibility),
                CONFIG_DUMP => self.config_dump(&names, &visibility),
                CONNECTIONS => self.connections(&visibility),
                _ => DebugResponse::default(),
            })
        })
    }
}

fn known(proxy: &Proxy) -> Result<Caller, Status> {
    let identity = proxy
        .identity
        .clone()
        .ok_or_else(|| Status::unauthenticated("authentication required"))?;
    Ok(Caller {
        identities: vec![identity],
        ..Caller::default()
    })
}

/// The status of a client that may not see a page.
fn denied(proxy: &Proxy) -> Status {
    let identity = proxy
        .identity
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    Status::permission_denied(format!(
        "the debug info is not available for current identity: {identity:?}"
    ))
}

/// The sync status of a proxy.
fn client_status(info: &ConnectionInfo) -> ClientConfig {
    let mut configs: Vec<GenericXdsConfig> = info.types.iter().map(type_status).collect();
    configs.sort_by(|a, b| a.type_url.cmp(&b.type_url));
    let node = Node {
        id: info.proxy.name.to_string(),
        metadata: Some(metadata(info)),
        ..Node::default()
    };
    ClientConfig {
        node: Some(node),
        generic_xds_configs: configs,
        ..ClientConfig::default()
    }
}

/// The sync status of one type.
fn type_status(watch: &TypeInfo) -> GenericXdsConfig {
    let status = match (&watch.rejected, &watch.sent) {
        (Some(_), _) => ConfigStatus::Error,
        (None, None) => ConfigStatus::NotSent,
        (None, Some(sent))
            if watch
                .acked
                .as_ref()
                .is_some_and(|acked| acked.nonce == sent.nonce) =>
        {
            ConfigStatus::Synced
        }
        (None, Some(_)) => ConfigStatus::Stale,
    };

    let sent_at = watch.sent.as_ref().map(|sent| timestamp(sent.at));
    let error_state = watch.rejected.as_ref().map(|rejected| UpdateFailureState {
        last_update_attempt: sent_at,
        details: rejected.message.to_string(),
        ..UpdateFailureState::default()
    });

    GenericXdsConfig {
        type_url: watch.resource_type.type_url().to_owned(),
        last_updated: sent_at,
        config_status: status.into(),
        error_state,
        ..GenericXdsConfig::default()
    }
}

/// The metadata of a node that identifies the proxy.
fn metadata(info: &ConnectionInfo) -> Struct {
    let text = |text: String| Value {
        kind: Some(ValueKind::StringValue(text)),
    };
    let field = |key: &str| {
        Some((
            key.to_owned(),
            text(info.proxy.meta(key).filter(|value| !value.is_empty())?),
        ))
    };
    let fields = ["CLUSTER_ID", "NAMESPACE", "ISTIO_VERSION"]
        .into_iter()
        .filter_map(field)
        .collect();
    Struct { fields }
}

fn timestamp(at: jiff::Timestamp) -> Timestamp {
    Timestamp {
        seconds: at.as_second(),
        nanos: at.subsec_nanosecond(),
    }
}
