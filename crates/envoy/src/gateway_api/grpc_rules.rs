//! Rules of GRPCRoutes as HTTP routes of a VirtualService (istiod's `convertGRPCRoute`).

use super::fault::Fault;
use super::http_rules::{
    RuleContext, RuleForms, answer_500, destinations, mirror, modify_headers, name_of, weight_sum,
};
use super::matches;
use navarch_api::gateway_api::GrpcRouteRule;
use navarch_api::istio::HttpRoute;

/// The routes of a rule.
///
/// # Errors
/// If it cannot be served; then its whole route is not served.
pub(super) fn convert(
    context: RuleContext<'_, '_>,
    rule: &GrpcRouteRule,
    position: usize,
) -> Result<RuleForms, Fault> {
    let mut route = HttpRoute {
        name: name_of(context.route, rule.name.as_deref(), position),
        ..HttpRoute::default()
    };

    for filter in &rule.filters {
        match (filter.kind.as_str(), &filter.request_mirror) {
            ("RequestMirror", Some(declared)) => route.mirrors.push(mirror(context, declared)?),
            ("RequestMirror", None) => {}
            _ => modify_headers(&mut route.headers, filter)?,
        }
    }

    let mut forms = RuleForms::default();

    if weight_sum(&rule.backend_refs) == 0 {
        route.direct_response = Some(answer_500());
    } else {
        let destinations = destinations(context, &rule.backend_refs)?;
        route.route = destinations.targets;
        forms.fault = destinations.fault;
    }

    forms.routes = match rule.matches.as_slice() {
        [] => vec![route],
        some => {
            let with = |one| {
                Ok(HttpRoute {
                    matches: vec![matches::grpc(one)?],
                    ..route.clone()
                })
            };
            some.iter().map(with).collect::<Result<_, Fault>>()?
        }
    };

    Ok(forms)
}
