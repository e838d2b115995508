//! Rules for WorkloadGroup.

use super::header::is_probe_header;
use super::name::{labels, port_number};
use super::path::Path;
use super::{Validate, Verdict};
use crate::istio::WorkloadGroup;
use crate::mesh::{HttpHealthCheckConfig, ReadinessProbe};
use crate::object::ObjectMeta;

impl Validate for WorkloadGroup {
    /// The template is not validated as a WorkloadEntry: each workload reports the required fields
    /// itself.
    fn validate(&self, _: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            metadata,
            template,
            probe,
        } = self;
        let spec = Path::root("spec");

        if template.is_none() {
            verdict.error(
                &spec.field("template"),
                "is missing; write the template of the workloads",
            );
        }

        if let Some(metadata) = metadata {
            labels(
                &mut verdict,
                &spec.field("metadata").field("labels"),
                &metadata.labels,
            );
        }

        if let Some(probe) = probe {
            readiness_probe(&mut verdict, &spec.field("probe"), probe);
        }

        verdict
    }
}

/// Validates the readiness probe.
fn readiness_probe(verdict: &mut Verdict, at: &Path<'_>, probe: &ReadinessProbe) {
    let ReadinessProbe {
        initial_delay_seconds,
        timeout_seconds,
        period_seconds,
        success_threshold,
        failure_threshold,
        http_get,
        tcp_socket,
        exec,
        grpc,
    } = probe;

    for (field, number) in [
        ("initialDelaySeconds", *initial_delay_seconds),
        ("timeoutSeconds", *timeout_seconds),
        ("periodSeconds", *period_seconds),
        ("successThreshold", *success_threshold),
        ("failureThreshold", *failure_threshold),
    ] {
        if number < 0 {
            verdict.error(
                &at.field(field),
                format!("{number} is negative; write 0 for the default, or more"),
            );
        }
    }

    let ways = [
        http_get.is_some(),
        tcp_socket.is_some(),
        exec.is_some(),
        grpc.is_some(),
    ];

    if ways.into_iter().filter(|is_set| *is_set).count() > 1 {
        verdict.error(
            at,
            "has several kinds of probes; keep one of httpGet, tcpSocket and exec",
        );
        return;
    }

    match (http_get, tcp_socket, exec) {
        (Some(http), _, _) => http_probe(verdict, &at.field("httpGet"), http),
        (_, Some(tcp), _) => {
            verdict.check(&at.field("tcpSocket").field("port"), port_number(tcp.port))
        }
        (_, _, Some(exec)) if exec.command.is_empty() => {
            verdict.error(
                &at.field("exec").field("command"),
                "is missing; write the command and its arguments",
            );
        }
        (_, _, Some(_)) => {}
        (None, None, None) => {
            verdict.error(at, "has no probe; set one of httpGet, tcpSocket and exec")
        }
    }
}

/// Validates a probe by an HTTP request.
fn http_probe(verdict: &mut Verdict, at: &Path<'_>, probe: &HttpHealthCheckConfig) {
    let HttpHealthCheckConfig {
        path: _,
        port,
        host: _,
        scheme,
        http_headers,
    } = probe;

    verdict.check(&at.field("port"), port_number(*port));

    if !matches!(scheme.as_str(), "" | "HTTP" | "HTTPS") {
        verdict.error(
            &at.field("scheme"),
            format!("{scheme:?} is not HTTP or HTTPS"),
        );
    }

    let headers = &at.field("httpHeaders");

    for (index, header) in http_headers.iter().enumerate() {
        if !is_probe_header(&header.name) {
            let at = &headers.item(index);
            let message = format!(
                "{:?} is not a header name; write letters, digits and \"-\"",
                header.name
            );
            verdict.error(&at.field("name"), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::typed::Typed;

    /// The fields at which a spec is rejected.
    fn faults(spec: serde_json::Value) -> Vec<String> {
        let group = Typed::<WorkloadGroup>::from_proto_json(&spec)
            .unwrap()
            .value;
        group
            .validate(&ObjectMeta::default())
            .errors
            .into_iter()
            .map(|problem| problem.field)
            .collect()
    }

    #[test]
    fn a_template_is_needed_but_no_address_in_it() {
        assert_eq!(faults(json!({})), ["spec.template"]);
        assert!(
            faults(json!({ "template": { "serviceAccount": "vm", "ports": { "http": 8080 } } }))
                .is_empty()
        );
    }

    #[test]
    fn a_probe_has_one_way_that_can_work() {
        let with = |probe: serde_json::Value| faults(json!({ "template": {}, "probe": probe }));
        assert!(
            with(json!({ "httpGet": { "port": 80, "scheme": "HTTPS" }, "periodSeconds": 5 }))
                .is_empty()
        );
        assert!(with(json!({ "exec": { "command": ["true"] } })).is_empty());
        assert_eq!(with(json!({})), ["spec.probe"]);
        assert_eq!(with(json!({ "grpc": { "port": 80 } })), ["spec.probe"]);

        assert_eq!(
            with(json!({ "tcpSocket": {}, "exec": { "command": ["x"] } })),
            ["spec.probe"]
        );
        assert_eq!(
            with(json!({ "exec": {}, "timeoutSeconds": -1 })),
            ["spec.probe.timeoutSeconds", "spec.probe.exec.command"]
        );

        let http = json!({ "httpGet": { "scheme": "ftp", "httpHeaders": [{ "name": "a b" }] } });
        let at = |field: &str| format!("spec.probe.httpGet.{field}");
        assert_eq!(
            with(http),
            [at("port"), at("scheme"), at("httpHeaders[0].name")]
        );
    }
}
