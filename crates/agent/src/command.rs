//! The command line of `pilot-agent proxy`.

use super::flags::{CommandLine, Flag, FlagError, FlagValue, UnknownFlags};
use super::settings::Settings;
use super::variables::Variables;

use navarch_base::go_text::parse_bool;

/// The command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyCommand {
    /// `sidecar`, `router`, `waypoint`, …
    pub kind: String,
    /// `--domain`.
    pub domain: String,
    /// `--meshConfig`.
    pub mesh_config: String,
    /// `--serviceCluster`.
    pub service_cluster: String,
    /// `--concurrency`.
    pub concurrency: i32,
    /// `--templateFile`.
    pub template_file: String,
    /// `--log_output_level`.
    pub log_output_level: String,
    /// All flags by name, each with its value.
    pub flags: Vec<(&'static str, String)>,
    /// Flags that are set but have no effect.
    pub without_effect: Vec<String>,
    /// All settings outside the proxy config.
    pub settings: Settings,
}

/// Why the agent cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The command line is invalid.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// The kind of proxy is unknown.
    #[error("unknown proxy type {0:?}: use sidecar, router, waypoint, ztunnel or agentgateway")]
    Kind(String),
    /// A socket name is a path.
    #[error("WORKLOAD_IDENTITY_SOCKET_FILE={0:?} must be a file name, not a path")]
    SocketPath(String),
}

/// The path of the mesh config.
const MESH_CONFIG: &str = "./etc/istio/config/mesh";
/// The kinds of proxies.
const KINDS: [&str; 5] = ["sidecar", "router", "waypoint", "ztunnel", "agentgateway"];

/// Known flags; unknown flags are ignored.
const FLAGS: &[Flag] = &[
    Flag::text(
        "domain",
        "",
        "DNS suffix of services in the namespace of the proxy; POD_NAMESPACE.svc.cluster.local if unset",
    ),
    Flag::text(
        "meshConfig",
        MESH_CONFIG,
        "File with the mesh config; Istio's defaults if it does not exist",
    ),
    Flag::text(
        "stsPort",
        "0",
        "Port on loopback where tokens are exchanged (RFC 8693: POST /token, GET /stsStatus); none if 0",
    ),
    Flag::text(
        "tokenManagerPlugin",
        "",
        "Who exchanges tokens: GoogleTokenExchange, or TokenExchange for the server at NAVARCH_STS_URL; if unset, TokenExchange with that variable, otherwise GoogleTokenExchange on Google Cloud",
    ),
    Flag::text(
        "serviceCluster",
        "istio-proxy",
        "Name of the proxy's service if it is empty in the proxy config",
    ),
    Flag::text(
        "proxyLogLevel",
        "warning",
        "Log level of Envoy, optionally by component, as in info,upstream:debug",
    ),
    Flag::text(
        "concurrency",
        "0",
        "Worker threads of Envoy; overrides the proxy config unless it is 0",
    ),
    Flag::text(
        "proxyComponentLogLevel",
        "",
        "Log levels of Envoy's components, comma-separated",
    ),
    Flag::text(
        "templateFile",
        "",
        "Template of the bootstrap in place of the built-in one, unless the proxy config names a file",
    ),
    Flag::text(
        "outlierLogPath",
        "",
        "File to which Envoy logs ejections by outlier detection",
    ),
    Flag {
        default: "true",
        ..Flag::switch(
            "profiling",
            "Serve CPU profiles under /debug/pprof of the status port, to this machine alone",
        )
    },
    Flag::text("log_target", "", "No effect: logs go to standard error"),
    Flag::text(
        "log_output_level",
        "",
        "Log levels of the agent by scope, as in default:info,dns:debug; info if unset",
    ),
    Flag::text(
        "log_stacktrace_level",
        "",
        "No effect: stack traces are not logged",
    ),
    Flag::text("log_caller", "", "No effect: callers are not logged"),
    Flag::switch("log_as_json", "Log JSON objects; Envoy does so too"),
];

/// Flags of [`FLAGS`] that are only accepted for compatibility, each with the value that matches
/// the agent's behaviour.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("log_target", "stderr"),
    ("log_stacktrace_level", "default:none"),
    ("log_caller", ""),
];

/// The flags that are set but have no effect, including unknown ones.
fn without_effect(line: &CommandLine) -> Vec<String> {
    let is_given =
        |(flag, usual): &&(&str, &str)| line.flags.get(flag).is_some_and(|value| value != usual);
    let known = WITHOUT_EFFECT
        .iter()
        .filter(is_given)
        .map(|(flag, _)| format!("--{flag}"));
    known.chain(line.unknown.iter().cloned()).collect()
}

/// All known flags by name, each with its value, which is its default if it is not set.
fn flag_values(line: &CommandLine) -> Vec<(&'static str, String)> {
    let value_of = |flag: &Flag| {
        let text = line.flags.get(flag.name);
        let text = text.map_or(flag.default, String::as_str);
        match flag.value {
            FlagValue::Text => text.to_owned(),
            FlagValue::Switch => parse_bool(text).unwrap_or_default().to_string(),
        }
    };
    let mut values: Vec<_> = FLAGS
        .iter()
        .map(|flag| (flag.name, value_of(flag)))
        .collect();
    values.sort_unstable();
    values
}

impl ProxyCommand {
    /// All known flags.
    pub const FLAGS: &[Flag] = FLAGS;

    /// Parses flags, words after `proxy`, and variables.
    ///
    /// # Errors
    /// If a flag is invalid or the kind of proxy is unknown.
    pub fn read(arguments: &[String], variables: &Variables) -> Result<Self, CommandError> {
        let line = CommandLine::read(FLAGS, UnknownFlags::PassOver, arguments)?;
        let kind = line
            .words
            .first()
            .cloned()
            .unwrap_or_else(|| "sidecar".to_owned());
        if !KINDS.contains(&kind.as_str()) {
            return Err(CommandError::Kind(kind));
        }

        let mut settings = Settings::read(variables);
        if settings.workload_identity_socket.contains('/')
            || settings.workload_identity_socket.is_empty()
        {
            return Err(CommandError::SocketPath(settings.workload_identity_socket));
        }
        let value = |flag: &str, default: &str| {
            line.flags
                .get(flag)
                .map_or(default, String::as_str)
                .to_owned()
        };

        settings.sts_port = line
            .parsed("stsPort", "port", |text| text.parse().ok())?
            .unwrap_or_default();
        settings.token_manager_plugin = value("tokenManagerPlugin", "");
        settings.log_level = value("proxyLogLevel", "warning");
        settings.component_log_level = value("proxyComponentLogLevel", "");
        settings.outlier_log_path = value("outlierLogPath", "");
        settings.profiling = line
            .parsed("profiling", "boolean", parse_bool)?
            .unwrap_or(true);
        settings.log_json = line
            .parsed("log_as_json", "boolean", parse_bool)?
            .unwrap_or_default();

        Ok(Self {
            kind,
            domain: value("domain", ""),
            mesh_config: value("meshConfig", MESH_CONFIG),
            service_cluster: value("serviceCluster", "istio-proxy"),
            concurrency: line
                .parsed("concurrency", "number", |text| text.parse().ok())?
                .unwrap_or_default(),
            template_file: value("templateFile", ""),
            log_output_level: value("log_output_level", ""),
            flags: flag_values(&line),
            without_effect: without_effect(&line),
            settings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_omitted_flag_has_the_default_in_its_help_text() {
        let read =
            |arguments: &[String]| ProxyCommand::read(arguments, &Variables::default()).unwrap();
        for flag in FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
            assert_eq!(
                read(&[format!("--{}={}", flag.name, flag.default)]),
                read(&[]),
                "--{}",
                flag.name
            );
        }
    }

    #[test]
    fn all_flags_are_listed_by_name_with_their_values() {
        let given = ["--concurrency=2", "--log_as_json", "--unknown=1"].map(str::to_owned);
        let flags = ProxyCommand::read(&given, &Variables::default())
            .unwrap()
            .flags;

        assert_eq!(flags.len(), FLAGS.len());
        assert!(flags.is_sorted());
        for (name, value) in [
            ("concurrency", "2"),
            ("log_as_json", "true"),
            ("profiling", "true"),
            ("meshConfig", MESH_CONFIG),
            ("domain", ""),
        ] {
            assert!(flags.contains(&(name, value.to_owned())), "{name}");
        }
    }

    #[test]
    fn profiles_are_served_unless_the_flag_is_false() {
        let profiling = |flags: &[&str]| {
            let flags: Vec<_> = flags.iter().map(ToString::to_string).collect();
            let command = ProxyCommand::read(&flags, &Variables::default());
            command.map(|command| command.settings.profiling)
        };
        assert_eq!(profiling(&[]), Ok(true));
        assert_eq!(profiling(&["--profiling"]), Ok(true));
        assert_eq!(profiling(&["--profiling=false"]), Ok(false));
        assert!(profiling(&["--profiling=maybe"]).is_err());
    }

    #[test]
    fn the_flags_of_the_token_service_have_an_effect() {
        let flags = ["--stsPort=15463", "--tokenManagerPlugin=TokenExchange"].map(str::to_owned);
        let command = ProxyCommand::read(&flags, &Variables::default()).unwrap();
        assert_eq!(command.without_effect, Vec::<String>::new());
        let settings = command.settings;
        assert_eq!(
            (settings.sts_port, settings.token_manager_plugin.as_str()),
            (15463, "TokenExchange")
        );
    }
}
