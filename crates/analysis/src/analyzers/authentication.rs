//! RequestAuthentications and what istiod fetches for them.

use k8s_openapi::api::apps::v1::Deployment;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;

/// Checks that `BLOCKED_CIDRS_IN_JWKS_URIS` limits from where istiod fetches the keys of
/// RequestAuthentications.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "authn.BlockedCIDRsAnalyzer",
    description: "Checks that BLOCKED_CIDRS_IN_JWKS_URIS is configured on istiod when RequestAuthentication resources exist",
    inputs: &[Kind::RequestAuthentication, Kind::Deployment],
    run: blocked_cidrs,
}];

/// The variable with URLs from which istiod does not fetch keys.
const BLOCKED: &str = "BLOCKED_CIDRS_IN_JWKS_URIS";
/// How many names a message holds.
const MAX_NAMES: usize = 5;

/// Warns where istiod fetches keys from anywhere.
fn blocked_cidrs(context: &Context, report: &mut Report) {
    let names: Vec<_> = context
        .each(Kind::RequestAuthentication)
        .map(|policy| policy.full_name())
        .collect();
    if names.is_empty() {
        return;
    }

    let listed = match names.get(..MAX_NAMES) {
        Some(first) if names.len() > MAX_NAMES => {
            format!("{}, and {} more", first.join(", "), names.len() - MAX_NAMES)
        }
        Some(_) | None => names.join(", "),
    };

    for (resource, deployment) in context
        .specs::<Deployment>()
        .filter(|(resource, _)| resource.label("app") == Some("istiod"))
    {
        let spec = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.template.spec.as_ref());
        let mut variables = spec
            .into_iter()
            .flat_map(|spec| &spec.containers)
            .flat_map(|container| container.env.iter().flatten());
        let is_set = variables.any(|variable| {
            variable.name == BLOCKED
                && variable
                    .value
                    .as_ref()
                    .is_some_and(|value| !value.is_empty())
        });
        if !is_set {
            report.add(Message::new(
                &messages::JWKS_URI_FETCH_UNRESTRICTED,
                resource,
                parameters![names.len(), &listed],
            ));
        }
    }
}
