//! A client and servers of grpc-go with xDS, each with an agent: requests succeed, and
//! VirtualServices (splits, matches of paths, faults), mutual TLS and AuthorizationPolicies take
//! effect.
//!
//! The programs are published by grpc-go; `scripts/grpc` builds them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use navarch_testkit::process::Process;
use navarch_testkit::skip::skip;
use navarch_testkit::wait::{Verbatim, until_some};
use navarch_testkit::{envoy, ports};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::server::Server;

/// Timeout of each step on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Requests per measured split.
const TRIES: usize = 40;

/// The addresses of the pods.
const CLIENT: &str = "127.0.40.1";
const V1: &str = "127.0.40.2";
const V2: &str = "127.0.40.3";

/// The directory of the programs; `None` if they are not built.
fn programs() -> Option<PathBuf> {
    let folder = envoy::program().parent()?.parent()?.join("grpc");
    ["client", "server"]
        .iter()
        .all(|name| folder.join(name).exists())
        .then_some(folder)
}

/// A service of two pods, one per version, and further objects.
fn mesh(ports: [u16; 2], about: &str) -> String {
    let pod = |name: &str, app: &str, version: &str, ip: &str, port: u16| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{app: {app}, version: {version}}}}}\n\
             spec: {{serviceAccountName: {app}, containers: [{{name: app, ports: [{{name: grpc, containerPort: {port}}}]}}]}}\n\
             status: {{phase: Running, podIP: {ip}, conditions: [{{type: Ready, status: 'True'}}]}}\n---\n"
        )
    };

    let slice = |name: &str, ip: &str, port: u16| {
        format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: echo}}}}\n\
             addressType: IPv4\nports: [{{name: grpc, port: {port}, protocol: TCP}}]\n\
             endpoints: [{{addresses: [{ip}], conditions: {{ready: true}}, \
             targetRef: {{kind: Pod, name: {name}, namespace: shop}}}}]\n---\n"
        )
    };

    let [v1, v2] = ports;
    [
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n".to_owned(),
        pod("client", "client", "v1", CLIENT, 1),
        pod("echo-v1", "echo", "v1", V1, v1),
        pod("echo-v2", "echo", "v2", V2, v2),
        "apiVersion: v1\nkind: Service\nmetadata: {name: echo, namespace: shop}\n\
         spec: {clusterIP: 10.96.7.7, selector: {app: echo}, ports: [{name: grpc, port: 7070, targetPort: grpc}]}\n---\n"
            .to_owned(),
        slice("echo-v1", V1, v1),
        slice("echo-v2", V2, v2),
        about.to_owned(),
    ]

    .concat()
}

/// The versions as subsets, with or without mutual TLS.
fn subsets(mtls: bool) -> String {
    let policy = if mtls {
        "trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}, "
    } else {
        ""
    };
    format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: echo, namespace: shop}}\n\
         spec: {{host: echo, {policy}subsets: [{{name: v1, labels: {{version: v1}}}}, {{name: v2, labels: {{version: v2}}}}]}}\n---\n"
    )
}

/// A VirtualService with these rules.
fn virtual_service(rules: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: echo, namespace: shop}}\n\
         spec: {{hosts: [echo.shop.svc.cluster.local], http: [{rules}]}}\n---\n"
    )
}

/// A VirtualService with this weight for the first version, and the rest for the second.
fn split(first: u32) -> String {
    virtual_service(&format!(
        "{{route: [{{destination: {{host: echo, subset: v1}}, weight: {first}}}, \
         {{destination: {{host: echo, subset: v2}}, weight: {}}}]}}",
        100 - first
    ))
}

/// A VirtualService that sends paths with this prefix to the second version, others to the first.
fn by_path(prefix: &str) -> String {
    virtual_service(&format!(
        "{{match: [{{uri: {{prefix: {prefix}}}}}], route: [{{destination: {{host: echo, subset: v2}}}}]}}, \
         {{route: [{{destination: {{host: echo, subset: v1}}}}]}}"
    ))
}

/// A VirtualService that aborts all requests.
fn abort() -> String {
    virtual_service(
        "{fault: {abort: {httpStatus: 503, percentage: {value: 100}}}, \
         route: [{destination: {host: echo, subset: v1}}]}",
    )
}

/// A security policy of the namespace.
fn security(kind: &str, spec: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: {kind}\nmetadata: {{name: echo, namespace: shop}}\nspec: {spec}\n---\n"
    )
}

/// An agent without an Envoy, as the gRPC templates inject it.
struct Agent {
    process: Child,
    folder: TempDir,
}

impl Agent {
    /// Starts one for a pod of `shop`, and waits for its bootstrap and certificates.
    async fn start(server: &Server, pod: &str, account: &str, ip: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let write = |name: &str, text: &str| -> Result<()> {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().context("a file has a parent directory")?)?;
            Ok(std::fs::write(path, text)?)
        };
        let subject = format!("system:serviceaccount:shop:{account}");

        write("var/run/secrets/istio/root-cert.pem", &server.root())?;
        write(
            "var/run/secrets/tokens/istio-token",
            &server.issuer.token(json!({ "sub": subject })),
        )?;
        std::fs::create_dir_all(path("data"))?;
        let config = json!({
            "discoveryAddress": server.secure.to_string(), "configPath": path("xds"), "statusPort": ports::free()?,
        });

        let log = std::fs::File::create(path("log"))?;
        let process = Command::new(env!("CARGO_BIN_EXE_navarch"))
            .args(["agent", "proxy", "sidecar"])
            .current_dir(folder.path())
            .env("PROXY_CONFIG", config.to_string())
            .env("POD_NAME", pod)
            .env("POD_NAMESPACE", "shop")
            .env("SERVICE_ACCOUNT", account)
            .env("INSTANCE_IP", ip)
            .env("ISTIOD_SAN", "istiod.istio-system.svc")
            .env("ISTIO_META_CLUSTER_ID", "Kubernetes")
            .env("ISTIO_META_GENERATOR", "grpc")
            .env("ISTIO_META_DNS_CAPTURE", "false")
            .env("DISABLE_ENVOY", "true")
            .env("OUTPUT_CERTS", path("data"))
            .env("GRPC_XDS_BOOTSTRAP", path("grpc-bootstrap.json"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;

        let mut agent = Self { process, folder };
        let end = Instant::now() + TIMEOUT;
        while ["grpc-bootstrap.json", "data/cert-chain.pem", "xds/XDS"]
            .iter()
            .any(|name| !agent.path(name).exists())
        {
            if let Some(status) = agent.process.try_wait()? {
                bail!("the agent ended with {status}:\n{}", agent.log());
            }
            ensure!(
                Instant::now() < end,
                "no bootstrap and certificates:\n{}",
                agent.log()
            );
            sleep(Duration::from_millis(20)).await;
        }

        Ok(agent)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// A program with the agent's bootstrap.
    fn program(&self, program: &Path, args: &[String]) -> (PathBuf, Vec<String>) {
        let bootstrap = format!(
            "GRPC_XDS_BOOTSTRAP={}",
            self.path("grpc-bootstrap.json").display()
        );
        let all = [bootstrap, program.display().to_string()]
            .into_iter()
            .chain(args.iter().cloned());
        (PathBuf::from("/usr/bin/env"), all.collect())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Fails only if it has exited already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A server of grpc-go with its agent.
struct Echo {
    process: Process,
    agent: Agent,
}

impl Echo {
    async fn start(
        server: &Server,
        programs: &Path,
        pod: &str,
        ip: &str,
        port: u16,
    ) -> Result<Self> {
        let agent = Agent::start(server, pod, "echo", ip).await?;
        let args = ["-xds_creds".to_owned(), format!("-port={port}")];
        let (program, args) = agent.program(&programs.join("server"), &args);
        let process = Process::start("server", &program, &args, &agent.path("server.log"))?;
        Ok(Self { process, agent })
    }

    /// The number of received requests.
    fn requests(&self) -> usize {
        self.process.output().matches("Received: ").count()
    }
}

/// The client's output for one request. With `secure` it uses xDS credentials.
async fn call(agent: &Agent, programs: &Path, secure: bool) -> Result<String, String> {
    let args = [
        "-target=xds:///echo.shop.svc.cluster.local:7070".to_owned(),
        format!("-xds_creds={secure}"),
    ];
    let (program, args) = agent.program(&programs.join("client"), &args);
    let output = tokio::process::Command::new(program)
        .args(args)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(TIMEOUT, output)
        .await
        .map_err(|_| "the client does not end".to_owned())?;
    let output = output.map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();

    if output.status.success() {
        Ok(stderr)
    } else {
        Err(stderr)
    }
}

/// Repeats calls until the outcome is as wanted: a change takes a while to reach all programs.
async fn until(
    agent: &Agent,
    server: &Echo,
    programs: &Path,
    secure: bool,
    what: &str,
    is_so: impl Fn(&Result<String, String>) -> bool,
) {
    until_some(what, async || {
        let outcome = call(agent, programs, secure).await;
        if is_so(&outcome) {
            Ok(())
        } else {
            Err((
                outcome,
                Verbatim([agent.log(), server.process.output(), server.agent.log()].join("\n")),
            ))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn grpc_applications_obey_routes_splits_and_policies() -> Result<()> {
    let Some(programs) = programs() else {
        skip("no programs of grpc-go: run `make tools` (scripts/grpc)");
        return Ok(());
    };

    let ports = [ports::free()?, ports::free()?];
    let server = Server::with_mesh(&mesh(ports, &subsets(false))).await?;
    let agent = Agent::start(&server, "client", "client", CLIENT).await?;
    let v1 = Echo::start(&server, &programs, "echo-v1", V1, ports[0]).await?;
    let v2 = Echo::start(&server, &programs, "echo-v2", V2, ports[1]).await?;
    let counts = || (v1.requests(), v2.requests());

    // Both servers get requests.
    until(&agent, &v1, &programs, true, "requests flow", Result::is_ok).await;
    until(
        &agent,
        &v1,
        &programs,
        true,
        "both versions get requests",
        |outcome| outcome.is_ok() && v1.requests() > 0 && v2.requests() > 0,
    )
    .await;

    // A VirtualService sends all requests to one version, then splits them.
    let of_v1 = |weight: u32| [subsets(false), split(weight)].concat();
    server.write_mesh(&mesh(ports, &of_v1(100)))?;
    wait_until_all_reach(&agent, &programs, &v1, &v2).await?;
    server.write_mesh(&mesh(ports, &of_v1(0)))?;
    wait_until_all_reach(&agent, &programs, &v2, &v1).await?;
    server.write_mesh(&mesh(ports, &of_v1(50)))?;
    let (first, _) = counts();

    until(
        &agent,
        &v1,
        &programs,
        true,
        "the split takes effect",
        |outcome| outcome.is_ok() && v1.requests() > first,
    )
    .await;
    let before = counts();

    for _ in 0..TRIES {
        call(&agent, &programs, true)
            .await
            .map_err(anyhow::Error::msg)?;
    }

    let after = counts();
    let shares = (after.0 - before.0, after.1 - before.1);

    // At 50 %, fewer than four of forty occur once in ten million runs.
    ensure!(
        shares.0 + shares.1 == TRIES && shares.0 >= 4 && shares.1 >= 4,
        "{shares:?}"
    );

    // Requests follow a match of their path, and a fault ends them.
    let with = |routes: &str| mesh(ports, &[&*subsets(false), routes].concat());
    server.write_mesh(&with(&by_path("/helloworld.Greeter/")))?;
    wait_until_all_reach(&agent, &programs, &v2, &v1).await?;
    server.write_mesh(&with(&by_path("/another.Service/")))?;
    wait_until_all_reach(&agent, &programs, &v1, &v2).await?;
    server.write_mesh(&with(&abort()))?;
    until(
        &agent,
        &v1,
        &programs,
        true,
        "requests are aborted",
        |outcome| {
            outcome
                .as_ref()
                .is_err_and(|error| error.contains("terminated due to fault injection"))
        },
    )
    .await;

    // STRICT accepts mutual TLS only.
    let strict = security("PeerAuthentication", "{mtls: {mode: STRICT}}");
    server.write_mesh(&mesh(
        ports,
        &[subsets(true), split(50), strict.clone()].concat(),
    ))?;
    until(
        &agent,
        &v1,
        &programs,
        true,
        "mutual TLS is used",
        Result::is_ok,
    )
    .await;
    until(
        &agent,
        &v1,
        &programs,
        false,
        "plain text is rejected",
        Result::is_err,
    )
    .await;
    until(
        &agent,
        &v1,
        &programs,
        true,
        "mutual TLS is still used",
        Result::is_ok,
    )
    .await;

    // An AuthorizationPolicy allows one identity.
    let only = |account: &str| {
        let rules = format!(
            "{{rules: [{{from: [{{source: {{principals: [cluster.local/ns/shop/sa/{account}]}}}}]}}]}}"
        );
        mesh(
            ports,
            &[
                subsets(true),
                strict.clone(),
                security("AuthorizationPolicy", &rules),
            ]
            .concat(),
        )
    };

    server.write_mesh(&only("somebody"))?;
    until(
        &agent,
        &v1,
        &programs,
        true,
        "another identity is denied",
        |outcome| {
            outcome
                .as_ref()
                .is_err_and(|error| error.contains("PermissionDenied"))
        },
    )
    .await;
    server.write_mesh(&only("client"))?;
    until(
        &agent,
        &v1,
        &programs,
        true,
        "the allowed identity gets a response",
        Result::is_ok,
    )
    .await;
    Ok(())
}

/// Waits until requests go to one server, and checks that all of them do.
async fn wait_until_all_reach(
    agent: &Agent,
    programs: &Path,
    to: &Echo,
    not_to: &Echo,
) -> Result<()> {
    let end = Instant::now() + TIMEOUT;
    let mut alone = 0;
    while alone < 6 {
        ensure!(
            Instant::now() < end,
            "requests do not follow the VirtualService:\n{}",
            agent.log()
        );
        let before = (to.requests(), not_to.requests());
        call(agent, programs, true)
            .await
            .map_err(anyhow::Error::msg)?;
        let is_led = to.requests() > before.0 && not_to.requests() == before.1;
        alone = if is_led { alone + 1 } else { 0 };
    }
    Ok(())
}
