//! The connection limits, from their environment variables.

use super::environment::{VariableError, parsed};
use crate::server::ConnectionLimits;

/// `NAVARCH_MAX_XDS_CONNECTIONS`, `NAVARCH_MAX_WEBHOOK_CONNECTIONS`, `NAVARCH_MAX_HTTP_CONNECTIONS`
/// and `NAVARCH_MAX_TLS_HANDSHAKES`; the defaults of unset or empty ones depend on the process's
/// limit of open files.
pub(super) fn limits(
    variable: impl Fn(&str) -> Option<String>,
    files: usize,
) -> Result<ConnectionLimits, VariableError> {
    let number = |name: &str| {
        parsed(&variable, name, "positive integer", |text| {
            text.parse().ok().filter(|number: &usize| *number > 0)
        })
    };
    let defaults = ConnectionLimits::of_files(files);
    Ok(ConnectionLimits {
        xds: number("NAVARCH_MAX_XDS_CONNECTIONS")?.unwrap_or(defaults.xds),
        webhooks: number("NAVARCH_MAX_WEBHOOK_CONNECTIONS")?.unwrap_or(defaults.webhooks),
        http: number("NAVARCH_MAX_HTTP_CONNECTIONS")?.unwrap_or(defaults.http),
        handshakes: number("NAVARCH_MAX_TLS_HANDSHAKES")?.or(defaults.handshakes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_take_the_place_of_defaults() {
        let set = |name: &str| (name == "NAVARCH_MAX_HTTP_CONNECTIONS").then(|| "7".to_owned());
        let limits = limits(set, 20_000).unwrap();
        assert_eq!(
            limits,
            ConnectionLimits {
                http: 7,
                ..ConnectionLimits::of_files(20_000)
            }
        );
        for wrong in ["0", "-1", "many"] {
            let set = |name: &str| match name {
                "NAVARCH_MAX_TLS_HANDSHAKES" => Some(wrong.to_owned()),
                "NAVARCH_STRICT_ENVIRONMENT" => Some("true".to_owned()),
                _ => None,
            };
            let error = super::limits(set, 20_000).unwrap_err().to_string();
            assert!(
                error.contains("NAVARCH_MAX_TLS_HANDSHAKES") && error.contains(wrong),
                "{error}"
            );
        }
    }
}
