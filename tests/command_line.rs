//! The command line of the real program: help, flags that have no effect, and ending before anything was read.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail loudly and spawn"
)]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use navarch_testkit::client;
use navarch_testkit::navarch::Navarch;
use navarch_testkit::ports;
use navarch_testkit::wait::until;

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_navarch");

/// Runs the program in an empty folder, with nothing in its environment; it must end by itself.
fn run(program: &Path, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    // `timeout` ends what was started all the same, which then counts as a failure.
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args(arguments).env_clear().current_dir(folder.path()).stdin(Stdio::null());
    command.output().unwrap()
}

/// Asks for help; it must be all that happens.
fn helps(program: &Path, arguments: &[&str], usage: &str) {
    let output = run(program, arguments);
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{arguments:?}: {:?} {out} {error}", output.status);
    assert!(out.contains("Usage:") && out.contains(usage), "{arguments:?}: {out}");
    assert_eq!(error, "", "{arguments:?}");
}

#[test]
fn every_command_prints_its_help_and_starts_nothing() {
    let navarch = Path::new(PROGRAM);
    let help = String::from_utf8(run(navarch, &["--help"]).stdout).unwrap();
    let of_clap = ["discovery", "inject", "ca", "crds", "version"];
    for command in of_clap {
        helps(navarch, &[command, "--help"], &format!("navarch {command}"));
        helps(navarch, &[command, "-h"], &format!("navarch {command}"));
    }
    // There are no commands but these.
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| line.starts_with(' '));
    let listed: Vec<_> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(listed.len(), of_clap.len() + 2, "agent and help are the others: {listed:?}");

    helps(navarch, &["ca", "rotate", "--help"], "navarch ca rotate");
    helps(navarch, &["agent", "--help"], "navarch agent");
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| {
        let path = folder.path().join(name);
        symlink(PROGRAM, &path).unwrap();
        path
    };
    let pilot_agent = named("pilot-agent");
    helps(&pilot_agent, &["--help"], "navarch agent");
    for command in ["proxy", "request", "wait", "istio-iptables", "istio-clean-iptables", "version"] {
        assert!(String::from_utf8(run(navarch, &["agent", "--help"]).stdout).unwrap().contains(command));
        for flags in [&["--help"][..], &["-h"], &["sidecar", "--domain", "d", "--help"]] {
            helps(&pilot_agent, &[&[command], flags].concat(), &format!("navarch agent {command}"));
            helps(navarch, &[&["agent", command], flags].concat(), &format!("navarch agent {command}"));
        }
    }
    for command in ["istio-iptables", "istio-clean-iptables"] {
        helps(&named(command), &["--help"], &format!("navarch agent {command}"));
    }
}

/// Starts the control plane on an empty folder of configuration.
async fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Navarch {
    let folder = tempfile::tempdir().unwrap();
    let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
    let address = || std::net::SocketAddr::from(([127, 0, 0, 1], ports::free().unwrap()));
    let program = Path::new(PROGRAM);
    Navarch::start_at(program, folder.path(), &arguments, environment, address(), address(), address()).await.unwrap()
}

/// The lines of the log that warn.
fn warnings(navarch: &Navarch) -> Vec<String> {
    navarch.output().lines().filter(|line| line.contains(" WARN ")).map(str::to_owned).collect()
}

#[tokio::test]
async fn it_starts_with_the_arguments_of_istios_chart() {
    let arguments =
        ["--log_output_level=default:info", "--domain", "cluster.local", "--keepaliveMaxServerConnectionAge", "30m"];
    let navarch = start(&arguments, &[("PILOT_ENABLE_ANALYSIS", "false"), ("EXTERNAL_ISTIOD", "false")]).await;
    let log = navarch.output();
    assert!(log.contains("started"), "{log}");
    assert!(!log.contains("no effect"), "{log}");
}

#[tokio::test]
async fn what_has_no_effect_is_said_once_by_name() {
    let arguments = [
        "--log_output_level=default:info,nobody:debug",
        "--log_stacktrace_level=default:none",
        "--log_caller=",
        "--log_target=stdout",
        "--log_as_json=false",
        "--vklog=3",
        "--ctrlz_port=9876",
        "--ctrlz_address=localhost",
        "--kubernetesApiQPS=80.0",
        "--kubernetesApiBurst=160",
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_128_CBC_SHA",
        "--tls-min-version=1.2",
        "--clusterAliases=a=b",
        "--clusterRegistriesNamespace=istio-system",
        "--cniNamespace=kube-system",
        "--profile=true",
        "--from-a-later-release",
        "value",
    ];
    let navarch = start(&arguments, &[("PILOT_ENABLE_SENDING_HBONE", "true"), ("MCS_API_GROUP", "g")]).await;
    let warnings = warnings(&navarch);
    let line = |words: &str| {
        let lines: Vec<_> = warnings.iter().filter(|line| line.contains(words)).collect();
        assert_eq!(lines.len(), 1, "{words}: {warnings:#?}");
        lines[0].clone()
    };
    assert!(line("flags that are not known").contains("names=\"--from-a-later-release\""));
    let flags = line("flags of pilot-discovery that have no effect");
    for flag in
        ["log_stacktrace_level", "log_caller", "vklog", "ctrlz_port", "clusterAliases", "cniNamespace", "profile"]
    {
        assert!(flags.contains(&format!("--{flag}")), "{flag}: {flags}");
    }
    for obeyed in ["log_target", "log_as_json", "kubernetesApiQPS", "tls-min-version"] {
        assert!(!flags.contains(obeyed), "{obeyed}: {flags}");
    }
    assert!(line("scopes that do not exist").contains("nobody"));
    assert!(line("never spoken").contains("TLS_RSA_WITH_AES_128_CBC_SHA"));
    let variables = line("environment variables of istiod that have no effect");
    assert!(variables.contains("names=\"MCS_API_GROUP, PILOT_ENABLE_SENDING_HBONE\""), "{variables}");
}

#[tokio::test]
async fn before_the_first_reading_nothing_is_answered_and_sigterm_is_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let [grpc, secure, https, http, monitoring] = [(); 5].map(|()| format!("127.0.0.1:{}", ports::free().unwrap()));
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let mut process = Command::new(PROGRAM);
    process.arg("discovery").arg(format!("--config-dir={}", missing.display()));
    for (flag, address) in
        [("grpc", &grpc), ("secure-grpc", &secure), ("https", &https), ("http", &http), ("monitoring", &monitoring)]
    {
        process.arg(format!("--{flag}-addr={address}"));
    }
    let mut process = process.env_clear().stdout(log).stdin(Stdio::null()).spawn().unwrap();
    let http = http.parse().unwrap();
    let get = async |path: &str| client::get(http, "localhost", path, &[]).await.ok();
    until("readiness is told", async || get("/ready").await.is_some()).await;
    let said = get("/ready").await.unwrap();
    assert_eq!(said.status, 503, "{}", said.body);
    for reason in ["ports: ", "missing"] {
        assert!(said.body.contains(reason), "{}", said.body);
    }
    // Empty pages would be read as an empty mesh.
    for page in ["/debug/registryz", "/debug/ca", "/debug/config_dump?proxyID=a.b"] {
        let said = get(page).await.unwrap();
        assert!(said.status == 503 && said.body.contains("not been read"), "{page}: {} {}", said.status, said.body);
    }
    assert_eq!(get("/debug").await.unwrap().status, 200);
    // No certificate was signed, and no root made.
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(!log.contains("certificates are signed"), "{log}");
    assert!(Command::new("kill").arg(process.id().to_string()).status().unwrap().success());
    let ended = tokio::task::spawn_blocking(move || process.wait().unwrap());
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), ended).await;
    assert!(ended.unwrap().unwrap().success());
}
