//! Logging by Istio's flags: levels by scope, targets, JSON.

use std::fs::OpenOptions;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};

/// istiod's scopes, and where what they log comes from here. Those that log by themselves under other names, such as `grpc`, are
/// the crates that do the same.
const SCOPES: &[(&str, &[&str])] = &[
    ("ads", &["navarch::xds"]),
    ("analysis", &["navarch::status::analysis"]),
    ("authn", &["navarch::security::authenticate"]),
    ("authorization", &["navarch::envoy::filters"]),
    ("ca", &["navarch::security::ca"]),
    ("controllers", &["navarch::status", "navarch::server::controllers"]),
    ("delta", &["navarch::xds"]),
    ("file", &["navarch::source::files", "navarch::source::mesh_files"]),
    ("gateway", &["navarch::envoy::listeners::gateway"]),
    ("grpc", &["h2", "tonic"]),
    ("ip-autoallocate", &["navarch::status::allocator"]),
    ("klog", &["kube", "kube_client", "kube_runtime"]),
    ("krt", &["navarch::push"]),
    ("kube", &["navarch::source::kubernetes"]),
    ("model", &["navarch::push", "navarch::registry"]),
    ("monitoring", &["navarch::admin"]),
    ("pkica", &["navarch::security::ca"]),
    ("pkira", &["navarch::security::ca::registration"]),
    ("processing", &["navarch::push"]),
    ("rootcertrotator", &["navarch::security::ca::keeper"]),
    ("security", &["navarch::security"]),
    ("serverca", &["navarch::security::ca::service"]),
    ("serviceentry", &["navarch::registry"]),
    ("spiffe", &["navarch::security"]),
    ("status", &["navarch::status"]),
    ("trustBundle", &["navarch::security::trust_bundle", "navarch::server::trust"]),
    ("validation", &["navarch::webhook::validation"]),
    ("validationController", &["navarch::webhook::registration"]),
    ("validationServer", &["navarch::webhook::validation"]),
    ("wle", &["navarch::status::registration", "navarch::server::workloads"]),
];

/// How and where to log.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct LogFlags {
    /// What to log: error, warn, info, debug or trace, also by room as in `info,navarch::xds=debug`; info if unset
    #[arg(long, value_name = "LEVELS", conflicts_with = "log_output_level")]
    log_level: Option<String>,
    /// What to log in Istio's notation: none, error, warn, info or debug, also by scope as in `default:info,ads:debug`
    #[arg(long = "log_output_level", alias = "log-output-level", value_name = "LEVELS")]
    log_output_level: Option<String>,
    /// Where to log to: stdout, stderr or a file, which is appended to; can be repeated
    #[arg(long = "log_target", alias = "log-target", value_name = "TARGET", default_value = "stdout")]
    log_target: Vec<String>,
    /// Log JSON objects
    #[arg(long, alias = "log_as_json", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t, default_missing_value = "true", action = clap::ArgAction::Set)]
    log_as_json: bool,
}

impl LogFlags {
    /// Starts logging. Gives the scopes of Istio's that nothing here belongs to.
    pub(super) fn start(&self) -> anyhow::Result<Vec<String>> {
        let (filter, unknown) = match (&self.log_output_level, &self.log_level) {
            (Some(levels), _) => filter(levels, discovery_targets)?,
            (None, Some(levels)) => (levels.clone(), Vec::new()),
            (None, None) => ("info".to_owned(), Vec::new()),
        };
        let filter = EnvFilter::try_new(&filter).with_context(|| format!("log levels {filter:?} cannot be read"))?;
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(self.writer()?);
        let started = if self.log_as_json { log.json().try_init() } else { log.try_init() };
        started.map_err(|error| anyhow::anyhow!("no log: {error}"))?;
        Ok(unknown)
    }

    /// Writes to all targets.
    fn writer(&self) -> anyhow::Result<BoxMakeWriter> {
        let mut writers = self.log_target.iter().map(|target| writer(target));
        let first = writers.next().unwrap_or_else(|| writer("stdout"))?;
        writers.try_fold(first, |all, next| Ok(BoxMakeWriter::new(all.and(next?))))
    }
}

/// Writes to one target.
fn writer(target: &str) -> anyhow::Result<BoxMakeWriter> {
    Ok(match target {
        "stdout" => BoxMakeWriter::new(std::io::stdout),
        "stderr" => BoxMakeWriter::new(std::io::stderr),
        path => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            BoxMakeWriter::new(Arc::new(file.with_context(|| format!("--log_target: failed to open {path}"))?))
        }
    })
}

/// Where what a scope of istiod's logs comes from here.
fn discovery_targets(scope: &str) -> Vec<String> {
    let found = SCOPES.iter().find(|(name, _)| *name == scope);
    found.into_iter().flat_map(|(_, targets)| *targets).map(|target| (*target).to_owned()).collect()
}

/// Istio's levels (`default:info,ads:debug`) as a filter of `tracing`: that of `default` or `all` for everything, those of other
/// scopes for the `targets` of each. Gives the scopes without targets beside.
///
/// # Errors
/// When a level is none of Istio's.
pub(super) fn filter(levels: &str, targets: impl Fn(&str) -> Vec<String>) -> anyhow::Result<(String, Vec<String>)> {
    let (mut default, mut directives, mut unknown) = ("info", Vec::new(), Vec::new());
    for part in levels.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (scope, level) = part.split_once(':').unwrap_or(("default", part));
        let level = match level {
            "none" => "off",
            "fatal" | "error" => "error",
            "warn" | "warning" => "warn",
            "info" => "info",
            "debug" => "debug",
            "trace" => "trace",
            _ => anyhow::bail!(
                "--log_output_level={levels:?}: {level:?} is no level: none, fatal, error, warn, info and debug are"
            ),
        };
        if matches!(scope, "default" | "all") {
            default = level;
            continue;
        }
        let targets = targets(scope);
        if targets.is_empty() {
            unknown.push(scope.to_owned());
        }
        directives.extend(targets.into_iter().map(|target| format!("{target}={level}")));
    }
    directives.insert(0, default.to_owned());
    Ok((directives.join(","), unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn istios_levels_become_a_filter() {
        let read = |levels: &str| filter(levels, discovery_targets).unwrap();
        assert_eq!(read(""), ("info".to_owned(), vec![]));
        assert_eq!(read("warning"), ("warn".to_owned(), vec![]));
        assert_eq!(
            read("ads:debug, default:error,grpc:none,nobody:info"),
            ("error,navarch::xds=debug,h2=off,tonic=off".to_owned(), vec!["nobody".to_owned()])
        );
        assert!(filter("default:loud", discovery_targets).unwrap_err().to_string().contains("loud"));
        for (filter, _) in SCOPES.iter().map(|(scope, _)| read(&format!("{scope}:debug"))) {
            assert!(EnvFilter::try_new(&filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn every_scope_names_modules_that_exist() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for target in SCOPES.iter().flat_map(|(_, targets)| *targets) {
            let Some(path) = target.strip_prefix("navarch::") else { continue };
            let file = root.join(path.replace("::", "/")).with_extension("rs");
            assert!(file.is_file(), "{target}: there is no {}", file.display());
        }
    }

    #[test]
    fn all_targets_are_written_to() {
        use std::io::Write as _;
        use tracing_subscriber::fmt::MakeWriter as _;
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
        let flags = LogFlags { log_target: paths.to_vec(), ..LogFlags::default() };
        let writer = flags.writer().unwrap();
        writer.make_writer().write_all(b"line\n").unwrap();
        for path in paths {
            assert_eq!(std::fs::read_to_string(path).unwrap(), "line\n");
        }
        let flags = LogFlags { log_target: vec!["/nowhere/log".to_owned()], ..LogFlags::default() };
        assert!(flags.writer().err().unwrap().to_string().contains("/nowhere/log"));
    }
}
