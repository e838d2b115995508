//! The command line of the real program: help, flags without effect, and what it does before it is
//! ready.

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

use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::DiscoveryRequest;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_testkit::client;
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::wait::until;
use tokio_stream::wrappers::ReceiverStream;

mod migrate;
mod preflight;
mod scope;
mod unready;

const PROGRAM: &str = env!("CARGO_BIN_EXE_navarch");

/// Runs the program in an empty directory with an empty environment; it must exit by itself.
fn run(program: &Path, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    // `timeout` stops a program that does not exit, and that counts as a failure.
    let mut command = Command::new("timeout");
    command
        .arg("60")
        .arg(program)
        .args(arguments)
        .env_clear()
        .current_dir(folder.path())
        .stdin(Stdio::null());
    command.output().unwrap()
}

/// Runs a command with `--help`, which must have no other effect.
fn helps(program: &Path, arguments: &[&str], usage: &str) {
    let output = run(program, arguments);
    let out = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {:?} {out} {error}",
        output.status
    );
    assert!(
        out.contains("Usage:") && out.contains(usage),
        "{arguments:?}: {out}"
    );
    assert_eq!(error, "", "{arguments:?}");
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
fn every_command_prints_its_help_and_starts_nothing() {
    let navarch = Path::new(PROGRAM);
    let help = String::from_utf8(run(navarch, &["--help"]).stdout).unwrap();
    let of_clap = [
        "discovery",
        "inject",
        "ca",
        "request",
        "analyze",
        "preflight",
        "shadow",
        "migrate",
        "scope",
        "plan",
        "applied",
        "rollout",
        "quarantine",
        "proxy",
        "why",
        "doctor",
        "replay",
        "support-bundle",
        "dashboard",
        "completions",
        "man",
        "crds",
        "version",
    ];

    for command in of_clap {
        helps(navarch, &[command, "--help"], &format!("navarch {command}"));
        helps(navarch, &[command, "-h"], &format!("navarch {command}"));
    }

    // The help lists exactly these commands.
    let listed = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with(' '));
    let listed: Vec<_> = listed
        .filter_map(|line| line.split_whitespace().next())
        .collect();

    assert_eq!(
        listed.len(),
        of_clap.len() + 2,
        "the help lists other commands than agent and help: {listed:?}"
    );

    for command in [
        "analyze",
        "preflight",
        "shadow",
        "migrate",
        "scope",
        "plan",
        "applied",
        "rollout",
        "proxy",
        "why",
        "doctor",
        "replay",
        "support-bundle",
    ] {
        let help = String::from_utf8(run(navarch, &[command, "--help"]).stdout).unwrap();
        assert!(
            help.to_lowercase().contains("exit codes"),
            "navarch {command} --help does not say its exit codes:\n{help}"
        );
    }

    helps(navarch, &["ca", "rotate", "--help"], "navarch ca rotate");
    for command in ["plan", "apply", "status", "undo"] {
        let usage = format!("navarch migrate {command}");
        helps(navarch, &["migrate", command, "--help"], &usage);
    }
    for command in ["suggest", "diff"] {
        let usage = format!("navarch scope {command}");
        helps(navarch, &["scope", command, "--help"], &usage);
    }
    helps(navarch, &["agent", "--help"], "pilot-agent <COMMAND>");
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| {
        let path = folder.path().join(name);
        symlink(PROGRAM, &path).unwrap();
        path
    };
    let pilot_agent = named("pilot-agent");
    helps(&pilot_agent, &["--help"], "pilot-agent <COMMAND>");

    for command in [
        "proxy",
        "request",
        "wait",
        "istio-iptables",
        "istio-clean-iptables",
        "version",
    ] {
        assert!(
            String::from_utf8(run(navarch, &["agent", "--help"]).stdout)
                .unwrap()
                .contains(command)
        );
        for flags in [
            &["--help"][..],
            &["-h"],
            &["sidecar", "--domain", "d", "--help"],
        ] {
            helps(
                &pilot_agent,
                &[&[command], flags].concat(),
                &format!("pilot-agent {command}"),
            );
            helps(
                navarch,
                &[&["agent", command], flags].concat(),
                &format!("pilot-agent {command}"),
            );
        }
    }

    for command in ["istio-iptables", "istio-clean-iptables"] {
        helps(
            &named(command),
            &["--help"],
            &format!("pilot-agent {command}"),
        );
    }
}

/// Starts the control plane with an empty directory of configuration.
async fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Navarch {
    // The directory is never deleted: deleting a watched directory would log a warning.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-configuration");
    std::fs::create_dir_all(&folder).unwrap();
    let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
    Navarch::start_at(
        Path::new(PROGRAM),
        &folder,
        &arguments,
        environment,
        Addresses::ANY,
    )
    .await
    .unwrap()
}

/// The warnings in the log.
fn warnings(navarch: &Navarch) -> Vec<String> {
    navarch
        .output()
        .lines()
        .filter(|line| line.contains(" WARN "))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn it_starts_with_the_arguments_of_istios_chart() {
    let arguments = [
        "--log_output_level=default:info",
        "--domain",
        "cluster.local",
        "--keepaliveMaxServerConnectionAge",
        "30m",
    ];

    let navarch = start(
        &arguments,
        &[
            ("PILOT_ENABLE_ANALYSIS", "false"),
            ("EXTERNAL_ISTIOD", "false"),
        ],
    )
    .await;

    // One line reports the start and the addresses. It may be written after the first successful
    // readiness probe.
    until("its start is in the log", async || {
        navarch.output().contains("started")
    })
    .await;
    let log = navarch.output();
    assert!(!log.contains("no effect"), "{log}");

    let started: Vec<_> = log
        .lines()
        .filter(|line| line.contains("started"))
        .collect();
    let [line] = started[..] else { panic!("{log}") };

    for field in [
        "version=",
        "revision=\"default\"",
        "cluster=\"Kubernetes\"",
        "namespace=\"istio-system\"",
        "http=127.0.0.1:",
    ] {
        assert!(line.contains(field), "{field}: {line}");
    }

    // A healthy start logs no warnings.
    assert_eq!(
        warnings(&navarch)
            .iter()
            .filter(|line| !line.contains("root CA is in memory only"))
            .count(),
        0,
        "{log}"
    );
}

/// A page of the HTTP port.
async fn page(navarch: &Navarch, path: &str) -> (u16, String) {
    let reply = client::get(navarch.http, "localhost", path, &[])
        .await
        .unwrap();
    (reply.status.as_u16(), reply.body)
}

#[tokio::test]
async fn without_separate_ports_xds_and_metrics_are_served_on_the_http_port() {
    let navarch = start(&["--grpc-addr=", "--monitoring-addr="], &[]).await;
    assert_eq!(page(&navarch, "/ready").await.0, 200);
    assert!(page(&navarch, "/metrics").await.1.contains("# TYPE"));
    assert_eq!(page(&navarch, "/version").await.0, 200);
    let mut ads = AggregatedDiscoveryServiceClient::connect(format!("http://{}", navarch.http))
        .await
        .unwrap();
    let node = Node {
        id: "sidecar~10.0.0.1~a.b~b.svc.cluster.local".to_owned(),
        ..Node::default()
    };

    let type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned();
    let ask = DiscoveryRequest {
        node: Some(node),
        type_url: type_url.clone(),
        ..DiscoveryRequest::default()
    };

    // The stream stays open until the response arrives.
    let (asks, receiver) = tokio::sync::mpsc::channel(1);
    asks.send(ask).await.unwrap();
    let mut answers = ads
        .stream_aggregated_resources(ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().type_url, type_url);

    // The same port also serves HTTP/1.
    assert!(page(&navarch, "/debug/connections").await.1.contains("a.b"));
}

#[tokio::test]
async fn debug_pages_can_be_switched_off() {
    let navarch = start(&[], &[("ENABLE_DEBUG_ON_HTTP", "false")]).await;
    assert_eq!(page(&navarch, "/ready").await.0, 200);
    for path in ["/debug", "/debug/syncz", "/debug/config_dump?proxyID=a.b"] {
        assert_eq!(page(&navarch, path).await.0, 404, "{path}");
    }
    let monitoring = client::get(navarch.monitoring, "localhost", "/debug/syncz", &[])
        .await
        .unwrap();
    assert_eq!(
        monitoring.status, 404,
        "the metrics port has no debug pages either"
    );
}

#[tokio::test]
async fn request_queries_the_local_control_plane() {
    let navarch = start(&[], &[]).await;
    let port = format!("--port={}", navarch.monitoring.port());
    let ask = |words: &[&str]| {
        let words = words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let port = port.clone();
        tokio::task::spawn_blocking(move || {
            let words: Vec<&str> = words
                .iter()
                .map(String::as_str)
                .chain([port.as_str()])
                .collect();
            run(Path::new(PROGRAM), &[&["request"], &words[..]].concat())
        })
    };

    let found = ask(&["GET", "/debug/list"]).await.unwrap();
    assert!(found.status.success() && String::from_utf8(found.stdout).unwrap().contains("syncz"));
    let missing = ask(&["get", "debug/nothing"]).await.unwrap();
    assert!(
        !missing.status.success() && String::from_utf8(missing.stderr).unwrap().contains("404")
    );
}

#[tokio::test]
async fn version_has_the_flags_and_fields_of_istioctl() {
    let navarch = start(&[], &[]).await;
    let address = format!("--address={}", navarch.monitoring);
    let ask = async |flags: &[&str]| {
        let words: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let output = tokio::task::spawn_blocking(move || {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            run(Path::new(PROGRAM), &[&["version"], &words[..]].concat())
        });
        let output = output.await.unwrap();
        assert!(output.status.success(), "{flags:?}: {output:?}");
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };

    let [alone, errors] = ask(&["-o", "json", "--remote=false"]).await;
    assert_eq!(errors, "");
    let alone: serde_json::Value = serde_json::from_str(&alone).unwrap();
    let version = alone["clientVersion"]["version"].as_str().unwrap();
    assert!(alone.get("meshVersion").is_none(), "{alone}");

    let [text, errors] = ask(&["--short", &address]).await;
    assert_eq!(
        text,
        format!(
            "client version: {version}\ncontrol plane version: {version}\ndata plane version: none\n"
        )
    );
    assert_eq!(errors, "");

    let [all, _] = ask(&["-o", "json", "--remote", &address]).await;
    let all: serde_json::Value = serde_json::from_str(&all).unwrap();
    assert_eq!(all["meshVersion"][0]["Info"]["version"], version);
    assert_eq!(all["meshVersion"][0]["Component"], "pilot");
    assert_eq!(all["dataPlaneVersion"], serde_json::json!([]));

    let [yaml, _] = ask(&["--output", "yaml", &address]).await;
    assert!(
        yaml.contains("clientVersion:") && yaml.contains("Component: pilot"),
        "{yaml}"
    );

    let [text, errors] = ask(&["-s=false", "--address=127.0.0.1:1"]).await;
    assert!(
        text.starts_with("client version: version.BuildInfo{Version:") && text.lines().count() == 1,
        "{text}"
    );
    assert!(errors.contains("127.0.0.1:1 does not respond"), "{errors}");
}

#[test]
fn without_a_ca_the_certificate_must_come_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("--config-dir={}", folder.path().display());
    let addresses = ["grpc", "secure-grpc", "https", "http", "monitoring"]
        .map(|name| format!("--{name}-addr=127.0.0.1:0"));
    let mut command = Command::new("timeout");
    command
        .args(["60", PROGRAM, "discovery", &config])
        .args(addresses);

    command
        .env_clear()
        .env("ENABLE_CA_SERVER", "false")
        .current_dir(folder.path())
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success()
            && stderr.contains("ENABLE_CA_SERVER=false")
            && stderr.contains("--tlsCertFile"),
        "{stderr}"
    );
}

#[test]
fn a_kubeconfig_is_read_if_it_exists() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    let broken = folder.path().join("broken");
    std::fs::write(&empty, "").unwrap();
    std::fs::write(&broken, "no kubeconfig").unwrap();
    let start = |files: &str| {
        let mut command = Command::new("timeout");
        let addresses = ["grpc", "secure-grpc", "https", "http", "monitoring"]
            .map(|name| format!("--{name}-addr="));
        command.args(["60", PROGRAM, "discovery"]).args(addresses);
        command
            .env_clear()
            .env("KUBECONFIG", files)
            .current_dir(folder.path())
            .stdin(Stdio::null());
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };

    let empty = empty.display().to_string();
    let broken = broken.display().to_string();

    // Istio's chart always sets a kubeconfig path, which usually does not exist.
    assert!(start("/nowhere").contains("not running in a cluster"));
    assert!(start(&empty).contains("not running in a cluster"));
    assert!(start(&format!("/nowhere:{empty}:{broken}")).contains(&broken));
}

#[tokio::test]
async fn ignored_flags_and_variables_are_logged_once() {
    let arguments = [
        "--log_output_level=default:info,nobody:debug",
        "--log_stacktrace_level=default:none",
        "--log_caller=",
        "--log_target=stdout",
        "--log_as_json=false",
        "--vklog=3",
        "--ctrlz_port=0",
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

    let navarch = start(
        &arguments,
        &[
            ("PILOT_ENABLE_AGENTGATEWAY", "true"),
            ("ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS", "true"),
            ("PILOT_ENABLE_XDS_CACHE", "false"),
            ("PILOT_PUSH_THROTTLE", "10"),
            ("PILOT_XDS_CACHE_SIZE", "100"),
            ("PILOT_XDS_CACHE_STATS", "true"),
        ],
    )
    .await;
    let warnings = warnings(&navarch);
    let line = |words: &str| {
        let lines: Vec<_> = warnings
            .iter()
            .filter(|line| line.contains(words))
            .collect();
        assert_eq!(lines.len(), 1, "{words}: {warnings:#?}");
        lines[0].clone()
    };

    assert!(line("unknown flags").contains("names=\"--from-a-later-release\""));
    let flags = line("flags of pilot-discovery that have no effect");
    for flag in ["log_stacktrace_level", "log_caller", "vklog"] {
        assert!(flags.contains(&format!("--{flag}")), "{flag}: {flags}");
    }

    for obeyed in [
        "log_target",
        "log_as_json",
        "kubernetesApiQPS",
        "tls-min-version",
        "cniNamespace",
        "ctrlz_port",
        "profile",
        "clusterAliases",
    ] {
        assert!(!flags.contains(obeyed), "{obeyed}: {flags}");
    }

    assert!(line("unknown scopes in --log_output_level").contains("nobody"));
    assert!(line("ignored insecure suites").contains("TLS_RSA_WITH_AES_128_CBC_SHA"));
    let variables = line("environment variables of istiod that have no effect");
    assert!(
        variables.contains(
            "names=\"ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS, PILOT_ENABLE_AGENTGATEWAY\""
        ),
        "{variables}"
    );

    // Their warnings say why.
    let caches = line("no cache to switch off");
    assert!(caches.contains("names=\"PILOT_ENABLE_XDS_CACHE, PILOT_XDS_CACHE_SIZE\""));
    assert!(line("PILOT_PUSH_THROTTLE").contains("no concurrent pushes"));
}
