//! What is watched for the deployment of Gateways.

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
use crate::default_revision::TAG;
use crate::revisions::DEFAULT_VALIDATOR;

/// The label of ConfigMaps that say something of all Gateways of a class.
pub(super) const DEFAULTS_FOR_CLASS: &str = "gateway.istio.io/defaults-for-class";

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Gateways.
    Gateways,
    /// GatewayClasses.
    Classes,
    /// ListenerSets.
    ListenerSets,
    /// Namespaces, metadata alone.
    Namespaces,
    /// ConfigMaps that Gateways may name, metadata alone.
    ConfigMaps,
    /// ConfigMaps beside the control plane that say something of all Gateways of a class.
    Defaults,
    /// Objects that these controllers made, metadata alone.
    Made(Made),
    /// Webhooks of tags, metadata alone.
    TagWebhooks,
    /// Services of tags, metadata alone.
    TagServices,
    /// The webhook of the default revision, metadata alone.
    DefaultValidator,
}

/// The kinds of objects that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Made {
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

impl Made {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::ServiceAccount,
        Self::Deployment,
        Self::Service,
        Self::HorizontalPodAutoscaler,
        Self::PodDisruptionBudget,
    ];

    /// The kind of an object.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        Self::ALL.into_iter().find(|made| {
            let resource = made.resource();
            resource.kind == text("kind") && resource.api_version == text("apiVersion")
        })
    }

    /// The kind as the API server knows it.
    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::ServiceAccount => resource("", "v1", "ServiceAccount", "serviceaccounts"),
            Self::Deployment => resource("apps", "v1", "Deployment", "deployments"),
            Self::Service => resource("", "v1", "Service", "services"),
            Self::HorizontalPodAutoscaler => {
                resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
            }
            Self::PodDisruptionBudget => resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        }
    }
}

/// A kind of the Gateway API as the API server knows it.
pub(super) fn gateway_api(kind: &str, plural: &str) -> ApiResource {
    resource(GATEWAY_API.0, GATEWAY_API.1, kind, plural)
}

/// A kind as the API server knows it.
pub(crate) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// An event, and what it is about.
pub(super) type TaggedEvent = (Source, Result<Event<DynamicObject>, Error>);

pub(super) fn all(
    cluster: &Cluster,
    settings: &GatewayControllerSettings,
) -> SelectAll<BoxStream<'static, TaggedEvent>> {
    let beside = settings.namespace.as_str();
    let config = Config::default;
    let maps = resource("", "v1", "ConfigMap", "configmaps");
    let webhook = |kind: &str, plural: &str| resource("admissionregistration.k8s.io", "v1", kind, plural);
    let mutating = webhook("MutatingWebhookConfiguration", "mutatingwebhookconfigurations");
    let validating = webhook("ValidatingWebhookConfiguration", "validatingwebhookconfigurations");
    let namespaces = resource("", "v1", "Namespace", "namespaces");
    let services = resource("", "v1", "Service", "services");
    let only_validator = config().fields(&format!("metadata.name={DEFAULT_VALIDATOR}"));
    let watches = Watches(cluster);
    let mut all: SelectAll<_> = [
        watches.whole(Source::Gateways, None, &gateway_api("Gateway", "gateways"), config()),
        watches.whole(Source::Classes, None, &gateway_api("GatewayClass", "gatewayclasses"), config()),
        watches.whole(Source::ListenerSets, None, &gateway_api("ListenerSet", "listenersets"), config()),
        watches.whole(Source::Defaults, Some(beside), &maps, config().labels(DEFAULTS_FOR_CLASS)),
        watches.metadata(Source::Namespaces, None, &namespaces, config()),
        watches.metadata(Source::ConfigMaps, None, &maps, config()),
        watches.metadata(Source::TagWebhooks, None, &mutating, config().labels(TAG)),
        watches.metadata(Source::TagServices, Some(beside), &services, config().labels(TAG)),
        watches.metadata(Source::DefaultValidator, None, &validating, only_validator),
    ]
    .into_iter()
    .collect();
    for made in Made::ALL {
        all.push(watches.metadata(Source::Made(made), None, &made.resource(), config().labels(MANAGED)));
    }
    all
}

/// Makes watches of a cluster.
struct Watches<'a>(&'a Cluster);

impl Watches<'_> {
    /// A watch of whole objects, in a namespace or everywhere.
    fn whole(
        &self,
        source: Source,
        namespace: Option<&str>,
        kind: &ApiResource,
        config: Config,
    ) -> BoxStream<'static, TaggedEvent> {
        let api: Api<DynamicObject> = self.api(namespace, kind);
        watcher(api, config).default_backoff().map(move |event| (source, event)).boxed()
    }

    /// A watch of the metadata of objects.
    fn metadata(
        &self,
        source: Source,
        namespace: Option<&str>,
        kind: &ApiResource,
        config: Config,
    ) -> BoxStream<'static, TaggedEvent> {
        let api: Api<PartialObjectMeta<DynamicObject>> = self.api(namespace, kind);
        let events = watcher(api, config).default_backoff();
        events.map(move |event| (source, event.map(without_content))).boxed()
    }

    /// Objects of a kind, in a namespace or everywhere.
    fn api<K>(&self, namespace: Option<&str>, kind: &ApiResource) -> Api<K>
    where
        K: kube::Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let client = self.0.0.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, kind),
            None => Api::all_with(client, kind),
        }
    }
}

/// An event about metadata as one about an object that has nothing else.
pub(super) fn without_content(event: Event<PartialObjectMeta<DynamicObject>>) -> Event<DynamicObject> {
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
