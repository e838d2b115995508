//! WasmPlugins and TrafficExtensions: filters of users.
//!
//! Both kinds are treated alike, as istiod converts the first to the second. Lua is inline in the
//! listener; WebAssembly is referenced by name (ECDS), and the proxy accepts no traffic before it
//! is loaded. Agrees with Istio's `pilot/pkg/model/extensions.go`.

mod wasm;

use std::sync::Arc;

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::{
    DataSource, ExtensionConfigSource, data_source::Specifier,
};
use navarch_proto::envoy::config::listener::v3::{Filter, filter};
use navarch_proto::envoy::extensions::filters::http::lua::v3::Lua;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};

use super::build::ads_source;
use super::filters::class::ListenerClass;
use super::filters::http::packed_filter;
use super::policy::{self, Policy, PolicyService};
use super::root_and_own::root_namespace;
use super::waypoint;
use navarch_api::istio::{
    ExecutionPhase, LuaConfig, PluginPhase, PluginType, TrafficExtension, TrafficSelector,
    WasmConfig, WasmPlugin, WorkloadMode,
};
use navarch_api::names::{Namespace, ResourceName};
use navarch_api::object::{NamespacedName, Object, ObjectMeta};
use navarch_push::query::Query;
use navarch_push::view::View;

pub(super) use wasm::resource;

/// Prefix of the names of extensions.
const PREFIX: &str = "extensions.istio.io/trafficextension/";

/// Suffix of the names of extensions that are converted from WasmPlugins.
const FROM_PLUGIN: &str = "~istio-translated-wasmplugin";

/// Maximum size of a script.
const MAX_SCRIPT: usize = 65_536;

/// An extension, of either kind.
#[derive(Clone, Debug, PartialEq)]
struct Extension {
    namespace: Namespace,
    /// Its name, with the suffix of WasmPlugins.
    name: String,
    /// The version, which distinguishes modules of one URL.
    version: Arc<str>,
    /// Its phase in the filter chain.
    phase: ExecutionPhase,
    /// Its priority within the phase: higher first.
    priority: i32,
    /// The traffic that it applies to; empty means all.
    matches: Vec<TrafficSelector>,
    program: Program,
}

/// The program of an extension.
#[derive(Clone, Debug, PartialEq)]
enum Program {
    /// A WebAssembly module.
    Wasm(WasmConfig),
    Lua(String),
}

/// The filters of extensions, by phase.
#[derive(Clone, Debug)]
pub struct Phases<F> {
    /// Before authentication.
    pub authn: Vec<F>,
    /// Between authentication and authorization.
    pub authz: Vec<F>,
    /// After authorization.
    pub rest: Vec<F>,
}

impl<F> Phases<F> {
    /// All filters, if no other filter is in between.
    pub fn in_order(self) -> impl Iterator<Item = F> {
        self.authn.into_iter().chain(self.authz).chain(self.rest)
    }
}

/// The extensions that apply to the proxy: those of its namespace, then those of the root
/// namespace, each the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ExtensionsOf {
    /// The service whose own extensions apply as well, at its waypoint. Those of its namespace come
    /// last.
    service: Option<PolicyService>,
}

impl Query for ExtensionsOf {
    type Value = Vec<Extension>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut plugins = policy::namespaces::<WasmPlugin>(view);
        let mut extensions = policy::namespaces::<TrafficExtension>(view);
        plugins.reverse();
        extensions.reverse();
        let service = self.service.as_ref();
        let mut found: Vec<(&ObjectMeta, Extension)> = Vec::new();
        let plugins = attached_in::<WasmPlugin>(view, &plugins, service);
        let extensions = attached_in::<TrafficExtension>(view, &extensions, service);

        found.extend(
            plugins
                .iter()
                .map(|plugin| (&plugin.meta, of_plugin(plugin))),
        );

        found.extend(
            extensions
                .iter()
                .filter_map(|object| Some((&object.meta, of_extension(object)?))),
        );

        let root = root_namespace(view);
        let rank = |namespace: &Namespace| match service {
            _ if *namespace == root => 1,
            Some(service) if service.namespace == *namespace && !is_own(view, namespace) => 2,
            Some(_) | None => 0,
        };
        found.sort_by(|(a, one), (b, other)| {
            let key = |meta: &ObjectMeta| (rank(&meta.key.namespace), meta.created);
            key(a).cmp(&key(b)).then_with(|| one.name.cmp(&other.name))
        });

        found.into_iter().map(|(_, extension)| extension).collect()
    }
}

/// As [`policy::attached_in`], and reads each object by its name: whom one of them reaches, which
/// quarantine and rollouts ask, is found by that (`navarch_push::context::facts_of`).
fn attached_in<'a, T: Policy>(
    view: &'a View<'_>,
    namespaces: &[Namespace],
    service: Option<&PolicyService>,
) -> Vec<&'a Arc<Object<T>>> {
    policy::attached_in::<T>(view, namespaces, service)
        .iter()
        .filter_map(|object| view.object::<T>(&object.meta.key))
        .collect()
}

fn of_plugin(plugin: &Object<WasmPlugin>) -> Extension {
    let spec = &plugin.spec;

    Extension {
        namespace: plugin.meta.key.namespace.clone(),
        name: format!("{}{FROM_PLUGIN}", plugin.meta.key.name),
        version: plugin.meta.resource_version.clone(),
        phase: match spec.phase {
            PluginPhase::Unspecified => ExecutionPhase::Unspecified,
            PluginPhase::Authn => ExecutionPhase::Authn,
            PluginPhase::Authz => ExecutionPhase::Authz,
            PluginPhase::Stats => ExecutionPhase::Stats,
        },
        priority: spec.priority.unwrap_or(i32::MIN),
        matches: spec.matches.clone(),
        program: Program::Wasm(WasmConfig {
            url: spec.url.clone(),
            sha256: spec.sha256.clone(),
            image_pull_policy: spec.image_pull_policy,
            image_pull_secret: spec.image_pull_secret.clone(),
            verification_key: spec.verification_key.clone(),
            plugin_config: spec.plugin_config.clone(),
            plugin_name: spec.plugin_name.clone(),
            fail_strategy: spec.fail_strategy,
            vm_config: spec.vm_config.clone(),
            plugin_type: spec.plugin_type,
        }),
    }
}

/// A TrafficExtension; `None` for one without a program.
fn of_extension(object: &Object<TrafficExtension>) -> Option<Extension> {
    let spec = &object.spec;
    let program = match (&spec.wasm, &spec.lua) {
        (Some(wasm), _) if !wasm.url.is_empty() => Program::Wasm(wasm.clone()),
        (None, Some(LuaConfig { inline_code }))
            if (1..=MAX_SCRIPT).contains(&inline_code.len()) =>
        {
            Program::Lua(inline_code.clone())
        }
        (Some(_) | None, _) => return None,
    };

    Some(Extension {
        namespace: object.meta.key.namespace.clone(),
        name: object.meta.key.name.to_string(),
        version: object.meta.resource_version.clone(),
        phase: spec.phase,
        priority: spec.priority.unwrap_or(i32::MIN),
        matches: spec.matches.clone(),
        program,
    })
}

/// The names of the modules that the proxy's extensions request.
pub(crate) fn module_names(view: &View<'_>) -> Vec<ResourceName> {
    let extensions = view.get(&ExtensionsOf { service: None });
    let modules = extensions
        .iter()
        .filter(|extension| matches!(extension.program, Program::Wasm(_)));
    modules
        .map(|extension| ResourceName::new(extension.resource_name()))
        .collect()
}

/// The filters for the requests of a listener of a class at a port.
pub fn http_filters(view: &View<'_>, class: ListenerClass, port: u16) -> Phases<HttpFilter> {
    http_filters_for(view, class, port, None)
}

/// As [`http_filters`], including those for a service at its waypoint.
pub fn http_filters_for(
    view: &View<'_>,
    class: ListenerClass,
    port: u16,
    service: Option<PolicyService>,
) -> Phases<HttpFilter> {
    phases(view, class, port, service, |extension| {
        match &extension.program {
            Program::Lua(script) => {
                let script = DataSource {
                    specifier: Some(Specifier::InlineString(script.clone())),
                    ..DataSource::default()
                };
                let config = Lua {
                    default_source_code: Some(script),
                    ..Lua::default()
                };
                Some(packed_filter(&extension.resource_name(), pack(&config)))
            }

            Program::Wasm(wasm) if wasm.plugin_type != PluginType::Network => {
                let source = ecds_source(
                    ["wasm.v3.Wasm", "rbac.v3.RBAC"]
                        .map(|name| format!("envoy.extensions.filters.http.{name}")),
                );
                Some(HttpFilter {
                    name: extension.resource_name(),
                    config_type: Some(http_filter::ConfigType::ConfigDiscovery(source)),
                    ..HttpFilter::default()
                })
            }

            Program::Wasm(_) => None,
        }
    })
}

/// The filters for the connections of a listener of a class at a port.
pub fn network_filters(view: &View<'_>, class: ListenerClass, port: u16) -> Phases<Filter> {
    network_filters_for(view, class, port, None)
}

/// As [`network_filters`], including those for a service at its waypoint.
pub fn network_filters_for(
    view: &View<'_>,
    class: ListenerClass,
    port: u16,
    service: Option<PolicyService>,
) -> Phases<Filter> {
    phases(view, class, port, service, |extension| {
        match &extension.program {
            Program::Wasm(wasm) if wasm.plugin_type == PluginType::Network => {
                let names = ["wasm.v3.Wasm", "rbac.v3.RBAC"]
                    .map(|name| format!("envoy.extensions.filters.network.{name}"));
                Some(Filter {
                    name: extension.resource_name(),
                    config_type: Some(filter::ConfigType::ConfigDiscovery(ecds_source(names))),
                })
            }
            Program::Wasm(_) | Program::Lua(_) => None,
        }
    })
}

/// The filters of all extensions for a listener, in their order.
fn phases<F>(
    view: &View<'_>,
    class: ListenerClass,
    port: u16,
    service: Option<PolicyService>,
    build: impl Fn(&Extension) -> Option<F>,
) -> Phases<F> {
    let extensions = view.get(&ExtensionsOf { service });
    let mut ordered: Vec<&Extension> = extensions
        .iter()
        .filter(|extension| extension.applies_to(class, port))
        .collect();
    ordered.sort_by_key(|extension| std::cmp::Reverse(extension.priority));
    let of = |phase: ExecutionPhase| {
        ordered
            .iter()
            .filter(move |extension| extension.phase == phase)
    };

    Phases {
        authn: of(ExecutionPhase::Authn)
            .filter_map(|extension| build(extension))
            .collect(),
        authz: of(ExecutionPhase::Authz)
            .filter_map(|extension| build(extension))
            .collect(),
        rest: of(ExecutionPhase::Stats)
            .chain(of(ExecutionPhase::Unspecified))
            .filter_map(|extension| build(extension))
            .collect(),
    }
}

/// An ECDS reference to a configuration of one of these types.
fn ecds_source<const N: usize>(types: [String; N]) -> ExtensionConfigSource {
    ExtensionConfigSource {
        config_source: Some(ads_source()),
        type_urls: types
            .into_iter()
            .map(|name| format!("type.googleapis.com/{name}"))
            .collect(),
        ..ExtensionConfigSource::default()
    }
}

impl Extension {
    fn resource_name(&self) -> String {
        format!("{PREFIX}{}.{}", self.namespace, self.name)
    }

    /// Whether it applies to the traffic of a listener.
    fn applies_to(&self, class: ListenerClass, port: u16) -> bool {
        let side = match class {
            ListenerClass::SidecarInbound => WorkloadMode::Server,
            ListenerClass::SidecarOutbound | ListenerClass::Gateway => WorkloadMode::Client,
        };
        self.matches.is_empty()
            || self.matches.iter().any(|selector| {
                let of_side = matches!(
                    selector.mode,
                    WorkloadMode::Undefined | WorkloadMode::ClientAndServer
                );
                let at_port = |wanted: u32| wanted != 0 && wanted == u32::from(port);
                (of_side || selector.mode == side)
                    && (selector.ports.is_empty()
                        || selector.ports.iter().any(|wanted| at_port(wanted.number)))
            })
    }
}

/// The extension of this resource name, if it is in a namespace whose extensions can apply to the
/// proxy.
fn named(view: &View<'_>, name: &str) -> Option<(Extension, bool)> {
    let (namespace, name) = name.strip_prefix(PREFIX)?.split_once('.')?;
    let namespace = Namespace::new(namespace);

    // A waypoint runs the extensions of its services.
    let services = waypoint::policy_services(view);
    let is_served = || {
        services
            .iter()
            .any(|service| service.namespace == namespace)
    };
    if namespace != root_namespace(view) && !is_own(view, &namespace) && !is_served() {
        return None;
    }

    if let Some(plugin) = name.strip_suffix(FROM_PLUGIN) {
        let object = view.object::<WasmPlugin>(&NamespacedName::new(namespace.as_str(), plugin))?;
        return Some((of_plugin(object), attaches(view, object, &services)));
    }

    let object = view.object::<TrafficExtension>(&NamespacedName::new(namespace.as_str(), name))?;
    Some((of_extension(object)?, attaches(view, object, &services)))
}

/// Whether an extension is for the proxy, or for one of its services if it is a waypoint.
fn attaches<T: Policy>(view: &View<'_>, object: &Object<T>, services: &[PolicyService]) -> bool {
    policy::attaches(view, object, None)
        || services
            .iter()
            .any(|service| policy::attaches(view, object, Some(service)))
}

/// Whether a namespace is that of the proxy.
fn is_own(view: &View<'_>, namespace: &Namespace) -> bool {
    view.proxy().namespace_among([namespace.clone()]).is_some()
}
