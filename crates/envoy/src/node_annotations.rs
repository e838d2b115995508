//! Annotations of a proxy's pod, which it sends in its metadata (`ANNOTATIONS`).

use serde_json::Value;

use navarch_push::proxy_view::ProxyView;

/// Whether a waypoint forwards client identities to applications.
pub(crate) const FORWARDS_CLIENT_IDENTITY: &str = "ambient.istio.io/xfcc-include-client-identity";
/// The name of the service in traces.
pub(crate) const TRACED_SERVICE: &str = "resource.opentelemetry.io/service.name";

/// The annotations that are read; a recording keeps no others.
pub const READ_ANNOTATIONS: [&str; 2] = [FORWARDS_CLIENT_IDENTITY, TRACED_SERVICE];

/// The value of one of [`READ_ANNOTATIONS`].
pub(crate) fn annotation(proxy: ProxyView<'_>, name: &'static str) -> Option<String> {
    let text = proxy.meta("ANNOTATIONS")?;
    let annotations: Value = serde_json::from_str(&text).ok()?;
    Some(annotations.get(name)?.as_str()?.to_owned())
}
