//! Serves the application's metrics through the agent.

use serde_json::{Map, Value, json};

use super::super::error::InjectError;
use super::super::go_json;
use super::super::names::PROXY;
use super::super::pod;

use navarch_base::go_text::parse_bool;

/// The variable with the location of the application's metrics, which the agent reads.
pub(super) const SCRAPING: &str = "ISTIO_PROMETHEUS_ANNOTATIONS";

/// The variable with the agent's port for metrics over TLS.
const SECURE_PORT: &str = "ENVOY_SECURE_MERGED_METRICS_PORT";

/// Ports of proxy and agent, which serve no application metrics, and their purpose.
const OWN_PORTS: [(u16, &str); 9] = [
    (15000, "Envoy's admin interface"),
    (15001, "capture of outbound traffic"),
    (15004, "the control plane's debug interface"),
    (15006, "capture of inbound traffic"),
    (15008, "HBONE"),
    (15020, "the agent, which serves the merged metrics"),
    (15021, "Envoy's health"),
    (15053, "DNS"),
    (15090, "Envoy's own metrics, which are merged anyway"),
];

/// The setting that an annotation contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScrapeAnnotation {
    /// Whether to scrape the pod.
    Scrape,
    Port,
    Path,
    /// Multiple ports and paths.
    Targets,
}

impl ScrapeAnnotation {
    /// The setting of an annotation. Prometheus replaces all characters except letters, digits and
    /// underscores.
    fn of(name: &str) -> Option<Self> {
        let sanitised = sanitised(name);
        match sanitised.as_str() {
            "prometheus_io_scrape" => Some(Self::Scrape),
            "prometheus_io_port" => Some(Self::Port),
            "prometheus_io_path" => Some(Self::Path),
            "prometheus_istio_io_scrape_targets" => Some(Self::Targets),
            _ => None,
        }
    }
}

/// An annotation's name after Prometheus' sanitization.
fn sanitised(name: &str) -> String {
    name.chars()
        .map(|sign| {
            if sign.is_ascii_alphanumeric() {
                sign
            } else {
                '_'
            }
        })
        .collect()
}

/// The location of metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Scraping {
    /// Whether to scrape the pod, as written.
    scrape: String,
    path: String,
    port: String,
    /// Multiple ports and paths.
    targets: Vec<Target>,
}

/// A port and a path that serve metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    port: String,
    path: String,
}

impl Scraping {
    /// Parses annotations.
    fn of(annotations: &Map<String, Value>) -> Self {
        let mut found = Self::default();

        for (name, value) in annotations {
            let value = value.as_str().unwrap_or_default();
            match ScrapeAnnotation::of(name) {
                Some(ScrapeAnnotation::Scrape) => value.clone_into(&mut found.scrape),
                Some(ScrapeAnnotation::Port) => value.clone_into(&mut found.port),
                Some(ScrapeAnnotation::Path) => value.clone_into(&mut found.path),
                Some(ScrapeAnnotation::Targets) => {
                    found.targets = targets(value).unwrap_or_default()
                }
                None => {}
            }
        }

        if let Some(first) = found.targets.first() {
            // Older agents support only one target.
            found.port.clone_from(&first.port);
            found.path.clone_from(&first.path);
        }

        found
    }

    /// The JSON for the agent; `None` without any setting.
    fn text(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }

        let quoted = |text: &str| go_json::text(&json!(text));
        let mut text = format!(
            r#"{{"scrape":{},"path":{},"port":{}"#,
            quoted(&self.scrape),
            quoted(&self.path),
            quoted(&self.port)
        );

        if !self.targets.is_empty() {
            let targets = self.targets.iter();
            let targets: Vec<_> = targets
                .map(|target| {
                    format!(
                        r#"{{"port":{},"path":{}}}"#,
                        quoted(&target.port),
                        quoted(&target.path)
                    )
                })
                .collect();
            text.push_str(&format!(r#","targets":[{}]"#, targets.join(",")));
        }

        text.push('}');
        Some(text)
    }
}

/// Parses `port:path,…`; the path is optional and has a default. `None` if a port is missing.
fn targets(text: &str) -> Option<Vec<Target>> {
    let entries = text
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (port, path) = entry.split_once(':').unwrap_or((entry, ""));
            let path = if path.trim().is_empty() {
                "/metrics"
            } else {
                path.trim()
            };
            (!port.trim().is_empty()).then(|| Target {
                port: port.trim().to_owned(),
                path: path.to_owned(),
            })
        })
        .collect()
}

/// The metrics port in the annotations.
pub(in super::super) fn port(annotations: &Map<String, Value>) -> Option<String> {
    let port = annotations
        .iter()
        .find(|(name, _)| ScrapeAnnotation::of(name) == Some(ScrapeAnnotation::Port));
    port.and_then(|(_, value)| Some(value.as_str()?.to_owned()))
}

/// Removes all annotations about scraping.
pub(in super::super) fn clear(annotations: &mut Map<String, Value>) {
    annotations.retain(|name, _| ScrapeAnnotation::of(name).is_none());
}

/// Makes the agent serve the metrics of the pod's application, and points Prometheus to the agent.
///
/// # Errors
/// When a port is invalid, or is a port of proxy or agent.
pub(super) fn merge(pod: &mut Value, agent_port: &str) -> Result<(), InjectError> {
    let annotations = pod::annotations_mut(pod);
    let is_disabled = annotations
        .iter()
        .filter(|(name, _)| ScrapeAnnotation::of(name) == Some(ScrapeAnnotation::Scrape))
        .find_map(|(_, value)| parse_bool(value.as_str()?))
        .is_some_and(|scrape| !scrape);
    if is_disabled || port(annotations).as_deref() == Some(agent_port) {
        return Ok(());
    }

    let scraping = Scraping::of(annotations);
    check(&scraping, agent_port)?;
    clear(annotations);
    let announced = [
        ("prometheus.io/port", agent_port),
        ("prometheus.io/path", "/stats/prometheus"),
        ("prometheus.io/scrape", "true"),
    ];
    annotations.extend(announced.map(|(name, value)| (name.to_owned(), json!(value))));

    if let (Some(text), Some(proxy)) = (scraping.text(), pod::find_in_pod_mut(pod, PROXY)) {
        let env = pod::as_map(proxy)
            .entry("env")
            .or_insert_with(|| Value::Array(Vec::new()));
        env.as_array_mut()
            .into_iter()
            .for_each(|env| env.push(json!({ "name": SCRAPING, "value": text })));
    }

    Ok(())
}

/// Validates the ports of an application's metrics.
fn check(scraping: &Scraping, agent_port: &str) -> Result<(), InjectError> {
    let ports: Vec<_> = match scraping.targets.as_slice() {
        [] if scraping.port.is_empty() => Vec::new(),
        [] => vec![scraping.port.as_str()],
        targets => targets.iter().map(|target| target.port.as_str()).collect(),
    };

    for port in ports {
        let fault = |reason: &str| Err(InjectError::Prometheus(format!("port {port:?} {reason}")));
        let number = port
            .strip_prefix('+')
            .unwrap_or(port)
            .parse::<u16>()
            .ok()
            .filter(|number| *number != 0);

        let Some(number) = number else {
            return fault("is not a port; use a number from 1 to 65535");
        };

        if number.to_string() == agent_port {
            return fault("is used by the agent");
        }

        if let Some((_, what)) = OWN_PORTS.iter().find(|(own, _)| *own == number) {
            return fault(&format!("is used by Istio: {what}"));
        }
    }

    Ok(())
}

/// Adds the annotation for the proxy's TLS metrics port, unless the pod has the annotation.
pub(super) fn announce_secure_port(pod: &mut Value) {
    let announced = |name: &String| sanitised(name) == "prometheus_istio_io_secure_port";
    if pod::annotations(pod).is_some_and(|annotations| annotations.keys().any(announced)) {
        return;
    }

    let env = pod::find_in_pod(pod, PROXY)
        .and_then(|proxy| proxy.get("env")?.as_array())
        .into_iter()
        .flatten();
    let ports = env
        .filter(|variable| pod::name(variable) == SECURE_PORT)
        .filter_map(|variable| variable.get("value")?.as_str());
    let port = ports
        .into_iter()
        .find(|port| !port.is_empty() && *port != "0")
        .map(str::to_owned);
    if let Some(port) = port {
        pod::annotations_mut(pod).insert("prometheus.istio.io/secure-port".to_owned(), json!(port));
    }
}
