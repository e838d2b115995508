//! The command line of `pilot-agent proxy`.

use super::flags::{CommandLine, Flag, FlagError, FlagValue, UnknownFlags};
use super::settings::Settings;
use super::variables::Variables;

use navarch_api::go_text::parse_bool;

/// What the command line says.
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
    /// Flags that were given and have no effect.
    pub without_effect: Vec<String>,
    /// All settings that are not of the proxy config.
    pub settings: Settings,
}

/// Why the agent cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The command line cannot be read.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// There is no such kind of proxy.
    #[error("{0:?} is no kind of proxy: sidecar, router, waypoint, ztunnel and agentgateway are")]
    Kind(String),
    /// The name of a socket is a path.
    #[error("WORKLOAD_IDENTITY_SOCKET_FILE={0:?} must be a file's name, not a path")]
    SocketPath(String),
}

/// The kinds of proxies.
const KINDS: [&str; 5] = ["sidecar", "router", "waypoint", "ztunnel", "agentgateway"];

/// A flag with a text.
const fn text(name: &'static str) -> Flag {
    Flag { name, letter: None, value: FlagValue::Text }
}

/// A flag that is on or off.
const fn switch(name: &'static str) -> Flag {
    Flag { name, letter: None, value: FlagValue::Switch }
}

/// The flags that mean something here; others are passed over.
const FLAGS: &[Flag] = &[
    text("domain"),
    text("meshConfig"),
    text("stsPort"),
    text("tokenManagerPlugin"),
    text("serviceCluster"),
    text("proxyLogLevel"),
    text("concurrency"),
    text("proxyComponentLogLevel"),
    text("templateFile"),
    text("outlierLogPath"),
    switch("profiling"),
    text("log_target"),
    text("log_output_level"),
    text("log_stacktrace_level"),
    text("log_caller"),
    switch("log_as_json"),
];

/// Flags of [`FLAGS`] that are taken for pilot-agent's sake, each with the value that says what happens anyway.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("tokenManagerPlugin", ""),
    ("profiling", "false"),
    ("log_target", "stderr"),
    ("log_stacktrace_level", "default:none"),
    ("log_caller", ""),
];

/// The flags that were given and have no effect, unknown ones with them.
fn without_effect(line: &CommandLine) -> Vec<String> {
    let is_given = |(flag, usual): &&(&str, &str)| line.flags.get(flag).is_some_and(|value| value != usual);
    let known = WITHOUT_EFFECT.iter().filter(is_given).map(|(flag, _)| format!("--{flag}"));
    known.chain(line.unknown.iter().cloned()).collect()
}

impl ProxyCommand {
    /// All flags that are known.
    pub const FLAGS: &[Flag] = FLAGS;

    /// Reads flags, words after `proxy`, and variables.
    ///
    /// # Errors
    /// When a flag cannot be read or there is no such kind of proxy.
    pub fn read(arguments: &[String], variables: &Variables) -> Result<Self, CommandError> {
        let line = CommandLine::read(FLAGS, UnknownFlags::PassOver, arguments)?;
        let kind = line.words.first().cloned().unwrap_or_else(|| "sidecar".to_owned());
        if !KINDS.contains(&kind.as_str()) {
            return Err(CommandError::Kind(kind));
        }
        let mut settings = Settings::read(variables);
        if settings.workload_identity_socket.contains('/') || settings.workload_identity_socket.is_empty() {
            return Err(CommandError::SocketPath(settings.workload_identity_socket));
        }
        let value = |flag: &str, default: &str| line.flags.get(flag).map_or(default, String::as_str).to_owned();
        settings.sts_port = line.parsed("stsPort", "port", |text| text.parse().ok())?.unwrap_or_default();
        settings.log_level = value("proxyLogLevel", "warning");
        settings.component_log_level = value("proxyComponentLogLevel", "");
        settings.outlier_log_path = value("outlierLogPath", "");
        settings.log_json = line.parsed("log_as_json", "truth value", parse_bool)?.unwrap_or_default();
        Ok(Self {
            kind,
            domain: value("domain", ""),
            mesh_config: value("meshConfig", "./etc/istio/config/mesh"),
            service_cluster: value("serviceCluster", "istio-proxy"),
            concurrency: line.parsed("concurrency", "number", |text| text.parse().ok())?.unwrap_or_default(),
            template_file: value("templateFile", ""),
            log_output_level: value("log_output_level", ""),
            without_effect: without_effect(&line),
            settings,
        })
    }
}
