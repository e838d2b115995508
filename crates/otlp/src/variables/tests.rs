//! The configuration that environment variables result in.

use super::*;

fn read_from(set: &[(&str, &str)]) -> Reading {
    read(|name| {
        set.iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

/// The configuration; asserts that reading it gave no warning.
fn config(set: &[(&str, &str)]) -> Config {
    let Reading { config, warnings } = read_from(set);
    assert_eq!(warnings, Vec::<String>::new(), "{set:?}");
    config.unwrap()
}

/// The only warning, with a valid endpoint.
fn warning(set: &[(&str, &str)]) -> String {
    let mut set = set.to_vec();
    set.push(("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1"));
    let Reading { warnings, .. } = read_from(&set);
    let [warning] = warnings.try_into().unwrap();
    warning
}

const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");

#[test]
fn traces_are_off_without_warnings_by_default() {
    for set in [
        &[][..],
        &[("OTEL_TRACES_EXPORTER", "none")],
        &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")],
        &[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")],
        &[ENDPOINT, ("OTEL_TRACES_SAMPLER", "always_off")],
        &[
            ENDPOINT,
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0"),
        ],
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", " "),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_SERVICE_NAME", "a"),
        ],
    ] {
        assert_eq!(read_from(set), Reading::default(), "{set:?}");
    }
}

#[test]
fn an_endpoint_or_the_exporter_is_enough() {
    let by_endpoint = config(&[ENDPOINT]);
    assert_eq!(
        (
            by_endpoint.protocol,
            by_endpoint.endpoint.authority().as_str()
        ),
        (Protocol::Grpc, "collector:4317")
    );

    assert_eq!(
        (by_endpoint.timeout, by_endpoint.batching),
        (Duration::from_secs(10), Batching::default())
    );
    assert_eq!(
        (
            by_endpoint.sampler,
            by_endpoint.gzip,
            by_endpoint.endpoint.tls
        ),
        (Sampler::All, false, false)
    );

    let exporter = ("OTEL_TRACES_EXPORTER", "otlp");
    assert_eq!(config(&[exporter]).endpoint.authority(), "localhost:4317");
    let http = config(&[exporter, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]);
    assert_eq!(
        (
            http.endpoint.authority().as_str(),
            http.endpoint.path.as_str()
        ),
        ("localhost:4318", "/v1/traces")
    );
}

#[test]
fn traces_variables_take_precedence_and_keep_their_path() {
    let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318/base/");
    assert_eq!(config(&[http, general]).endpoint.path, "/base/v1/traces");
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://b/own");
    let both = config(&[http, general, own]).endpoint;
    assert_eq!(
        (both.tls, both.authority().as_str(), both.path.as_str()),
        (true, "b:443", "/own")
    );
    let own = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc");
    assert_eq!(config(&[http, general, own]).protocol, Protocol::Grpc);
}

#[test]
fn an_address_without_scheme_means_grpc_over_tls_unless_insecure() {
    let bare = ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317");
    assert!(config(&[bare]).endpoint.tls);
    assert!(
        !config(&[bare, ("OTEL_EXPORTER_OTLP_INSECURE", "true")])
            .endpoint
            .tls
    );
    let with_http = read_from(&[bare, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]);
    assert_eq!(with_http.config, None);
    assert!(
        with_http.warnings[0].starts_with("OTEL_EXPORTER_OTLP_ENDPOINT must have the form"),
        "{with_http:?}"
    );
}

#[test]
fn other_variables_are_parsed() {
    let read = config(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20secret",
        ),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/roots.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/own.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/own.key"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.name=other,deployment.environment.name=test",
        ),
        ("OTEL_SERVICE_NAME", "istiod"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "200"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "300"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "40"),
    ]);

    assert_eq!(
        (read.timeout, read.gzip, read.sampler),
        (Duration::from_millis(2500), true, Sampler::Share(0.25))
    );
    let own = Some((PathBuf::from("/own.pem"), PathBuf::from("/own.key")));
    assert_eq!(
        read.tls,
        TlsFiles {
            roots: Some(PathBuf::from("/roots.pem")),
            own
        }
    );

    let resource = [
        ("deployment.environment.name", "test"),
        ("service.name", "istiod"),
    ];
    assert_eq!(
        read.resource,
        resource
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    );

    let delay = Duration::from_millis(100);
    let timeout = Duration::from_millis(200);
    assert_eq!(
        read.batching,
        Batching {
            delay,
            timeout,
            queue: 300,
            batch: 40
        }
    );

    assert_eq!(read.headers.0.len(), 1);
    assert!(!format!("{read:?}").contains("secret"), "{read:?}");
}

#[test]
fn ignored_variables_are_reported_with_a_reason() {
    for (name, value, reason) in [
        ("OTEL_TRACES_EXPORTER", "otlp,zipkin", "otlp or none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "using grpc"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds"),
        (
            "OTEL_EXPORTER_OTLP_COMPRESSION",
            "gzip",
            "only with http/protobuf",
        ),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "gzip or none"),
        (
            "OTEL_EXPORTER_OTLP_INSECURE",
            "true",
            "the scheme of OTEL_EXPORTER_OTLP_ENDPOINT",
        ),
        (
            "OTEL_EXPORTER_OTLP_CERTIFICATE",
            "/a.pem",
            "does not use TLS",
        ),
        (
            "OTEL_TRACES_SAMPLER",
            "jaeger_remote",
            "sampling all traces",
        ),
        ("OTEL_TRACES_SAMPLER_ARG", "0.5", "has no argument"),
        ("OTEL_SDK_DISABLED", "yes", "true or false"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a", "KEY=VALUE"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0", "positive number"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "between 1 and 1048576"),
        (
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
            "4096",
            "OTEL_BSP_MAX_QUEUE_SIZE",
        ),
    ] {
        let message = warning(&[(name, value)]);
        assert!(
            message.starts_with(name) && message.contains(reason),
            "{message}"
        );
    }

    let message = warning(&[
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
    ]);
    assert!(
        message.contains("OTEL_TRACES_SAMPLER_ARG=\"2\""),
        "{message}"
    );

    let message = warning(&[("OTEL_EXPORTER_OTLP_HEADERS", "a=b,secret")]);
    assert!(
        message.contains("NAME=VALUE: 1") && !message.contains("secret"),
        "{message}"
    );
}

#[test]
fn an_invalid_endpoint_disables_export_and_is_not_logged() {
    let read = read_from(&[(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "http://user:secret@collector:4317",
    )]);
    assert_eq!((read.config, read.warnings.len()), (None, 1));
    let message = &read.warnings[0];
    assert!(
        message.starts_with("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") && !message.contains("secret"),
        "{message}"
    );
}

#[test]
fn a_certificate_without_its_key_is_reported() {
    let tls = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://a:1");
    let read = read_from(&[tls, ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/own.key")]);
    assert_eq!(
        read.warnings,
        ["OTEL_EXPORTER_OTLP_CLIENT_KEY has no effect: certificate and key must both be set"]
    );
    assert_eq!(read.config.unwrap().tls, TlsFiles::default());
}
