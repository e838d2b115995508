//! Rules for the providers of mesh config.

use super::Verdict;
use super::name::{
    fqdn, ip_address, is_dns_label, no_partial_wildcard, port_number, wildcard_domain,
};
use super::path::Path;
use crate::mesh::ExtensionProvider;

/// Warns of providers that do not work. They have no effect until an object uses them.
pub(super) fn extension_providers(
    verdict: &mut Verdict,
    at: &Path<'_>,
    providers: &[ExtensionProvider],
) {
    let mut faults = Verdict::default();

    for (index, provider) in providers.iter().enumerate() {
        let at = &at.item(index);

        if provider.name.is_empty() {
            faults.error(&at.field("name"), "is missing");
        } else if providers
            .iter()
            .take(index)
            .any(|other| other.name == provider.name)
        {
            faults.error(
                &at.field("name"),
                format!("{:?} is the name of another provider", provider.name),
            );
        }

        extension_provider(&mut faults, at, provider);
    }

    verdict.warnings.append(&mut faults.errors);
}

/// Validates one provider.
fn extension_provider(verdict: &mut Verdict, at: &Path<'_>, provider: &ExtensionProvider) {
    let services = services(provider);
    let others = [
        provider.stackdriver.is_some(),
        provider.prometheus.is_some(),
        provider.envoy_file_access_log.is_some(),
        provider.sds.is_some(),
    ];

    match services.len() + others.into_iter().filter(|set| *set).count() {
        1 => {}
        0 => verdict.error(at, "has only a name; set the kind of provider"),
        _ => verdict.error(at, "has several kinds of providers; set only one"),
    }

    for (field, name, port) in services {
        let at = &at.field(field);
        verdict.check(&at.field("service"), service(name));
        verdict.check(&at.field("port"), port_number(port));
    }

    if let Some(http) = &provider.envoy_ext_authz_http {
        let at = &at.field("envoyExtAuthzHttp");
        verdict.check(&at.field("statusOnError"), status(&http.status_on_error));
        if !http.path_prefix.is_empty() && !http.path_prefix.starts_with('/') {
            verdict.error(
                &at.field("pathPrefix"),
                format!("{:?} does not start with \"/\"", http.path_prefix),
            );
        }
    }

    if let Some(grpc) = &provider.envoy_ext_authz_grpc {
        let at = &at.field("envoyExtAuthzGrpc");
        verdict.check(&at.field("statusOnError"), status(&grpc.status_on_error));
    }

    if provider
        .lightstep
        .as_ref()
        .is_some_and(|lightstep| lightstep.access_token.is_empty())
    {
        let at = &at.field("lightstep");
        verdict.error(&at.field("accessToken"), "is missing");
    }

    if provider
        .opentelemetry
        .as_ref()
        .is_some_and(|otel| otel.http.is_some() && otel.grpc.is_some())
    {
        let at = &at.field("opentelemetry");
        verdict.error(
            &at.field("grpc"),
            "is set together with http; keep one of them",
        );
    }
}

/// The services that a provider uses: the field, the name and the port of each.
fn services(provider: &ExtensionProvider) -> Vec<(&'static str, &str, u32)> {
    /// The providers that may reference a service.
    macro_rules! named {
        ($($member:ident: $field:literal),* $(,)?) => {
            [$(provider.$member.as_ref().map(|named| ($field, named.service.as_str(), named.port)),)*]
        };
    }

    let named = named! {
        envoy_ext_authz_http: "envoyExtAuthzHttp",
        envoy_ext_authz_grpc: "envoyExtAuthzGrpc",
        zipkin: "zipkin",
        lightstep: "lightstep",
        datadog: "datadog",
        opencensus: "opencensus",
        skywalking: "skywalking",
        opentelemetry: "opentelemetry",
        envoy_http_als: "envoyHttpAls",
        envoy_tcp_als: "envoyTcpAls",
        envoy_otel_als: "envoyOtelAls",
    };

    named.into_iter().flatten().collect()
}

/// A service: a host, or a namespace, a slash and a host.
fn service(name: &str) -> Result<(), String> {
    let form =
        || format!("{name:?} is not a service; write a host, or a namespace, \"/\" and a host");
    let Some((namespace, host)) = name.split_once('/') else {
        return fqdn(name).or_else(|_| ip_address(name)).map_err(|_| form());
    };
    let namespace = namespace.strip_prefix('~').unwrap_or(namespace);
    let good_namespace = matches!(namespace, "" | "*" | ".") || is_dns_label(namespace);
    if !good_namespace || (host != "*" && !host.contains('.')) {
        return Err(form());
    }
    wildcard_domain(host)?;
    no_partial_wildcard(host)
}

/// An HTTP status, if set.
fn status(text: &str) -> Result<(), String> {
    match text.parse::<u16>() {
        Ok(100 | 200..=208 | 226 | 300..=308 | 400..=431 | 451 | 500..=511) => Ok(()),
        Ok(_) | Err(_) if text.is_empty() => Ok(()),
        Ok(_) | Err(_) => Err(format!(
            "{text:?} is not an HTTP status that Envoy supports"
        )),
    }
}
