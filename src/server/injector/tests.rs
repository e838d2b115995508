//! Which pods are injected while the configuration is missing, invalid or gone.

use std::fs;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use prometheus_client::registry::Registry;
use tower_service::Service as _;

use super::*;
use navarch_api::settings::Settings;
use navarch_envoy::EnvoyTranslator;
use navarch_push::worker::{self, Debounce};
use navarch_webhook::{Limits, Webhooks, routes};

/// An injector over a folder, before anything is read.
struct Started {
    folder: tempfile::TempDir,
    push: PushHandle,
    readiness: Readiness,
    current: CurrentInjector,
    registry: Registry,
    _boot: Boot,
}

impl Started {
    /// Starts it; `texts` are written before.
    fn new(texts: impl IntoIterator<Item = (&'static str, &'static str)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in texts {
            fs::write(folder.path().join(name), text).unwrap();
        }

        let (push, _) = worker::start(
            Settings::default(),
            Debounce::default(),
            Arc::new(EnvoyTranslator),
        )
        .unwrap();
        let settings = InjectionSettings {
            folder: folder.path().to_owned(),
            ..InjectionSettings::default()
        };

        let mut registry = Registry::default();
        let mut boot = Boot::new();
        let metrics = Metrics::register(&mut registry);
        let source = InjectorSource {
            settings: &settings,
            revision: "default",
            namespace: "istio-system",
            client: None,
            push: &push,
            metrics: &metrics,
        };

        let current = source.start(&mut boot);
        Self {
            folder,
            push,
            readiness: boot.readiness.clone(),
            current,
            registry,
            _boot: boot,
        }
    }

    /// Waits until the state has this label, and checks that the metric says so.
    async fn becomes(&self, label: &str) {
        let is_there = async {
            while self.current.load().label() != label {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), is_there).await;
        assert!(waited.is_ok(), "{:?} is not {label}", self.current);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        assert!(
            text.contains(&format!("navarch_injector_state{{state=\"{label}\"}} 1\n")),
            "{text}"
        );
        assert_eq!(text.matches("} 1\n").count(), 1, "{text}");
    }

    /// The status and the body of the answer about a pod.
    async fn response(&self) -> (StatusCode, String) {
        let webhooks = Webhooks::new(
            Arc::new(|| true),
            Arc::new(|| None),
            self.current.clone(),
            Limits::default(),
            Metrics::default(),
        );
        let review = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","object":
            {"metadata":{"name":"p","labels":{"sidecar.istio.io/inject":"true"}},"spec":{"containers":[{"name":"app"}]}}}}"#;
        let request = Request::post("/inject").header("content-type", "application/json");
        let answer = routes(Arc::new(webhooks))
            .call(request.body(Body::from(review)).unwrap())
            .await
            .unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }
}

#[tokio::test]
async fn no_pod_is_admitted_without_an_injector() {
    let started = Started::new([
        (
            "config",
            "{policy: enabled, templates: {sidecar: '{{ nonsense'}}",
        ),
        ("values", "{}"),
    ]);

    // The mesh config is not known yet.
    assert!(!started.readiness.is_ready());
    started.becomes("pending").await;
    let (status, body) = started.response().await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");

    started.push.full_sync().await.unwrap();
    started.becomes("failed").await;
    let (status, body) = started.response().await;
    assert!(
        status == StatusCode::SERVICE_UNAVAILABLE && body.contains("sidecar"),
        "{body}"
    );

    // It was tried: other answers do not wait for it, but everybody can see what is wrong.
    assert!(started.readiness.is_ready() && started.readiness.missing_parts().contains("sidecar"));

    fs::write(started.folder.path().join("config"), "").unwrap();
    started.becomes("ready").await;
    let (status, body) = started.response().await;
    assert!(
        status == StatusCode::OK && body.contains("JSONPatch"),
        "{body}"
    );
    assert_eq!(started.readiness.missing_parts(), "");

    // A later one that is broken or gone takes nothing away.
    for broken in [
        "policy: [",
        "{policy: enabled, templates: {sidecar: '{{ nonsense'}}",
    ] {
        fs::write(started.folder.path().join("config"), broken).unwrap();
        started.becomes("stale").await;
        assert!(started.response().await.1.contains("JSONPatch"));
    }

    fs::write(started.folder.path().join("config"), "").unwrap();
    started.becomes("ready").await;
    fs::remove_file(started.folder.path().join("values")).unwrap();
    started.becomes("stale").await;
    assert!(started.readiness.is_ready() && started.readiness.missing_parts().contains("values"));
    assert!(started.response().await.1.contains("JSONPatch"));
}

#[tokio::test]
async fn without_any_configuration_there_is_no_webhook() {
    let started = Started::new([]);
    started.becomes("off").await;
    assert!(started.readiness.is_ready());
    assert_eq!(started.response().await.0, StatusCode::NOT_FOUND);
}
