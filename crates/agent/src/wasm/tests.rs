//! Modules from a real server, over HTTP and from images, and replacement filters for modules that
//! cannot be fetched.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Path as UrlPath;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Redirect};
use axum::routing::get;
use base64::Engine as _;
use navarch_proto::any;
use navarch_proto::envoy::config::core::v3::async_data_source::Specifier as AsyncSpecifier;
use navarch_proto::envoy::config::core::v3::data_source::Specifier;
use navarch_proto::envoy::config::core::v3::{
    AsyncDataSource, HttpUri, RemoteDataSource, TypedExtensionConfig,
};
use navarch_proto::envoy::config::listener::v3::filter::ConfigType;
use navarch_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use navarch_proto::envoy::extensions::filters::http::rbac::v3::Rbac;
use navarch_proto::envoy::extensions::filters::http::wasm::v3::Wasm;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType as HttpConfigType;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter,
};
use navarch_proto::envoy::extensions::wasm::v3::plugin_config::Vm;
use navarch_proto::envoy::extensions::wasm::v3::{
    EnvironmentVariables, FailurePolicy, PluginConfig, VmConfig,
};
use prost::Message as _;
use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::secrets::tests::clock;
use navarch_base::digest::sha256_hex;

const MODULE: &[u8] = b"\0asm\x01\0\0\0module";

/// The number of requests to the server.
#[derive(Debug, Default)]
struct RequestCount(AtomicUsize);

/// An image's layer.
fn layer() -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_size(MODULE.len() as u64);
    header.set_mode(0o644);
    let mut builder = tar::Builder::new(Vec::new());
    builder
        .append_data(&mut header, "plugin.wasm", MODULE)
        .unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&builder.into_inner().unwrap()).unwrap();
    gzip.finish().unwrap()
}

/// An image's manifest.
fn manifest() -> Vec<u8> {
    let layer = layer();
    let descriptor = json!({
        "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
        "digest": format!("sha256:{}", sha256_hex(&layer)),
        "size": layer.len(),
    });
    json!({"schemaVersion": 2, "layers": [descriptor]})
        .to_string()
        .into_bytes()
}

/// A server of files and images.
async fn server(requests: Arc<RequestCount>, tasks: &mut tokio::task::JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let flaky = AtomicUsize::new(0);
    let flaky = Arc::new(flaky);
    let counter = requests.clone();
    let count = move || {
        let counter = counter.clone();
        async move { _ = counter.0.fetch_add(1, Ordering::Relaxed) }
    };

    let images = requests.clone();
    let app = Router::new()
        .route(
            "/module.wasm",
            get(move || async move {
                count().await;
                MODULE
            }),
        )
        .route("/text", get(|| async { "hello" }))
        .route(
            "/moved",
            get(|| async { Redirect::temporary("/module.wasm") }),
        )
        .route("/circle", get(|| async { Redirect::temporary("/circle") }))
        .route(
            "/metadata",
            get(|| async { Redirect::temporary("http://169.254.169.254/latest") }),
        )
        .route("/large", get(|| async { vec![0_u8; 3 << 20] }))
        .route(
            "/flaky",
            get(move || {
                let first = flaky.fetch_add(1, Ordering::Relaxed) == 0;
                async move {
                    if first {
                        Err(StatusCode::SERVICE_UNAVAILABLE)
                    } else {
                        Ok(MODULE)
                    }
                }
            }),
        )
        .route(
            "/v2/{*path}",
            get(move |UrlPath(path): UrlPath<String>, headers: HeaderMap| {
                images.0.fetch_add(1, Ordering::Relaxed);
                let login = headers
                    .get("authorization")
                    .and_then(|value| value.to_str().ok())
                    .unwrap_or_default()
                    .to_owned();

                async move {
                    let basic = format!(
                        "Basic {}",
                        base64::engine::general_purpose::STANDARD.encode("me:secret")
                    );

                    if path.starts_with("evil/") {
                        let challenge = [(
                            "www-authenticate",
                            "Bearer realm=\"http://169.254.169.254/token\"",
                        )];
                        return (StatusCode::UNAUTHORIZED, challenge).into_response();
                    }

                    if path.starts_with("private/") && login != basic {
                        return (
                            StatusCode::UNAUTHORIZED,
                            [("www-authenticate", "Basic realm=\"x\"")],
                        )
                            .into_response();
                    }

                    let forged = path.starts_with("forged/");
                    if path.contains("/manifests/") {
                        return manifest().into_response();
                    }

                    if forged {
                        b"other".to_vec().into_response()
                    } else {
                        layer().into_response()
                    }
                }
            }),
        );

    tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

/// An extension config with a module.
fn config(url: &str, sha256: &str, policy: FailurePolicy, environment: &[(&str, &str)]) -> Any {
    let key_values: BTreeMap<_, _> = environment
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let environment = EnvironmentVariables {
        host_env_keys: vec![],
        key_values,
    };

    let uri = HttpUri {
        uri: url.to_owned(),
        timeout: Some(prost_types::Duration {
            seconds: 5,
            nanos: 0,
        }),
        ..HttpUri::default()
    };

    let remote = RemoteDataSource {
        http_uri: Some(uri),
        sha256: sha256.to_owned(),
        retry_policy: None,
    };

    let vm = VmConfig {
        code: Some(AsyncDataSource {
            specifier: Some(AsyncSpecifier::Remote(remote)),
        }),
        environment_variables: Some(environment),
        ..VmConfig::default()
    };

    let plugin = PluginConfig {
        failure_policy: policy.into(),
        vm: Some(Vm::VmConfig(vm)),
        ..PluginConfig::default()
    };
    let filter = any::pack(&Wasm {
        config: Some(plugin),
    });

    any::pack(&TypedExtensionConfig {
        name: "shop.filter".to_owned(),
        typed_config: Some(filter),
    })
}

/// The resulting config: the module's file and environment, or the replacement filter.
#[derive(Debug, PartialEq)]
enum Outcome {
    Module(PathBuf, Option<Vec<String>>),
    AllPass,
    NothingPasses,
}

async fn outcome(modules: &Modules, mut resource: Any) -> Outcome {
    assert!(
        modules
            .localize(std::iter::once(&mut resource))
            .await
            .unwrap()
    );

    let config = TypedExtensionConfig::decode(&resource.value[..]).unwrap();
    assert_eq!(config.name, "shop.filter");
    let typed = config.typed_config.unwrap();
    if typed.type_url.ends_with("rbac.v3.RBAC") {
        let rbac = Rbac::decode(&typed.value[..]).unwrap();
        return if rbac.rules.is_none() {
            Outcome::AllPass
        } else {
            Outcome::NothingPasses
        };
    }

    let filter = Wasm::decode(&typed.value[..]).unwrap();
    let Some(Vm::VmConfig(vm)) = filter.config.unwrap().vm else {
        panic!("no VM")
    };

    let Some(AsyncSpecifier::Local(local)) = vm.code.unwrap().specifier else {
        panic!("not local")
    };

    let Some(Specifier::Filename(path)) = local.specifier else {
        panic!("no file")
    };

    assert_eq!(std::fs::read(&path).unwrap(), MODULE);
    let environment = vm
        .environment_variables
        .map(|all| all.key_values.into_keys().collect());
    Outcome::Module(path.into(), environment)
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn modules_are_fetched_checked_and_kept_or_stood_in_for() {
    let mut tasks = tokio::task::JoinSet::new();
    let requests = Arc::new(RequestCount::default());
    let address = server(requests.clone(), &mut tasks).await;
    let folder = tempfile::tempdir().unwrap();
    let mut limits = ModulesConfig::new(folder.path().to_owned());
    limits.max_bytes = 1 << 20;
    let modules = Modules::new(limits, clock);
    let http = |path: &str| format!("http://{address}/{path}");

    let oci = |path: &str| format!("oci://{address}/{path}");
    let closed = FailurePolicy::FailClosed;

    // Over HTTP, fetched once. The module does not see the environment variables that the control
    // plane sends to the agent.
    let environment = [
        ("ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION", "1"),
        ("MINE", "yes"),
    ];
    let first = outcome(
        &modules,
        config(&http("module.wasm"), "nil", closed, &environment),
    )
    .await;
    let Outcome::Module(path, kept) = &first else {
        panic!("{first:?}")
    };

    assert!(
        path.starts_with(folder.path()) && path.ends_with(format!("{}.wasm", sha256_hex(MODULE)))
    );
    assert_eq!(kept.as_deref(), Some(&["MINE".to_owned()][..]));
    let again = outcome(
        &modules,
        config(&http("module.wasm"), &sha256_hex(MODULE), closed, &[]),
    )
    .await;
    assert_eq!(
        (requests.0.load(Ordering::Relaxed), again),
        (1, Outcome::Module(path.clone(), None))
    );

    for path in ["moved", "flaky"] {
        let got = outcome(&modules, config(&http(path), "", closed, &[])).await;
        assert!(matches!(got, Outcome::Module(..)), "{path}: {got:?}");
    }

    // From an image, with and without a pull secret.
    let requests_before = requests.0.load(Ordering::Relaxed);

    for _ in 0..2 {
        let got = outcome(&modules, config(&oci("open/filter:v1"), "", closed, &[])).await;
        assert!(matches!(got, Outcome::Module(..)), "{got:?}");
    }

    assert_eq!(
        requests.0.load(Ordering::Relaxed) - requests_before,
        2,
        "manifest and layer, once"
    );
    let secret = json!({"auths": {address.to_string(): {"username": "me", "password": "secret"}}})
        .to_string();
    let secret = [("ISTIO_META_WASM_IMAGE_PULL_SECRET", secret.as_str())];

    let got = outcome(
        &modules,
        config(
            &oci("private/filter:v1"),
            &sha256_hex(manifest()),
            closed,
            &secret,
        ),
    )
    .await;
    assert!(matches!(got, Outcome::Module(..)), "{got:?}");

    // The tag `latest` is resolved again only when the resource version changes.
    let version = |version| [("ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION", version)];
    let mut counts = Vec::new();

    for resource in ["1", "1", "2"] {
        outcome(
            &modules,
            config(&oci("open/other:latest"), "", closed, &version(resource)),
        )
        .await;
        counts.push(requests.0.load(Ordering::Relaxed));
    }

    assert!(
        counts[0] == counts[1] && counts[1] < counts[2],
        "{counts:?}"
    );

    for url in [
        http("text"),
        http("none"),
        http("circle"),
        http("metadata"),
        http("large"),
        oci("evil/filter:v1"),
        oci("forged/filter:v1"),
        oci("../../etc/passwd"),
        "file:///etc/passwd".to_owned(),
        "http://169.254.169.254/module.wasm".to_owned(),
    ] {
        assert_eq!(
            outcome(&modules, config(&url, "", closed, &[])).await,
            Outcome::NothingPasses,
            "{url}"
        );
    }

    let wrong = config(
        &http("module.wasm"),
        &"0".repeat(64),
        FailurePolicy::FailOpen,
        &[],
    );

    assert_eq!(outcome(&modules, wrong).await, Outcome::AllPass);
    let no_secret = config(
        &oci("private/other:v1"),
        "",
        closed,
        &[("ISTIO_META_WASM_IMAGE_PULL_SECRET", "")],
    );

    assert_eq!(outcome(&modules, no_secret).await, Outcome::NothingPasses);
}

#[tokio::test]
async fn modules_that_listeners_name_in_place_are_fetched_too() {
    let mut tasks = tokio::task::JoinSet::new();
    let address = server(Arc::new(RequestCount::default()), &mut tasks).await;
    let folder = tempfile::tempdir().unwrap();
    let modules = Modules::new(ModulesConfig::new(folder.path().to_owned()), clock);
    let packed = config(
        &format!("http://{address}/module.wasm"),
        "",
        FailurePolicy::FailClosed,
        &[],
    );

    let filter = TypedExtensionConfig::decode(&packed.value[..])
        .unwrap()
        .typed_config
        .unwrap();
    let manager = |filter: Any| {
        let filter = HttpFilter {
            name: "shop.filter".to_owned(),
            config_type: Some(HttpConfigType::TypedConfig(filter)),
            ..HttpFilter::default()
        };
        let manager = HttpConnectionManager {
            http_filters: vec![filter],
            ..HttpConnectionManager::default()
        };
        Filter {
            name: "manager".to_owned(),
            config_type: Some(ConfigType::TypedConfig(any::pack(&manager))),
        }
    };

    let listener = |filter: Any| {
        let chain = FilterChain {
            filters: vec![manager(filter)],
            ..FilterChain::default()
        };
        any::pack(&Listener {
            name: "inbound".to_owned(),
            default_filter_chain: Some(chain),
            ..Listener::default()
        })
    };

    let mut resources = [listener(filter), listener(any::pack(&Rbac::default()))];
    let untouched = resources[1].clone();
    assert!(Modules::may_be_named(&resources[0].value) && !Modules::may_be_named(&untouched.value));
    assert!(modules.localize_listeners(resources.iter_mut()).await);
    assert!(
        memchr::memmem::find(&resources[0].value, sha256_hex(MODULE).as_bytes()).is_some(),
        "the config has a file"
    );

    assert!(
        memchr::memmem::find(&resources[0].value, b"http://").is_none(),
        "the config has no URL"
    );
    assert_eq!(resources[1], untouched);
    let mut broken = Any {
        value: b"filters.http.wasm.v3.Wasm".to_vec(),
        ..Any::default()
    };

    assert!(
        !modules
            .localize_listeners(std::iter::once(&mut broken))
            .await
    );
}

#[tokio::test]
async fn other_configs_are_unchanged_and_invalid_ones_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let modules = Modules::new(ModulesConfig::new(folder.path().to_owned()), clock);
    let mut other = any::pack(&TypedExtensionConfig {
        name: "other".to_owned(),
        typed_config: Some(Any {
            type_url: "type.googleapis.com/envoy.Other".to_owned(),
            value: vec![1],
        }),
    });

    let before = other.clone();
    assert!(!modules.localize(std::iter::once(&mut other)).await.unwrap());
    assert_eq!(other, before);

    for value in [vec![0xff], TypedExtensionConfig::default().encode_to_vec()] {
        let mut broken = Any {
            type_url: String::new(),
            value,
        };
        assert!(
            modules
                .localize(std::iter::once(&mut broken))
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn unused_modules_are_removed() {
    let mut tasks = tokio::task::JoinSet::new();
    let address = server(Arc::default(), &mut tasks).await;
    let folder = tempfile::tempdir().unwrap();
    let mut limits = ModulesConfig::new(folder.path().to_owned());
    limits.expiry = Duration::ZERO;
    let modules = Modules::new(limits, clock);
    let resource = config(
        &format!("http://{address}/module.wasm"),
        "",
        FailurePolicy::FailClosed,
        &[],
    );

    let Outcome::Module(path, _) = outcome(&modules, resource.clone()).await else {
        panic!("no module")
    };

    // The clock may still be at the time of its last use.
    let removed = async {
        while path.exists() {
            modules.0.purge();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };

    tokio::time::timeout(Duration::from_secs(60), removed)
        .await
        .unwrap();
    assert!(
        matches!(outcome(&modules, resource).await, Outcome::Module(..)),
        "it is fetched again"
    );
}
