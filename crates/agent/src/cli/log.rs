//! Logging by pilot-agent's flags: levels by scope, JSON.

use navarch_base::log_levels;
use navarch_base::printable::EscapedLines;
use tracing_subscriber::EnvFilter;

use crate::json_log::JsonLines;

/// pilot-agent's scopes, and the modules that log to each.
const SCOPES: &[(&str, &[&str])] = &[
    ("ads", &["navarch_agent::sds"]),
    ("ca", &["navarch_agent::secrets::authority"]),
    ("cache", &["navarch_agent::secrets"]),
    ("citadelclient", &["navarch_agent::secrets::authority"]),
    ("dns", &["navarch_agent::dns"]),
    ("grpc", &["h2", "tonic"]),
    ("healthcheck", &["navarch_agent::health"]),
    ("probes", &["navarch_agent::status_server"]),
    ("sds", &["navarch_agent::sds"]),
    ("security", &["navarch_agent::secrets"]),
    ("stsserver", &["navarch_agent::sts"]),
    ("token", &["navarch_agent::sts"]),
    ("wasm", &["navarch_agent::wasm"]),
    (
        "xdsproxy",
        &["navarch_agent::ads", "navarch_agent::upstream"],
    ),
];

/// Starts logging with `levels` in Istio's notation (`default:info,dns:debug`). Logs go to standard
/// error, as standard output is for Envoy and for the output of commands. Returns the scopes
/// without a module.
pub(super) fn start(levels: &str, json: bool) -> anyhow::Result<Vec<String>> {
    let (filter, unknown) = log_levels::filter(levels, targets)?;
    let filter = EnvFilter::try_new(filter)?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(|| EscapedLines(std::io::stderr()));
    let started = if json {
        log.event_format(<JsonLines>::default()).try_init()
    } else {
        log.try_init()
    };
    started.map_err(|error| anyhow::anyhow!("failed to initialize logging: {error}"))?;
    Ok(unknown)
}

/// The log targets of a scope.
fn targets(scope: &str) -> Vec<String> {
    let found = SCOPES.iter().find(|(name, _)| *name == scope);
    found
        .into_iter()
        .flat_map(|(_, targets)| *targets)
        .map(|target| (*target).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_modules_that_exist() {
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for (scope, targets) in SCOPES {
            for path in targets
                .iter()
                .filter_map(|target| target.strip_prefix("navarch_agent::"))
            {
                let file = sources.join(path.replace("::", "/")).with_extension("rs");
                assert!(file.is_file(), "{scope}: there is no {}", file.display());
            }
        }
    }

    #[test]
    fn levels_by_scope_become_a_filter_and_unknown_scopes_are_returned() {
        let (filter, unknown) =
            log_levels::filter("warn,xdsproxy:debug,nobody:info", targets).unwrap();
        assert_eq!(
            filter,
            "warn,navarch_agent::ads=debug,navarch_agent::upstream=debug"
        );
        assert_eq!(unknown, ["nobody"]);
        assert!(EnvFilter::try_new(filter).is_ok());
    }
}
