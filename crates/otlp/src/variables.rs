//! The variables `OTEL_*`, as OpenTelemetry's specification has them ("Environment Variable
//! Specification", "OTLP Exporter").
//!
//! What istiod's own helper decides is decided alike (istio `pkg/tracing`): where neither an
//! endpoint nor `OTEL_TRACES_EXPORTER=otlp` is set there are no traces, and the protocol is gRPC
//! unless another is named. A value that cannot be obeyed is warned of, and counts as unset.

mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use self::values::{header_list, milliseconds, number, pairs};
use crate::endpoint::Endpoint;
use crate::sampler::Sampler;

/// How variables of the exporter begin; those for traces alone have `TRACES_` after it, and count
/// more.
const EXPORTER: &str = "OTEL_EXPORTER_OTLP_";

/// All variables that are read.
pub const NAMES: [&str; 28] = [
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_INSECURE",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_INSECURE",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_EXPORTER",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
];

/// Settings of trace export.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The collector's address.
    pub endpoint: Endpoint,
    /// `OTEL_EXPORTER_OTLP_PROTOCOL`, or that of traces: `grpc` (default) or `http/protobuf`.
    pub protocol: Protocol,
    /// Headers of each request.
    pub headers: Headers,
    /// Timeout of a request.
    pub timeout: Duration,
    /// Whether requests are compressed (HTTP).
    pub gzip: bool,
    /// `OTEL_EXPORTER_OTLP_CERTIFICATE`, `_CLIENT_CERTIFICATE` and `_CLIENT_KEY`, or those of
    /// traces.
    pub tls: TlsFiles,
    /// Resource attributes of the process (`OTEL_RESOURCE_ATTRIBUTES`).
    pub resource: BTreeMap<String, String>,
    /// Which traces are sent.
    pub sampler: Sampler,
    /// Settings of batching.
    pub batching: Batching,
}

/// The protocol of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// Protobuf in HTTP/1.1.
    Http,
}

/// Headers with their values, which may be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(pub(crate) Vec<(http::HeaderName, http::HeaderValue)>);

/// Files in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Roots of the collector's certificate; those of the system if unset.
    pub roots: Option<PathBuf>,
    /// A client certificate and its key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// How spans are gathered, as OpenTelemetry's batching processor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// `OTEL_BSP_SCHEDULE_DELAY`: maximum delay of a batch. Default 5 s.
    pub delay: Duration,
    /// `OTEL_BSP_EXPORT_TIMEOUT`: timeout of sending a batch, with retries. Default 30 s.
    pub timeout: Duration,
    /// `OTEL_BSP_MAX_QUEUE_SIZE`: maximum queued spans. Default 2048.
    pub queue: usize,
    /// `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`: maximum spans of a request. Default 512.
    pub batch: usize,
}

/// The result of parsing the variables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Settings of trace export; `None` if it is disabled.
    pub config: Option<Config>,
    /// Variables that are set and ignored, with the reason. Empty if traces are disabled.
    pub warnings: Vec<String>,
}

/// The variables that are set, and the ignored ones.
struct Reader {
    set: BTreeMap<&'static str, String>,
    warnings: Vec<String>,
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            delay: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            queue: 2048,
            batch: 512,
        }
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

/// Reads all variables through `variable`, which gives the value of a name. Unset and empty are the
/// same.
#[must_use]
pub fn read(variable: impl Fn(&str) -> Option<String>) -> Reading {
    let set = NAMES.into_iter().filter_map(|name| {
        Some((
            name,
            variable(name).filter(|value| !value.trim().is_empty())?,
        ))
    });

    let mut reader = Reader {
        set: set.collect(),
        warnings: Vec::new(),
    };
    let config = if reader.is_enabled() {
        reader.config()
    } else {
        None
    };

    Reading {
        config,
        warnings: reader.warnings,
    }
}

impl Reader {
    /// Whether traces are enabled.
    fn is_enabled(&mut self) -> bool {
        let exporters = self.set.get("OTEL_TRACES_EXPORTER").cloned();
        let mut is_wanted = exporters.is_none() && self.exporter("ENDPOINT").is_some();

        for exporter in exporters
            .as_deref()
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
        {
            match exporter {
                "otlp" => is_wanted = true,
                "none" | "" => {}
                other => self.warn(
                    "OTEL_TRACES_EXPORTER",
                    other,
                    "unsupported exporter, use otlp or none; ignored",
                ),
            }
        }

        is_wanted && !self.parsed("OTEL_SDK_DISABLED", false, boolean)
    }

    /// The whole configuration; `None` if spans cannot be sent or must not be.
    fn config(&mut self) -> Option<Config> {
        let protocol = self.protocol();
        let endpoint = self.endpoint(protocol)?;
        let sampler = self.sampler()?;
        let headers = self.headers();
        let tls = self.tls(&endpoint);
        let timeout = self.of_exporter("TIMEOUT", Duration::from_secs(10), milliseconds);
        let gzip = self.of_exporter("COMPRESSION", false, |text| match (text, protocol) {
            ("none", _) => Ok(false),
            ("gzip", Protocol::Http) => Ok(true),
            ("gzip", Protocol::Grpc) => {
                Err("gzip is supported only with http/protobuf; requests are not compressed")
            }
            _ => Err("it must be gzip or none; requests are not compressed"),
        });

        let resource = self.resource();
        let batching = self.batching();
        Some(Config {
            endpoint,
            protocol,
            headers,
            timeout,
            gzip,
            tls,
            resource,
            sampler,
            batching,
        })
    }

    fn protocol(&mut self) -> Protocol {
        self.of_exporter("PROTOCOL", Protocol::Grpc, |text| match text {
            "grpc" => Ok(Protocol::Grpc),
            "http/protobuf" => Ok(Protocol::Http),
            _ => Err("it must be grpc or http/protobuf; using grpc"),
        })
    }

    /// Where traces are sent: for HTTP the path is `/v1/traces` under an endpoint that is for more
    /// than traces.
    fn endpoint(&mut self, protocol: Protocol) -> Option<Endpoint> {
        let Some((name, text)) = self.exporter("ENDPOINT") else {
            let port = if protocol == Protocol::Grpc {
                4317
            } else {
                4318
            };
            return Endpoint::parse(&format!("http://localhost:{port}/v1/traces"));
        };

        let is_bare = protocol == Protocol::Grpc && !text.contains("://");
        let scheme = match is_bare {
            true if self.of_exporter("INSECURE", false, boolean) => "http://",
            true => "https://",
            false => "",
        };

        if !is_bare && let Some((insecure, _)) = self.exporter("INSECURE") {
            self.warnings.push(format!(
                "{insecure} has no effect: the scheme of {name} determines whether TLS is used"
            ));
        }

        let Some(endpoint) = Endpoint::parse(&format!("{scheme}{text}")) else {
            // The address is not logged, as it may contain a secret.
            let form = "http://HOST:PORT or https://HOST:PORT, without user and password";
            self.warnings.push(format!(
                "{name} must have the form {form}; no traces are sent"
            ));
            return None;
        };

        if name.contains("_TRACES_") || protocol == Protocol::Grpc {
            return Some(endpoint);
        }

        let path = format!("{}/v1/traces", endpoint.path.trim_end_matches('/'));
        Some(endpoint.with_path(path))
    }

    /// The sampler; `None` if no traces are sent.
    fn sampler(&mut self) -> Option<Sampler> {
        let share = |text: &str| {
            let share = text
                .parse::<f64>()
                .ok()
                .filter(|share| (0.0..=1.0).contains(share));
            share.ok_or("it must be a number between 0 and 1; sampling all traces")
        };

        let Some(name) = self.set.get("OTEL_TRACES_SAMPLER").cloned() else {
            self.without_effect(
                "OTEL_TRACES_SAMPLER_ARG",
                "the sampler in OTEL_TRACES_SAMPLER has no argument",
            );
            return Some(Sampler::All);
        };

        match name.strip_prefix("parentbased_").unwrap_or(&name) {
            "traceidratio" => {
                let share = self.parsed("OTEL_TRACES_SAMPLER_ARG", 1.0, share);
                return (share > 0.0).then_some(Sampler::Share(share));
            }
            "always_on" => {}
            "always_off" => return None,
            _ => {
                let known = "it must be always_on, always_off or traceidratio, optionally with the prefix parentbased_";
                self.warn(
                    "OTEL_TRACES_SAMPLER",
                    &name,
                    &format!("{known}; sampling all traces"),
                );
            }
        }

        self.without_effect(
            "OTEL_TRACES_SAMPLER_ARG",
            "the sampler in OTEL_TRACES_SAMPLER has no argument",
        );

        Some(Sampler::All)
    }

    fn headers(&mut self) -> Headers {
        let Some((name, text)) = self.exporter("HEADERS") else {
            return Headers::default();
        };
        let (headers, wrong) = header_list(&text);
        if wrong > 0 {
            // They may be secret.
            self.warnings.push(format!(
                "{name}: ignored parts that are not NAME=VALUE: {wrong}"
            ));
        }
        Headers(headers)
    }

    fn tls(&mut self, endpoint: &Endpoint) -> TlsFiles {
        let mut file = |what: &str| {
            let (name, path) = self.exporter(what)?;
            if endpoint.tls {
                return Some((name, PathBuf::from(path)));
            }
            self.warnings.push(format!(
                "{name} has no effect: the connection to the collector does not use TLS"
            ));
            None
        };

        let roots = file("CERTIFICATE");
        let own = [file("CLIENT_CERTIFICATE"), file("CLIENT_KEY")];
        let own = match own {
            [Some((_, certificate)), Some((_, key))] => Some((certificate, key)),
            [Some((alone, _)), None] | [None, Some((alone, _))] => {
                self.warnings.push(format!(
                    "{alone} has no effect: certificate and key must both be set"
                ));
                None
            }
            [None, None] => None,
        };

        TlsFiles {
            roots: roots.map(|(_, path)| path),
            own,
        }
    }

    fn resource(&mut self) -> BTreeMap<String, String> {
        let (mut resource, wrong) = pairs(
            self.set
                .get("OTEL_RESOURCE_ATTRIBUTES")
                .map_or("", String::as_str),
        );

        if wrong > 0 {
            let reason = "parts that are not KEY=VALUE are ignored";
            let value = self
                .set
                .get("OTEL_RESOURCE_ATTRIBUTES")
                .cloned()
                .unwrap_or_default();
            self.warn("OTEL_RESOURCE_ATTRIBUTES", &value, reason);
        }

        if let Some(name) = self.set.get("OTEL_SERVICE_NAME") {
            resource.insert("service.name".to_owned(), name.clone());
        }

        resource
    }

    fn batching(&mut self) -> Batching {
        let usual = Batching::default();
        let batching = Batching {
            delay: self.parsed("OTEL_BSP_SCHEDULE_DELAY", usual.delay, milliseconds),
            timeout: self.parsed("OTEL_BSP_EXPORT_TIMEOUT", usual.timeout, milliseconds),
            queue: self.parsed("OTEL_BSP_MAX_QUEUE_SIZE", usual.queue, number),
            batch: self.parsed("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", usual.batch, number),
        };

        if batching.batch > batching.queue
            && self.set.contains_key("OTEL_BSP_MAX_EXPORT_BATCH_SIZE")
        {
            let value = batching.batch.to_string();
            self.warn(
                "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
                &value,
                "a batch must not exceed OTEL_BSP_MAX_QUEUE_SIZE; using that size",
            );
        }

        Batching {
            batch: batching.batch.min(batching.queue),
            ..batching
        }
    }

    /// A variable of the exporter: that for traces alone, else that for all.
    fn exporter(&self, what: &str) -> Option<(&'static str, String)> {
        let found = |name: String| {
            self.set
                .get_key_value(name.as_str())
                .map(|(name, value)| (*name, value.clone()))
        };
        found(format!("{EXPORTER}TRACES_{what}")).or_else(|| found(format!("{EXPORTER}{what}")))
    }

    /// The value of a variable of the exporter.
    fn of_exporter<T>(
        &mut self,
        what: &str,
        usual: T,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> T {
        match self.exporter(what) {
            Some((name, _)) => self.parsed(name, usual, parse),
            None => usual,
        }
    }

    /// The value of a variable; the usual one where it is unset or cannot be.
    fn parsed<T>(
        &mut self,
        name: &'static str,
        usual: T,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> T {
        let Some(value) = self.set.get(name).cloned() else {
            return usual;
        };
        parse(value.trim()).unwrap_or_else(|reason| {
            self.warn(name, &value, reason);
            usual
        })
    }

    fn warn(&mut self, name: &str, value: &str, reason: &str) {
        self.warnings.push(format!("{name}={value:?}: {reason}"));
    }

    fn without_effect(&mut self, name: &str, reason: &str) {
        if self.set.contains_key(name) {
            self.warnings
                .push(format!("{name} has no effect: {reason}"));
        }
    }
}

/// As specified by OpenTelemetry: `true` in any case is true; all else is false, with a warning
/// unless it is `false`.
fn boolean(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("it must be true or false; using false"),
    }
}

#[cfg(test)]
mod tests;
