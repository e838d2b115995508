//! CORS policies.

use navarch_proto::envoy::config::core::v3::RuntimeFractionalPercent;
use navarch_proto::envoy::extensions::filters::http::cors::v3::CorsPolicy;

use super::fraction;
use super::text_match::text;
use navarch_api::istio::{CorsPolicy as Declared, StringMatch, UnmatchedPreflights};

/// The policy for Envoy's CORS filter.
pub(super) fn policy(declared: &Declared) -> CorsPolicy {
    let origins = if declared.allow_origins.is_empty() {
        declared
            .allow_origin
            .iter()
            .filter_map(|origin| text(&StringMatch::Exact(origin.clone())))
            .collect()
    } else {
        declared.allow_origins.iter().filter_map(text).collect()
    };

    CorsPolicy {
        allow_origin_string_match: origins,
        allow_methods: declared.allow_methods.join(","),
        allow_headers: declared.allow_headers.join(","),
        expose_headers: declared.expose_headers.join(","),
        max_age: declared
            .max_age
            .map(|age| age.as_secs().to_string())
            .unwrap_or_default(),
        allow_credentials: declared.allow_credentials,
        filter_enabled: Some(RuntimeFractionalPercent {
            default_value: Some(fraction::of_hundred(100)),
            ..RuntimeFractionalPercent::default()
        }),
        // For compatibility, preflights of unmatched origins are forwarded to the application by
        // default.
        forward_not_matching_preflights: Some(
            declared.unmatched_preflights != UnmatchedPreflights::Ignore,
        ),
        ..CorsPolicy::default()
    }
}
