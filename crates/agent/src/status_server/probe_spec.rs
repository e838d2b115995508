//! The application's probes as written by the injector (`ISTIO_KUBE_APP_PROBERS`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

/// Probes by request path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probes(BTreeMap<String, ProbeSpec>);

/// A probe or lifecycle handler that the kubelet sends to the agent instead of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// What the probe does.
    pub action: Action,
    /// For the whole probe: `timeoutSeconds`, or 60 seconds if that is 0 or negative.
    pub timeout: Duration,
}

/// What a probe does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// An HTTP request.
    Http {
        /// Whether to use TLS; certificates are not verified, as with kubelets.
        tls: bool,
        /// Where the application listens in the pod; the injector has replaced names of ports by
        /// numbers.
        port: u16,
        /// The path with query.
        path: String,
    },
    /// A TCP connection.
    Tcp {
        /// Where the application listens; the probe succeeds once the connection is open.
        port: u16,
    },
    /// gRPC's health protocol.
    Grpc {
        /// Where the application serves `grpc.health.v1.Health`.
        port: u16,
        /// The name of the service.
        service: String,
    },
}

/// Errors of parsing probes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeSpecError {
    /// Invalid JSON.
    #[error("failed to parse ISTIO_KUBE_APP_PROBERS: {0}")]
    Json(String),
    /// Invalid probe path.
    #[error(
        "invalid probe path {0:?}: use /app-health/<container>/livez, readyz or startupz, /app-lifecycle/<container>/prestopz or poststartz"
    )]
    Path(String),
    /// Not exactly one action.
    #[error("{0}: exactly one of httpGet, tcpSocket and grpc is required, with a numeric port")]
    Kind(String),
}

/// A probe in Kubernetes' JSON form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProbeJson {
    http_get: Option<HttpGet>,
    /// A TCP connection.
    tcp_socket: Option<Socket>,
    grpc: Option<Grpc>,
    /// Timeout in seconds; 0 means the maximum of 60 seconds.
    #[serde(default)]
    timeout_seconds: i32,
}

/// A probe over HTTP.
#[derive(Deserialize)]
struct HttpGet {
    #[serde(default)]
    path: String,
    /// The port; the injector resolves named ports.
    port: u16,
    /// `HTTP` or `HTTPS`.
    #[serde(default)]
    scheme: String,
}

/// A TCP connection.
#[derive(Deserialize)]
struct Socket {
    port: u16,
}

/// A probe over gRPC.
#[derive(Deserialize)]
struct Grpc {
    port: u16,
    service: Option<String>,
}

/// Timeout of a probe without one.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

impl Probes {
    /// Parses the variable; an empty one has no probes.
    ///
    /// # Errors
    /// If the JSON, a probe or its path is invalid.
    pub fn parse(text: &str) -> Result<Self, ProbeSpecError> {
        if text.is_empty() {
            return Ok(Self::default());
        }

        let written: BTreeMap<String, ProbeJson> =
            serde_json::from_str(text).map_err(|error| ProbeSpecError::Json(error.to_string()))?;
        let spec = |(path, written): (String, ProbeJson)| {
            if !is_probe_path(&path) {
                return Err(ProbeSpecError::Path(path));
            }
            let timeout = match u64::try_from(written.timeout_seconds) {
                Ok(0) | Err(_) => DEFAULT_TIMEOUT,
                Ok(seconds) => Duration::from_secs(seconds),
            };
            let action = action(written).ok_or_else(|| ProbeSpecError::Kind(path.clone()))?;
            Ok((path, ProbeSpec { action, timeout }))
        };

        written
            .into_iter()
            .map(spec)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Finds a probe by the exact path of the kubelet's request, such as `/app-health/web/livez`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&ProbeSpec> {
        self.0.get(path)
    }
}

/// The action of a probe; `None` unless there is exactly one.
fn action(written: ProbeJson) -> Option<Action> {
    match (written.http_get, written.tcp_socket, written.grpc) {
        (Some(http), None, None) => {
            let path = if http.path.starts_with('/') {
                http.path
            } else {
                format!("/{}", http.path)
            };

            Some(Action::Http {
                tls: http.scheme == "HTTPS",
                port: http.port,
                path,
            })
        }
        (None, Some(socket), None) => Some(Action::Tcp { port: socket.port }),
        (None, None, Some(grpc)) => Some(Action::Grpc {
            port: grpc.port,
            service: grpc.service.unwrap_or_default(),
        }),
        _ => None,
    }
}

/// Whether a path has the form that the injector writes.
fn is_probe_path(path: &str) -> bool {
    let mut parts = path.split('/');
    let root = parts.next();
    let kind = parts.next();
    let container = parts.next();
    let probe = parts.next();
    root == Some("")
        && matches!(kind, Some("app-health" | "app-lifecycle"))
        && container.is_some_and(|container| !container.is_empty())
        && matches!(
            probe,
            Some("livez" | "readyz" | "startupz" | "prestopz" | "poststartz")
        )
        && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_probe_is_read() {
        let probes = Probes::parse(
            r#"{"/app-health/a/livez": {"httpGet": {"path": "x?y=1", "port": 80, "scheme": "HTTPS"}, "timeoutSeconds": 2},
                "/app-health/a/readyz": {"tcpSocket": {"port": 81}},
                "/app-lifecycle/a/prestopz": {"grpc": {"port": 82, "service": null}}}"#,
        )
        .unwrap();
        let spec = probes.get("/app-health/a/livez").unwrap();
        assert_eq!(
            spec.action,
            Action::Http {
                tls: true,
                port: 80,
                path: "/x?y=1".to_owned()
            }
        );

        assert_eq!(spec.timeout, Duration::from_secs(2));
        assert_eq!(
            probes.get("/app-health/a/readyz").unwrap().action,
            Action::Tcp { port: 81 }
        );
        let grpc = Action::Grpc {
            port: 82,
            service: String::new(),
        };

        assert_eq!(
            probes.get("/app-lifecycle/a/prestopz").unwrap().action,
            grpc
        );
        assert_eq!(Probes::parse("").unwrap(), Probes::default());
    }

    #[test]
    fn probes_that_the_injector_never_writes_are_rejected() {
        for text in [
            r#"{"/app-health/a/other": {"tcpSocket": {"port": 1}}}"#,
            r#"{"/app-health//livez": {"tcpSocket": {"port": 1}}}"#,
            r#"{"/app-health/a/livez/x": {"tcpSocket": {"port": 1}}}"#,
            r#"{"/app-health/a/livez": {}}"#,
            r#"{"/app-health/a/livez": {"tcpSocket": {"port": 1}, "grpc": {"port": 1}}}"#,
            r#"{"/app-health/a/livez": {"tcpSocket": {"port": "http"}}}"#,
            "[]",
        ] {
            assert!(Probes::parse(text).is_err(), "{text}");
        }
    }
}
