//! Images of injected containers.

use std::collections::BTreeMap;

use super::values::Global;

/// The image variants that Istio publishes; a tag may end with one of them.
const FLAVOURS: [&str; 2] = ["distroless", "debug"];

/// The variant name for images without a variant suffix.
const DEFAULT_FLAVOUR: &str = "default";

/// The name of the proxy's image.
const PROXY_NAME: &str = "proxyv2";

/// The image of the proxy or of an init container: registry, name, and the tag with the variant.
///
/// The variant is from the pod's annotation, else from the proxy config, else from the values.
pub(super) fn image(global: &Global, name: &str, flavours: Flavours<'_>) -> String {
    let name = if name.is_empty() { PROXY_NAME } else { name };
    let configured = flavours.proxy_config.filter(|flavour| !flavour.is_empty());
    let flavour = flavours
        .annotation
        .or(configured)
        .unwrap_or(global.variant.as_str());
    format!(
        "{}/{name}:{}",
        global.hub,
        tag(global.tag.as_str(), flavour)
    )
}

/// The sources of an image variant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flavours<'a> {
    /// The variant in the pod's annotation.
    pub(super) annotation: Option<&'a str>,
    pub(super) proxy_config: Option<&'a str>,
}

/// Replaces the variant suffix of a tag.
fn tag(tag: &str, flavour: &str) -> String {
    if flavour.is_empty() {
        return tag.to_owned();
    }
    let bare = |known: &str| {
        tag.strip_suffix(known)
            .and_then(|rest| rest.strip_suffix('-'))
    };
    let bare = FLAVOURS.iter().find_map(|known| bare(known)).unwrap_or(tag);
    if flavour == DEFAULT_FLAVOUR {
        bare.to_owned()
    } else {
        format!("{bare}-{flavour}")
    }
}

/// Tag and digest of an image, each empty if absent.
pub(super) fn tag_and_digest(image: &str) -> (&str, &str) {
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    let last = name.rsplit('/').next().unwrap_or(name);
    (last.rsplit_once(':').map_or("", |(_, tag)| tag), digest)
}

/// The value of `OTEL_RESOURCE_ATTRIBUTES`: the service's attributes by OpenTelemetry's conventions
/// for Kubernetes.
pub(super) fn otel_attributes(
    annotations: &BTreeMap<&str, &str>,
    version_label: Option<&str>,
    namespace: &str,
    containers: &[(&str, &str)],
) -> String {
    let annotation = |name: &str| {
        let full = format!("resource.opentelemetry.io/{name}");
        annotations
            .get(full.as_str())
            .copied()
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
    };

    let own = Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty());
    let of_image = || match containers {
        [(_, image)] => match tag_and_digest(image) {
            ("", "") => None,
            (tag, "") => Some(tag.to_owned()),
            ("", digest) => Some(digest.to_owned()),
            (tag, digest) => Some(format!("{tag}@{digest}")),
        },
        _ => None,
    };

    let labelled = version_label
        .filter(|label| !label.is_empty())
        .map(str::to_owned);
    let first = containers
        .first()
        .map(|(name, _)| format!("{namespace}.$(POD_NAME).{name}"));
    let attributes = [
        ("service.namespace", annotation("service.namespace").or(own)),
        (
            "service.version",
            annotation("service.version").or(labelled).or_else(of_image),
        ),
        (
            "service.instance.id",
            annotation("service.instance.id").or(first),
        ),
    ];

    let set = attributes
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    set.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavours_replace_each_other() {
        let global = Global {
            hub: "h".into(),
            tag: "1.2-distroless".into(),
            ..Global::default()
        };

        let with = |annotation, proxy_config| {
            image(
                &global,
                "",
                Flavours {
                    annotation,
                    proxy_config,
                },
            )
        };

        assert_eq!(with(None, None), "h/proxyv2:1.2-distroless");
        assert_eq!(with(None, Some("debug")), "h/proxyv2:1.2-debug");
        assert_eq!(with(Some("default"), Some("debug")), "h/proxyv2:1.2");
        assert_eq!(with(Some(""), Some("debug")), "h/proxyv2:1.2-distroless");
    }

    #[test]
    fn image_tags_and_digests_are_distinguished_from_ports() {
        assert_eq!(tag_and_digest("r:5000/web"), ("", ""));
        assert_eq!(tag_and_digest("r:5000/web:1@sha256:x"), ("1", "sha256:x"));
    }
}
