//! Logging with Istio's flags: levels by scope, targets, JSON.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use navarch_agent::json_log::JsonLines;
use navarch_base::log_levels;
use navarch_base::printable::EscapedLines;
use nix::fcntl::OFlag;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};
use tracing_subscriber::{EnvFilter, reload};

use crate::admin::{LogScope, LogScopes};

/// istiod's scopes, and the modules that log to each here. Libraries that log under other names,
/// such as `grpc`, are mapped to the crates with the same purpose.
const SCOPES: &[LogScope] = &[
    ("ads", "xDS streams", &["navarch_xds"]),
    (
        "adsc",
        "Configuration of other control planes",
        &["navarch_source::xds"],
    ),
    (
        "analysis",
        "Analysis of configuration",
        &["navarch_status::analysis"],
    ),
    (
        "authn",
        "Authentication of callers",
        &["navarch_security::authenticate"],
    ),
    (
        "authorization",
        "Filters that authorize requests",
        &["navarch_envoy::filters"],
    ),
    ("ca", "The certificate authority", &["navarch_security::ca"]),
    (
        "controllers",
        "What is written back to the cluster",
        &["navarch_status", "navarch::server::controllers"],
    ),
    ("delta", "xDS streams of deltas", &["navarch_xds"]),
    (
        "file",
        "Configuration in files",
        &["navarch_source::files", "navarch_source::mesh_files"],
    ),
    (
        "gateway",
        "Listeners of gateways",
        &["navarch_envoy::listeners::gateway"],
    ),
    ("grpc", "HTTP/2 and gRPC", &["h2", "tonic"]),
    (
        "ip-autoallocate",
        "Addresses given to ServiceEntries",
        &["navarch_status::allocator"],
    ),
    (
        "klog",
        "The client of the Kubernetes API",
        &["kube", "kube_client", "kube_runtime"],
    ),
    ("krt", "The push engine", &["navarch_push"]),
    (
        "kube",
        "Configuration in the Kubernetes API",
        &["navarch_source::kubernetes"],
    ),
    (
        "model",
        "Services and pushes",
        &["navarch_push", "navarch_registry"],
    ),
    (
        "monitoring",
        "Health, metrics and debug pages",
        &["navarch::admin"],
    ),
    (
        "pkica",
        "Signing of certificates",
        &["navarch_security::ca"],
    ),
    (
        "pkira",
        "External signers",
        &["navarch_security::ca::registration"],
    ),
    ("processing", "Pushes", &["navarch_push"]),
    (
        "rootcertrotator",
        "Renewal of the root",
        &["navarch_security::ca::keeper"],
    ),
    (
        "security",
        "Identities and certificates",
        &["navarch_security"],
    ),
    (
        "serverca",
        "The certificate service",
        &["navarch_security::ca::service"],
    ),
    (
        "serviceentry",
        "ServiceEntries and WorkloadEntries",
        &["navarch_registry"],
    ),
    ("spiffe", "Identities", &["navarch_security"]),
    (
        "status",
        "Status of objects, and leader election",
        &["navarch_status"],
    ),
    (
        "trustBundle",
        "Roots of trust",
        &["navarch_security::trust_bundle", "navarch::server::trust"],
    ),
    (
        "validation",
        "Validation of configuration",
        &["navarch_webhook::validation"],
    ),
    (
        "validationController",
        "Registration of webhooks",
        &["navarch_webhook::registration"],
    ),
    (
        "validationServer",
        "The webhook that validates",
        &["navarch_webhook::validation"],
    ),
    (
        "wle",
        "Registration of workloads outside Kubernetes",
        &["navarch_status::registration", "navarch::server::workloads"],
    ),
];

/// How and where to log.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct LogFlags {
    /// Log level: error, warn, info, debug or trace, optionally by module as in
    /// `info,navarch_xds=debug`; info if unset
    #[arg(long, value_name = "LEVELS", conflicts_with = "log_output_level")]
    log_level: Option<String>,
    /// Log levels in Istio's notation: none, error, warn, info or debug, optionally by scope as in
    /// `default:info,ads:debug`
    #[arg(
        long = "log_output_level",
        alias = "log-output-level",
        value_name = "LEVELS"
    )]
    log_output_level: Option<String>,
    /// Log target: stdout, stderr, or a file to append to; can be repeated
    #[arg(
        long = "log_target",
        alias = "log-target",
        value_name = "TARGET",
        default_value = "stdout"
    )]
    log_target: Vec<String>,
    /// Log JSON objects with the same members as istiod: level, time, scope, msg
    #[arg(long, alias = "log_as_json", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t, default_missing_value = "true", action = clap::ArgAction::Set)]
    log_as_json: bool,
}

impl LogFlags {
    /// Starts logging. Returns Istio's scopes without a module, and the scopes for changing levels
    /// at run time.
    pub(super) fn start(&self) -> anyhow::Result<(Vec<String>, LogScopes)> {
        let (filter, unknown) = match (&self.log_output_level, &self.log_level) {
            (Some(levels), _) => log_levels::filter(levels, discovery_targets)?,
            (None, Some(levels)) => (levels.clone(), Vec::new()),
            (None, None) => ("info".to_owned(), Vec::new()),
        };
        let read = EnvFilter::try_new(&filter)
            .with_context(|| format!("invalid log levels {filter:?}"))?;
        let log = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(self.writer()?);

        let scopes = if self.log_as_json {
            let log = log
                .event_format(<JsonLines>::default())
                .with_env_filter(read)
                .with_filter_reloading();
            let scopes = scopes(filter, log.reload_handle());
            log.try_init().map(|()| scopes)
        } else {
            let log = log.with_env_filter(read).with_filter_reloading();
            let scopes = scopes(filter, log.reload_handle());
            log.try_init().map(|()| scopes)
        };

        Ok((
            unknown,
            scopes.map_err(|error| anyhow::anyhow!("failed to initialize logging: {error}"))?,
        ))
    }

    /// Writes to all targets.
    fn writer(&self) -> anyhow::Result<BoxMakeWriter> {
        let mut writers = self.log_target.iter().map(|target| writer(target));
        let first = writers.next().unwrap_or_else(|| writer("stdout"))?;
        writers.try_fold(first, |all, next| Ok(BoxMakeWriter::new(all.and(next?))))
    }
}

/// The scopes of a log whose filter at the start is this one.
fn scopes<S: 'static>(filter: String, handle: reload::Handle<EnvFilter, S>) -> LogScopes {
    LogScopes::new(SCOPES, filter, move |filter| {
        let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
        handle.reload(filter).map_err(|error| error.to_string())
    })
}

/// Writes to one target.
fn writer(target: &str) -> anyhow::Result<BoxMakeWriter> {
    Ok(match target {
        "stdout" | "/dev/stdout" => BoxMakeWriter::new(|| EscapedLines(std::io::stdout())),
        "stderr" | "/dev/stderr" => BoxMakeWriter::new(|| EscapedLines(std::io::stderr())),
        path => {
            // Opening a FIFO would wait for its reader, and writing to it for the reader to read.
            let nonblocking = OFlag::O_NONBLOCK.bits();
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .custom_flags(nonblocking)
                .open(path);

            let opened = file.and_then(|file| match file.metadata()?.file_type().is_fifo() {
                true => Err(io::Error::other(
                    "is a FIFO, whose reader could block the process",
                )),
                false => Ok(file),
            });

            let file = opened.with_context(|| format!("--log_target: failed to open {path}"))?;
            let file = Arc::new(file);
            BoxMakeWriter::new(move || EscapedLines(Arc::clone(&file)))
        }
    })
}

/// The log targets of one of istiod's scopes.
fn discovery_targets(scope: &str) -> Vec<String> {
    let found = SCOPES.iter().find(|(name, ..)| *name == scope);
    found
        .into_iter()
        .flat_map(|(.., targets)| *targets)
        .map(|target| (*target).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use navarch_push::quarantine::excerpt;

    use super::*;

    #[test]
    fn istios_levels_become_a_filter() {
        let read = |levels: &str| log_levels::filter(levels, discovery_targets).unwrap();
        assert_eq!(read(""), ("info".to_owned(), vec![]));
        assert_eq!(read("warning"), ("warn".to_owned(), vec![]));
        assert_eq!(
            read("ads:debug, default:error,grpc:none,nobody:info"),
            (
                "error,navarch_xds=debug,h2=off,tonic=off".to_owned(),
                vec!["nobody".to_owned()]
            )
        );
        for (filter, _) in SCOPES
            .iter()
            .map(|(scope, ..)| read(&format!("{scope}:debug")))
        {
            assert!(EnvFilter::try_new(&filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn every_scope_names_modules_that_exist() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        for target in SCOPES
            .iter()
            .flat_map(|(.., targets)| *targets)
            .filter(|target| target.starts_with("navarch"))
        {
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
    fn an_excerpt_of_a_rejection_is_escaped_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let flags = LogFlags {
            log_target: vec![path.to_str().unwrap().to_owned()],
            ..LogFlags::default()
        };
        let log = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(flags.writer().unwrap())
            .finish();

        tracing::subscriber::with_default(log, || {
            tracing::warn!(error = %excerpt("no \"x\"\nat \\"), "rejected");
        });

        let line = std::fs::read_to_string(path).unwrap();
        assert!(
            line.ends_with("rejected error=\"no \\\"x\\\"\\nat \\\\\"\n"),
            "{line}"
        );
    }

    #[test]
    fn all_targets_are_written_to() {
        use std::io::Write as _;
        use tracing_subscriber::fmt::MakeWriter as _;

        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
        let flags = LogFlags {
            log_target: paths.to_vec(),
            ..LogFlags::default()
        };
        let writer = flags.writer().unwrap();
        writer.make_writer().write_all(b"line\n").unwrap();

        for path in paths {
            assert_eq!(std::fs::read_to_string(path).unwrap(), "line\n");
        }

        let flags = LogFlags {
            log_target: vec!["/nowhere/log".to_owned()],
            ..LogFlags::default()
        };
        assert!(
            flags
                .writer()
                .err()
                .unwrap()
                .to_string()
                .contains("/nowhere/log")
        );

        // Without a reader opening it would wait; with one, a write would.
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let flags = LogFlags {
            log_target: vec![fifo.to_str().unwrap().to_owned()],
            ..LogFlags::default()
        };
        assert!(flags.writer().is_err());

        let reader = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(&fifo)
            .unwrap();
        assert!(format!("{:#}", flags.writer().err().unwrap()).contains("is a FIFO"));
        drop(reader);
    }
}
