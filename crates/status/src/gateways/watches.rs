//! The watches for the deployment of Gateways.

use std::fmt::Debug;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::settings::GatewayControllerSettings;
use super::{GATEWAY_API, MANAGED};
use crate::cluster::Cluster;
use crate::revisions::{self, RevisionSource};

/// The label of ConfigMaps with defaults for all Gateways of a class.
pub(super) const DEFAULTS_FOR_CLASS: &str = "gateway.istio.io/defaults-for-class";

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Gateways of the Gateway API in all namespaces.
    Gateways,
    /// GatewayClasses.
    Classes,
    /// ListenerSets in all namespaces, whose listeners add ports to a Gateway's Service.
    ListenerSets,
    /// Namespaces, metadata only.
    Namespaces,
    /// ConfigMaps that Gateways may refer to, metadata only.
    ConfigMaps,
    /// ConfigMaps in the control plane's namespace with defaults for classes.
    Defaults,
    /// Objects that these controllers created, metadata only.
    Deployed(DeployedKind),
    /// Webhooks of tags, metadata only.
    TagWebhooks,
    /// Services of tags, metadata only.
    TagServices,
    /// The webhook of the default revision, metadata only.
    DefaultValidator,
}

/// The kinds of objects that the controller creates for a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeployedKind {
    /// `v1/ServiceAccount`.
    ServiceAccount,
    /// `apps/v1/Deployment`.
    Deployment,
    /// `v1/Service`.
    Service,
    /// `autoscaling/v2/HorizontalPodAutoscaler`.
    HorizontalPodAutoscaler,
    /// `policy/v1/PodDisruptionBudget`.
    PodDisruptionBudget,
}

impl Source {
    /// Converts the source of an event about revisions.
    fn of_revisions(source: RevisionSource) -> Self {
        match source {
            RevisionSource::TagWebhooks => Self::TagWebhooks,
            RevisionSource::TagServices => Self::TagServices,
            RevisionSource::DefaultValidator => Self::DefaultValidator,
            RevisionSource::Namespaces => Self::Namespaces,
        }
    }
}

impl DeployedKind {
    /// Each is watched. The state of the cluster is incomplete before all of their initial lists.
    pub const ALL: [Self; 5] = [
        Self::ServiceAccount,
        Self::Deployment,
        Self::Service,
        Self::HorizontalPodAutoscaler,
        Self::PodDisruptionBudget,
    ];

    pub(super) fn of(object: &Value) -> Option<Self> {
        let text = |field: &str| {
            object
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        Self::ALL.into_iter().find(|made| {
            let resource = made.resource();
            resource.kind == text("kind") && resource.api_version == text("apiVersion")
        })
    }

    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::ServiceAccount => resource("", "v1", "ServiceAccount", "serviceaccounts"),
            Self::Deployment => resource("apps", "v1", "Deployment", "deployments"),
            Self::Service => resource("", "v1", "Service", "services"),
            Self::HorizontalPodAutoscaler => resource(
                "autoscaling",
                "v2",
                "HorizontalPodAutoscaler",
                "horizontalpodautoscalers",
            ),
            Self::PodDisruptionBudget => resource(
                "policy",
                "v1",
                "PodDisruptionBudget",
                "poddisruptionbudgets",
            ),
        }
    }
}

pub(super) fn gateway_api(kind: &str, plural: &str) -> ApiResource {
    resource(GATEWAY_API.0, GATEWAY_API.1, kind, plural)
}

pub(crate) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

pub(super) type TaggedEvent = (Source, Result<Event<DynamicObject>, Error>);

pub(super) fn all(
    cluster: &Cluster,
    settings: &GatewayControllerSettings,
) -> SelectAll<BoxStream<'static, TaggedEvent>> {
    let beside = settings.namespace.as_str();
    let config = Config::default;
    let maps = resource("", "v1", "ConfigMap", "configmaps");
    let whole = |source: Source, namespace: Option<&str>, kind: &ApiResource, config: Config| {
        let objects = api::<DynamicObject>(cluster, namespace, kind);
        watcher(objects, config)
            .default_backoff()
            .map(move |event| (source, event))
            .boxed()
    };

    let mut all: SelectAll<BoxStream<'static, TaggedEvent>> = [
        whole(
            Source::Gateways,
            None,
            &gateway_api("Gateway", "gateways"),
            config(),
        ),
        whole(
            Source::Classes,
            None,
            &gateway_api("GatewayClass", "gatewayclasses"),
            config(),
        ),
        whole(
            Source::ListenerSets,
            None,
            &gateway_api("ListenerSet", "listenersets"),
            config(),
        ),
        whole(
            Source::Defaults,
            Some(beside),
            &maps,
            config().labels(DEFAULTS_FOR_CLASS),
        ),
        metadata_events(cluster, Source::ConfigMaps, None, &maps, config()),
    ]
    .into_iter()
    .collect();
    all.extend(revisions::watches(cluster, beside, Source::of_revisions));

    for made in DeployedKind::ALL {
        all.push(metadata_events(
            cluster,
            Source::Deployed(made),
            None,
            &made.resource(),
            config().labels(MANAGED),
        ));
    }

    all
}

/// A stream of events with their sources.
pub(crate) type SourceEvents<S> = BoxStream<'static, (S, Result<Event<DynamicObject>, Error>)>;

/// A watch of the metadata of objects of a kind, in a namespace or everywhere, each event with its
/// source.
pub(crate) fn metadata_events<S: Copy + Send + 'static>(
    cluster: &Cluster,
    source: S,
    namespace: Option<&str>,
    kind: &ApiResource,
    config: Config,
) -> SourceEvents<S> {
    let objects = api::<PartialObjectMeta<DynamicObject>>(cluster, namespace, kind);
    watcher(objects, config)
        .default_backoff()
        .map(move |event| (source, event.map(without_content)))
        .boxed()
}

fn api<K>(cluster: &Cluster, namespace: Option<&str>, kind: &ApiResource) -> Api<K>
where
    K: kube::Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let client = cluster.0.clone();
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, kind),
        None => Api::all_with(client, kind),
    }
}

/// Converts an event about metadata to an event about an object without other fields.
pub(super) fn without_content(
    event: Event<PartialObjectMeta<DynamicObject>>,
) -> Event<DynamicObject> {
    let object = |partial: PartialObjectMeta<DynamicObject>| DynamicObject {
        types: partial.types,
        metadata: partial.metadata,
        data: Value::Null,
    };
    match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(partial) => Event::InitApply(object(partial)),
        Event::Apply(partial) => Event::Apply(object(partial)),
        Event::Delete(partial) => Event::Delete(object(partial)),
    }
}
