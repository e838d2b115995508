//! Replaces remote modules in extension configs by files.

use std::time::Duration;

use navarch_proto::any;
use navarch_proto::envoy::config::core::v3::async_data_source::Specifier as AsyncSpecifier;
use navarch_proto::envoy::config::core::v3::data_source::Specifier;
use navarch_proto::envoy::config::core::v3::{
    AsyncDataSource, DataSource, RemoteDataSource, TypedExtensionConfig,
};
use navarch_proto::envoy::config::rbac::v3::Rbac as Rules;
use navarch_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use navarch_proto::envoy::extensions::filters::http::wasm::v3::Wasm as HttpWasm;
use navarch_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use navarch_proto::envoy::extensions::filters::network::wasm::v3::Wasm as NetworkWasm;
use navarch_proto::envoy::extensions::wasm::v3::plugin_config::Vm;
use navarch_proto::envoy::extensions::wasm::v3::{FailurePolicy, PluginConfig, VmConfig};
use navarch_proto::json::{Codec, JsonError};
use navarch_proto::udpa;
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Any, Struct, Value};
use tokio::time::Instant;

use super::cache::{Cache, ModuleError, ModuleRequest, PullPolicy};
use navarch_api::kubernetes::SecretBytes;

const HTTP: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
const NETWORK: &str = "type.googleapis.com/envoy.extensions.filters.network.wasm.v3.Wasm";
/// A filter with a configuration in JSON form.
const TYPED_STRUCT: &str = "type.googleapis.com/udpa.type.v1.TypedStruct";
/// The prefix of the control plane's parameters in the module's environment, which are removed from
/// it.
const OURS: &str = "ISTIO_META_";
const SECRET: &str = "ISTIO_META_WASM_IMAGE_PULL_SECRET";
const POLICY: &str = "ISTIO_META_WASM_IMAGE_PULL_POLICY";
/// The version of the resource that refers to the module.
const VERSION: &str = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION";
/// A placeholder checksum, since Envoy requires one.
const NO_CHECKSUM: &str = "nil";
/// Default timeout of a fetch.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum timeout of a fetch.
const MAX_TIMEOUT: Duration = Duration::from_secs(300);

/// Why an extension config is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The resource is not valid protobuf.
    #[error("failed to decode an extension config")]
    Unreadable(#[from] prost::DecodeError),
    /// The configuration cannot be converted from JSON.
    #[error("failed to convert an extension config to JSON")]
    Json(#[from] JsonError),
    /// The resource is empty.
    #[error("extension config {0} is empty")]
    Empty(String),
    /// The config has no module.
    #[error("extension config {0} has no module")]
    NoModule(String),
}

/// Why a module is missing.
#[derive(Debug, thiserror::Error)]
enum Absent {
    /// The pull secret is missing.
    #[error("the pull secret is missing")]
    Secret,
    /// The URL is missing.
    #[error("the module has no URL")]
    Url,
    /// The module could not be fetched.
    #[error(transparent)]
    Module(#[from] ModuleError),
}

/// A Wasm filter.
enum Filter {
    Http(Box<HttpWasm>),
    Network(Box<NetworkWasm>),
}

/// Replaces a remote module by a file. Returns whether there was one.
pub(super) async fn localize(cache: &Cache, resource: &mut Any) -> Result<bool, ConvertError> {
    let mut config = TypedExtensionConfig::decode(&resource.value[..])?;
    let TypedExtensionConfig { name, typed_config } = &mut config;
    let Some(typed) = typed_config else {
        return Err(ConvertError::Empty(std::mem::take(name)));
    };
    let changed = localize_filter(cache, name, typed).await?;
    if changed {
        resource.value = config.encode_to_vec();
    }
    Ok(changed)
}

/// Converts the config of one filter.
pub(super) async fn localize_filter(
    cache: &Cache,
    name: &str,
    typed: &mut Any,
) -> Result<bool, ConvertError> {
    let begun = Instant::now();
    let outcome = convert(cache, name, typed).await;
    let result = match &outcome {
        Ok(Converted::Replaced) => "success",
        Ok(Converted::Nothing) => "no_remote_load",
        Ok(Converted::StoodIn) => "fetch_failure",
        Err(_) => "unmarshal_failure",
    };
    cache.metrics().module_converted(result, begun.elapsed());
    outcome.map(|converted| !matches!(converted, Converted::Nothing))
}

/// The result of converting a filter's config.
enum Converted {
    /// There is no remote module.
    Nothing,
    /// The module is replaced by a file.
    Replaced,
    /// The filter is replaced by another one.
    StoodIn,
}

/// Replaces a remote module by a file.
async fn convert(cache: &Cache, name: &str, typed: &mut Any) -> Result<Converted, ConvertError> {
    let Some(mut filter) = Filter::read(typed)? else {
        return Ok(Converted::Nothing);
    };

    let plugin = filter.plugin();
    let code = plugin.and_then(|plugin| match &plugin.vm {
        Some(Vm::VmConfig(vm)) => vm.code.as_ref().and_then(|code| code.specifier.as_ref()),
        None => None,
    });
    match code {
        Some(AsyncSpecifier::Remote(_)) => {}
        Some(AsyncSpecifier::Local(_)) => return Ok(Converted::Nothing),
        None => return Err(ConvertError::NoModule(name.to_owned())),
    }

    let replaced = match filter.plugin_mut() {
        Some(PluginConfig {
            vm: Some(Vm::VmConfig(vm)),
            ..
        }) => fetch(cache, name, vm).await,
        Some(_) | None => Ok(()),
    };

    let (replacement, converted) = match replaced {
        Ok(()) => (filter.pack(), Converted::Replaced),
        Err(error) => {
            let open = filter.fails_open();
            let error: &dyn std::error::Error = &error;
            tracing::error!(
                name,
                error,
                open,
                "failed to fetch a Wasm module; using the failure-policy filter"
            );
            (filter.fallback_filter(open), Converted::StoodIn)
        }
    };

    *typed = replacement;
    Ok(converted)
}

/// Fetches the module of a VM config, and replaces it by its file.
async fn fetch(cache: &Cache, resource: &str, vm: &mut VmConfig) -> Result<(), Absent> {
    let mut secret = None;
    let mut policy = PullPolicy::default();
    let mut version = String::new();
    if let Some(environment) = &mut vm.environment_variables {
        let values = std::mem::take(&mut environment.key_values);
        for (key, value) in values {
            match key.as_str() {
                SECRET if value.is_empty() => return Err(Absent::Secret),
                SECRET => secret = Some(SecretBytes::new(value)),
                POLICY => {
                    policy = match value.as_str() {
                        "IfNotPresent" => PullPolicy::IfNotPresent,
                        "Always" => PullPolicy::Always,
                        _ => PullPolicy::Unspecified,
                    }
                }
                VERSION => version = value,
                _ if key.starts_with(OURS) => {}
                _ => _ = environment.key_values.insert(key, value),
            }
        }

        if environment.key_values.is_empty() && environment.host_env_keys.is_empty() {
            vm.environment_variables = None;
        }
    }

    let Some(AsyncDataSource {
        specifier: Some(AsyncSpecifier::Remote(remote)),
    }) = &vm.code
    else {
        return Ok(());
    };

    let RemoteDataSource {
        http_uri,
        sha256,
        retry_policy: _,
    } = remote;
    let uri = http_uri.as_ref().ok_or(Absent::Url)?;
    let timeout = uri
        .timeout
        .and_then(|timeout| Duration::try_from(timeout).ok())
        .unwrap_or(TIMEOUT);

    let wanted = ModuleRequest {
        url: uri.uri.clone(),
        checksum: Some(sha256.clone())
            .filter(|sum| sum != NO_CHECKSUM)
            .unwrap_or_default(),
        resource: resource.to_owned(),
        version,
        timeout: timeout.min(MAX_TIMEOUT),
        secret,
        policy,
    };

    let path = cache.get(&wanted).await?;
    let file = Specifier::Filename(path.to_string_lossy().into_owned());
    let local = DataSource {
        specifier: Some(file),
        ..DataSource::default()
    };
    vm.code = Some(AsyncDataSource {
        specifier: Some(AsyncSpecifier::Local(local)),
    });

    Ok(())
}

impl Filter {
    /// Decodes a filter; `None` if it is not a Wasm filter.
    fn read(typed: &Any) -> Result<Option<Self>, ConvertError> {
        let (type_url, value) = if typed.type_url == TYPED_STRUCT {
            let typed = udpa::r#type::v1::TypedStruct::decode(&typed.value[..])?;
            if !matches!(typed.type_url.as_str(), HTTP | NETWORK) {
                return Ok(None);
            }
            let json = to_json(typed.value.unwrap_or_default());
            // Constructed only here, as it is large and rarely needed.
            let bytes = Codec::new().from_json(&typed.type_url, &json)?;
            (typed.type_url, bytes)
        } else if matches!(typed.type_url.as_str(), HTTP | NETWORK) {
            (typed.type_url.clone(), typed.value.clone())
        } else {
            return Ok(None);
        };

        Ok(Some(if type_url == HTTP {
            Self::Http(Box::new(HttpWasm::decode(&value[..])?))
        } else {
            Self::Network(Box::new(NetworkWasm::decode(&value[..])?))
        }))
    }

    fn plugin(&self) -> Option<&PluginConfig> {
        match self {
            Self::Http(filter) => filter.config.as_ref(),
            Self::Network(filter) => filter.config.as_ref(),
        }
    }

    /// The plugin config, mutably.
    fn plugin_mut(&mut self) -> Option<&mut PluginConfig> {
        match self {
            Self::Http(filter) => filter.config.as_mut(),
            Self::Network(filter) => filter.config.as_mut(),
        }
    }

    /// Encodes the filter as a resource.
    fn pack(&self) -> Any {
        match self {
            Self::Http(filter) => any::pack(&**filter),
            Self::Network(filter) => any::pack(&**filter),
        }
    }

    /// Whether traffic passes if the module cannot be fetched (`FAIL_OPEN`).
    #[allow(deprecated, reason = "control planes still send the deprecated field")]
    fn fails_open(&self) -> bool {
        self.plugin()
            .is_some_and(|plugin| match plugin.failure_policy() {
                FailurePolicy::Unspecified => plugin.fail_open,
                FailurePolicy::FailOpen => true,
                FailurePolicy::FailClosed | FailurePolicy::FailReload => false,
            })
    }

    /// A filter that allows or denies everything.
    fn fallback_filter(&self, open: bool) -> Any {
        // No rules allow everything; empty rules deny everything.
        let rules = (!open).then(Rules::default);
        let prefix = if open {
            "wasm-default-allow"
        } else {
            "wasm-default-deny"
        }
        .to_owned();

        match self {
            Self::Http(_) => any::pack(&HttpRbac {
                rules,
                rules_stat_prefix: prefix,
                ..HttpRbac::default()
            }),
            Self::Network(_) => any::pack(&NetworkRbac {
                rules,
                stat_prefix: prefix,
                ..NetworkRbac::default()
            }),
        }
    }
}

/// Converts a `google.protobuf.Struct` to JSON.
fn to_json(from: Struct) -> serde_json::Value {
    serde_json::Value::Object(
        from.fields
            .into_iter()
            .map(|(key, value)| (key, value_to_json(value)))
            .collect(),
    )
}

fn value_to_json(value: Value) -> serde_json::Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        // Integers are written without a fraction, as integer fields require.
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() < 9e15 => {
            format!("{number:.0}")
                .parse::<i64>()
                .map_or(serde_json::Value::Null, Into::into)
        }
        Some(Kind::NumberValue(number)) => number.into(),
        Some(Kind::StringValue(text)) => text.into(),
        Some(Kind::BoolValue(truth)) => truth.into(),
        Some(Kind::StructValue(fields)) => to_json(fields),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(value_to_json).collect(),
    }
}
