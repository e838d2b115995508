//! Operations as permissions of Envoy's RBAC.

#![expect(
    deprecated,
    reason = "istiod sends metadata matchers in the deprecated form, which every Envoy supports"
)]

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::TypedExtensionConfig;
use navarch_proto::envoy::config::rbac::v3::Permission;
use navarch_proto::envoy::config::rbac::v3::permission::Rule;
use navarch_proto::envoy::extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig;
use navarch_proto::envoy::r#type::matcher::v3::{PathMatcher, path_matcher};

use super::Transport;
use super::attribute::OperationAttribute;
use super::bytes_match::{self, Case};
use super::metadata_match;
use super::translation::{Translation, Unsupported};
use crate::cidr;
use navarch_base::cidr::Cidr;

/// The permission for one of the values of an attribute.
pub(super) fn permission(
    translation: &Translation<'_>,
    attribute: &OperationAttribute<'_>,
    values: &[String],
) -> Result<Option<Permission>, Unsupported> {
    let of_http = |rule: Rule| {
        if translation.transport == Transport::Http {
            Ok(rule)
        } else {
            Err(Unsupported)
        }
    };

    let say = |value: &str| match attribute {
        OperationAttribute::Host => of_http(Rule::Header(bytes_match::header(
            ":authority",
            value,
            Case::Insensitive,
        ))),
        OperationAttribute::Method => of_http(Rule::Header(bytes_match::header(
            ":method",
            value,
            Case::Sensitive,
        ))),
        OperationAttribute::Path => of_http(path(value)),
        OperationAttribute::Port => port(value).map(Rule::DestinationPort).ok_or(Unsupported),
        OperationAttribute::Address => Cidr::parse_range_or_address(value)
            .map(|range| Rule::DestinationIp(cidr::to_proto(range)))
            .ok_or(Unsupported),
        OperationAttribute::Sni => Ok(Rule::RequestedServerName(bytes_match::text(value))),
        OperationAttribute::Metadata(filter, key) => Ok(Rule::Metadata(metadata_match::of_filter(
            filter, key, values,
        ))),
    };

    let permission = |value: &str| {
        Ok(Permission {
            rule: Some(say(value)?),
        })
    };

    match attribute {
        // One matcher contains all values.
        OperationAttribute::Metadata(..) => permission("").map(Some),
        OperationAttribute::Host
        | OperationAttribute::Method
        | OperationAttribute::Path
        | OperationAttribute::Port
        | OperationAttribute::Address
        | OperationAttribute::Sni => translation.one_of(values, permission),
    }
}

/// A path: a URI template, or a text.
fn path(value: &str) -> Rule {
    if !(value.contains("{*}") || value.contains("{**}")) {
        let text = bytes_match::text(value);
        return Rule::UrlPath(PathMatcher {
            rule: Some(path_matcher::Rule::Path(text)),
        });
    }
    let config = UriTemplateMatchConfig {
        path_template: value.replace("{**}", "**").replace("{*}", "*"),
    };
    Rule::UriTemplate(TypedExtensionConfig {
        name: "uri-template".to_owned(),
        typed_config: Some(pack(&config)),
    })
}

/// A port in decimal digits.
fn port(value: &str) -> Option<u32> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit());
    value
        .parse::<u16>()
        .ok()
        .filter(|_| is_plain)
        .map(u32::from)
}
