//! Logging by Istio's flags: levels by scope, targets, JSON.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use navarch_api::log_levels;
use nix::fcntl::OFlag;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};

/// istiod's scopes, and where what they log comes from here. Those that log by themselves under other names, such as `grpc`, are
/// the crates that do the same.
const SCOPES: &[(&str, &[&str])] = &[
    ("ads", &["navarch_xds"]),
    ("analysis", &["navarch_status::analysis"]),
    ("authn", &["navarch_security::authenticate"]),
    ("authorization", &["navarch_envoy::filters"]),
    ("ca", &["navarch_security::ca"]),
    ("controllers", &["navarch_status", "navarch::server::controllers"]),
    ("delta", &["navarch_xds"]),
    ("file", &["navarch_source::files", "navarch_source::mesh_files"]),
    ("gateway", &["navarch_envoy::listeners::gateway"]),
    ("grpc", &["h2", "tonic"]),
    ("ip-autoallocate", &["navarch_status::allocator"]),
    ("klog", &["kube", "kube_client", "kube_runtime"]),
    ("krt", &["navarch_push"]),
    ("kube", &["navarch_source::kubernetes"]),
    ("model", &["navarch_push", "navarch_registry"]),
    ("monitoring", &["navarch::admin"]),
    ("pkica", &["navarch_security::ca"]),
    ("pkira", &["navarch_security::ca::registration"]),
    ("processing", &["navarch_push"]),
    ("rootcertrotator", &["navarch_security::ca::keeper"]),
    ("security", &["navarch_security"]),
    ("serverca", &["navarch_security::ca::service"]),
    ("serviceentry", &["navarch_registry"]),
    ("spiffe", &["navarch_security"]),
    ("status", &["navarch_status"]),
    ("trustBundle", &["navarch_security::trust_bundle", "navarch::server::trust"]),
    ("validation", &["navarch_webhook::validation"]),
    ("validationController", &["navarch_webhook::registration"]),
    ("validationServer", &["navarch_webhook::validation"]),
    ("wle", &["navarch_status::registration", "navarch::server::workloads"]),
];

/// How and where to log.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct LogFlags {
    /// What to log: error, warn, info, debug or trace, also by room as in `info,navarch_xds=debug`; info if unset
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
            (Some(levels), _) => log_levels::filter(levels, discovery_targets)?,
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
        "stdout" | "/dev/stdout" => BoxMakeWriter::new(std::io::stdout),
        "stderr" | "/dev/stderr" => BoxMakeWriter::new(std::io::stderr),
        path => {
            // Opening a FIFO waits for its reader, and writing to it for that reader to read.
            let nonblocking = OFlag::O_NONBLOCK.bits();
            let file = OpenOptions::new().create(true).append(true).custom_flags(nonblocking).open(path);
            let opened = file.and_then(|file| match file.metadata()?.file_type().is_fifo() {
                true => Err(io::Error::other("is a FIFO, whose reader could stop the process")),
                false => Ok(file),
            });
            BoxMakeWriter::new(Arc::new(opened.with_context(|| format!("--log_target: failed to open {path}"))?))
        }
    })
}

/// Where what a scope of istiod's logs comes from here.
fn discovery_targets(scope: &str) -> Vec<String> {
    let found = SCOPES.iter().find(|(name, _)| *name == scope);
    found.into_iter().flat_map(|(_, targets)| *targets).map(|target| (*target).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn istios_levels_become_a_filter() {
        let read = |levels: &str| log_levels::filter(levels, discovery_targets).unwrap();
        assert_eq!(read(""), ("info".to_owned(), vec![]));
        assert_eq!(read("warning"), ("warn".to_owned(), vec![]));
        assert_eq!(
            read("ads:debug, default:error,grpc:none,nobody:info"),
            ("error,navarch_xds=debug,h2=off,tonic=off".to_owned(), vec!["nobody".to_owned()])
        );
        for (filter, _) in SCOPES.iter().map(|(scope, _)| read(&format!("{scope}:debug"))) {
            assert!(EnvFilter::try_new(&filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn every_scope_names_modules_that_exist() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        for target in SCOPES.iter().flat_map(|(_, targets)| *targets).filter(|target| target.starts_with("navarch")) {
            let (name, path) = target.split_once("::").unwrap_or((target, "lib"));
            let sources = match name.strip_prefix("navarch_") {
                Some(name) => root.join("crates").join(name).join("src"),
                None => root.join("src"),
            };
            let file = sources.join(path.replace("::", "/")).with_extension("rs");
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
        // Without a reader opening it would wait; with one, a write would.
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let flags = LogFlags { log_target: vec![fifo.to_str().unwrap().to_owned()], ..LogFlags::default() };
        assert!(flags.writer().is_err());
        let reader = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&fifo).unwrap();
        assert!(format!("{:#}", flags.writer().err().unwrap()).contains("is a FIFO"));
        drop(reader);
    }
}
