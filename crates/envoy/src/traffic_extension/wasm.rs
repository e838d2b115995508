//! WebAssembly modules as resources of proxies.

use std::collections::BTreeMap;

use bytes::Bytes;
use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::{
    AsyncDataSource, DataSource, HttpUri, RemoteDataSource, TypedExtensionConfig,
    async_data_source, data_source, http_uri::HttpUpstreamType,
};
use navarch_proto::envoy::extensions::filters::http::wasm::v3::Wasm as HttpWasm;
use navarch_proto::envoy::extensions::filters::network::wasm::v3::Wasm as NetworkWasm;
use navarch_proto::envoy::extensions::wasm::v3::plugin_config::Vm;
use navarch_proto::envoy::extensions::wasm::v3::{
    EnvironmentVariables, FailurePolicy, PluginConfig, VmConfig,
};
use prost::Message;
use prost_types::Any;
use serde_json::Value;

use super::{Extension, Program, named};
use crate::build::encode;
use crate::credentials::DOCKER_CONFIG;
use navarch_api::istio::{EnvValueSource, FailStrategy, PluginType, PullPolicy, WasmConfig};
use navarch_api::kubernetes::Secret;
use navarch_api::names::ResourceName;
use navarch_api::object::NamespacedName;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// Timeout of fetching a module.
const TIMEOUT: prost_types::Duration = prost_types::Duration {
    seconds: 30,
    nanos: 0,
};

/// The type of Secrets that hold registry credentials.
const DOCKER_TYPE: &str = "kubernetes.io/dockerconfigjson";

/// Whether the proxy has a verified identity: only then may it get credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HasVerifiedIdentity;

impl Query for HasVerifiedIdentity {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        view.proxy().identity().is_some()
    }
}

impl ProxyQuery for HasVerifiedIdentity {}

/// The module of an extension, by the name that listeners reference.
pub(crate) fn resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let (extension, attached) = named(view, name.as_str())?;
    let Program::Wasm(wasm) = &extension.program else {
        return None;
    };

    let credentials = if attached {
        credentials(view, &extension, wasm)
    } else {
        None
    };

    let config = Some(plugin(&extension, wasm, credentials));
    let typed = match wasm.plugin_type {
        PluginType::Network => pack(&NetworkWasm { config }),
        PluginType::Http | PluginType::Unspecified => pack(&HttpWasm { config }),
    };

    Some(encode(&TypedExtensionConfig {
        name: name.to_string(),
        typed_config: Some(typed),
    }))
}

/// The credentials in the Secret that an extension references, which is in its own namespace.
fn credentials(view: &View<'_>, extension: &Extension, wasm: &WasmConfig) -> Option<String> {
    let name = wasm
        .image_pull_secret
        .rsplit('/')
        .next()
        .filter(|name| !name.is_empty())?;
    if !*view.derived(&HasVerifiedIdentity) {
        return None;
    }
    let secret = view.object::<Secret>(&NamespacedName::new(extension.namespace.as_str(), name))?;
    let bytes = secret
        .spec
        .data
        .get(DOCKER_CONFIG)
        .filter(|_| &*secret.spec.secret_type == DOCKER_TYPE)?;
    String::from_utf8(bytes.expose().to_vec()).ok()
}

/// The plugin configuration of the module, for Envoy and for the agent that fetches it.
fn plugin(extension: &Extension, wasm: &WasmConfig, credentials: Option<String>) -> PluginConfig {
    let failure_policy = match wasm.fail_strategy {
        FailStrategy::Close => FailurePolicy::FailClosed,
        FailStrategy::Open => FailurePolicy::FailOpen,
        FailStrategy::Reload => FailurePolicy::FailReload,
    };

    let vm = VmConfig {
        runtime: "envoy.wasm.runtime.v8".to_owned(),
        code: Some(code(wasm)),
        environment_variables: Some(environment(extension, wasm, credentials)),
        ..VmConfig::default()
    };

    PluginConfig {
        name: format!("{}.{}", extension.namespace, extension.name),
        root_id: wasm.plugin_name.clone(),
        configuration: Some(configuration(wasm.plugin_config.as_ref())),
        failure_policy: failure_policy.into(),
        vm: Some(Vm::VmConfig(vm)),
        ..PluginConfig::default()
    }
}

/// The source of the module. Remote ones are fetched by the agent, so that the cluster is never
/// used.
fn code(wasm: &WasmConfig) -> AsyncDataSource {
    let specifier = match wasm.url.strip_prefix("file://") {
        Some(path) => async_data_source::Specifier::Local(DataSource {
            specifier: Some(data_source::Specifier::Filename(path.to_owned())),
            ..DataSource::default()
        }),
        None => async_data_source::Specifier::Remote(RemoteDataSource {
            http_uri: Some(HttpUri {
                uri: if wasm.url.contains("://") {
                    wasm.url.clone()
                } else {
                    format!("oci://{}", wasm.url)
                },
                timeout: Some(TIMEOUT),
                http_upstream_type: Some(HttpUpstreamType::Cluster("_".to_owned())),
            }),
            sha256: wasm.sha256.clone(),
            ..RemoteDataSource::default()
        }),
    };

    AsyncDataSource {
        specifier: Some(specifier),
    }
}

/// The module's environment variables, and the settings with which the agent fetches it.
fn environment(
    extension: &Extension,
    wasm: &WasmConfig,
    credentials: Option<String>,
) -> EnvironmentVariables {
    let mut key_values = BTreeMap::new();

    if !wasm.image_pull_secret.is_empty() {
        key_values.insert(
            "ISTIO_META_WASM_IMAGE_PULL_SECRET".to_owned(),
            credentials.unwrap_or_default(),
        );
    }

    if wasm.image_pull_policy != PullPolicy::Unspecified {
        key_values.insert(
            "ISTIO_META_WASM_IMAGE_PULL_POLICY".to_owned(),
            wasm.image_pull_policy.to_string(),
        );
    }

    key_values.insert(
        "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION".to_owned(),
        extension.version.to_string(),
    );
    let mut host_env_keys = Vec::new();

    for variable in wasm.vm_config.iter().flat_map(|vm| &vm.env) {
        match variable.value_from {
            EnvValueSource::Inline => {
                _ = key_values.insert(variable.name.clone(), variable.value.clone())
            }
            EnvValueSource::Host => host_env_keys.push(variable.name.clone()),
        }
    }

    EnvironmentVariables {
        host_env_keys,
        key_values,
    }
}

/// The configuration of the module, as JSON text.
fn configuration(config: Option<&Value>) -> Any {
    match config {
        Some(Value::Object(members)) if !members.is_empty() => {
            let text = whole_numbers(&Value::Object(members.clone())).to_string();
            Any {
                type_url: "type.googleapis.com/google.protobuf.StringValue".to_owned(),
                value: text.encode_to_vec(),
            }
        }
        Some(_) | None => Any::default(),
    }
}

/// The value with its members ordered by name and whole numbers as integers:
/// `google.protobuf.Struct` has only doubles.
fn whole_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the bound keeps the value exact"
            )]
            Some(double) if double.fract() == 0.0 && double.abs() < 9e15 => {
                Value::from(double as i64)
            }
            Some(_) | None => value.clone(),
        },

        Value::Array(items) => items.iter().map(whole_numbers).collect(),

        Value::Object(members) => {
            let sorted: BTreeMap<&String, Value> = members
                .iter()
                .map(|(key, value)| (key, whole_numbers(value)))
                .collect();
            Value::Object(
                sorted
                    .into_iter()
                    .map(|(key, value)| (key.clone(), value))
                    .collect(),
            )
        }

        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}
