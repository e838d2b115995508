//! A pod: a namespace with iptables, an agent with its Envoy, and an application.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::Instant;

/// The user of agents and Envoys, whose traffic is not captured.
pub(crate) const PROXY: u32 = 1337;
/// The port of every application.
pub(crate) const PORT: u16 = 8080;
/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub(crate) enum PodKind {
    /// An application behind a sidecar.
    Sidecar {
        /// Additional flags of istio-iptables.
        capture: &'static [&'static str],
        /// The validity of its certificates.
        lifetime: &'static str,
    },
    /// An application behind a sidecar that accepts and sends HBONE.
    HboneSidecar,
    Gateway,
    /// A waypoint of the Gateway that has its name.
    Waypoint,
}

/// The settings of a pod.
pub(crate) struct PodConfig<'a> {
    /// Its network namespace.
    pub(crate) space: String,
    /// Its name, which is also the name of its service account and application.
    pub(crate) name: &'a str,
    pub(crate) ip: Ipv4Addr,
    /// The directory in place of `/`.
    pub(crate) folder: PathBuf,
    /// The directory of the agent and Envoy, which its user can read.
    pub(crate) programs: &'a Path,
    /// How to start its proxy.
    pub(crate) launch: Launch,
}

/// Environment variables.
pub(crate) type Environment = Vec<(String, String)>;

/// How to start a pod's proxy.
pub(crate) struct Launch {
    /// Arguments and environment of the agent's traffic capture; `None` if traffic is not captured.
    pub(crate) capture: Option<(Vec<String>, Environment)>,
    /// The arguments of the agent.
    pub(crate) args: Vec<String>,
    pub(crate) env: Environment,
    /// The user and group that it runs as.
    pub(crate) user: (u32, u32),
    /// Flags of `setpriv` that grant further capabilities.
    pub(crate) rights: &'static [&'static str],
    /// The files in its file system by path; `None` is an empty directory.
    pub(crate) files: Vec<(String, Option<String>)>,
}

/// The values that Kubernetes would provide to a pod.
pub(crate) struct PodInputs {
    pub(crate) namespace: &'static str,
    pub(crate) ip: Ipv4Addr,
    pub(crate) envoy: PathBuf,
    /// The token of its service account.
    pub(crate) token: String,
    /// The control plane's root.
    pub(crate) root: String,
}

impl Launch {
    /// The configuration of this test, without injection.
    pub(crate) fn by_hand(name: &str, kind: PodKind, inputs: PodInputs) -> Self {
        let PodInputs {
            namespace,
            ip,
            envoy,
            token,
            root,
        } = inputs;

        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let captured = |flags: &[&str]| {
            let mut all = words(
                "istio-iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i * -b * -d 15090,15021,15020",
            );
            all.extend(
                ["-x", "", "--redirect-dns"]
                    .iter()
                    .chain(flags)
                    .map(|flag| (*flag).to_owned()),
            );
            Some((all, Vec::new()))
        };
        let (role, lifetime, capture) = match kind {
            PodKind::Sidecar {
                capture: flags,
                lifetime,
            } => ("sidecar", lifetime, captured(flags)),
            PodKind::HboneSidecar => ("sidecar", "10m", captured(&[])),
            PodKind::Gateway => ("router", "10m", None),
            PodKind::Waypoint => ("waypoint", "10m", None),
        };

        let mut labels = format!("app=\"{name}\"\nsecurity.istio.io/tlsMode=\"istio\"\n");
        let mut env = variables(name, namespace, ip, &envoy);
        env.push(("SECRET_TTL".to_owned(), lifetime.to_owned()));

        match kind {
            PodKind::Waypoint => {
                labels += &format!(
                    "gateway.networking.k8s.io/gateway-name=\"{name}\"\n\
                     gateway.networking.k8s.io/gateway-class-name=\"istio-waypoint\"\n\
                     gateway.istio.io/managed=\"istio.io-mesh-controller\"\n"
                );
            }
            PodKind::HboneSidecar => labels += "networking.istio.io/tunnel=\"http\"\n",
            PodKind::Sidecar { .. } | PodKind::Gateway => {}
        }
        if matches!(kind, PodKind::Waypoint | PodKind::HboneSidecar) {
            env.push(("ISTIO_META_ENABLE_HBONE".to_owned(), "true".to_owned()));
        }

        let files = [
            ("var/run/secrets/tokens/istio-token", Some(token)),
            ("var/run/secrets/istio/root-cert.pem", Some(root)),
            ("etc/istio/pod/labels", Some(labels)),
            ("etc/istio/pod/annotations", Some(String::new())),
            ("etc/istio/proxy", None),
            ("var/lib/istio/data", None),
        ];

        Self {
            capture,
            args: words(&format!(
                "proxy {role} --domain {namespace}.svc.cluster.local --proxyLogLevel=warning"
            )),
            env,
            user: (PROXY, PROXY),
            // Reading the kernel's log of the rules needs a capability that proxies do not have.
            rights: &["--inh-caps=+net_admin", "--ambient-caps=+net_admin"],
            files: files.map(|(path, text)| (path.to_owned(), text)).to_vec(),
        }
    }
}

/// The checked fields of a certificate.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) serial: String,
    /// The end of its validity.
    pub(crate) expiry: jiff::Timestamp,
}

/// What is known of a pod besides its processes.
pub(crate) struct PodFiles<'a> {
    pub(crate) name: &'a str,
    pub(crate) ip: Ipv4Addr,
    pub(crate) folder: PathBuf,
    /// The files with the output of the agent and Envoy.
    pub(crate) logs: Vec<PathBuf>,
}

/// A running pod. Its processes are killed when it is dropped.
pub(crate) struct Pod {
    pub(crate) ip: Ipv4Addr,
    name: String,
    folder: PathBuf,
    /// The files with the output of the agent and Envoy.
    logs: Vec<PathBuf>,
    agent: std::sync::Mutex<Child>,
    app: Option<Child>,
    _guard: navarch_testkit::guard::Guard,
}

/// Runs a command in a pod's network namespace.
pub(crate) fn within(space: &str, folder: &Path) -> Command {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", space])
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

/// A file for the output of a program.
pub(crate) fn log(folder: &Path, name: &str) -> Result<Stdio> {
    let path = folder.join(name);
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)?;

    // Access logs open /dev/stdout again, as the user of Envoy.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
    Ok(Stdio::from(file))
}

impl Pod {
    pub(crate) fn start(config: PodConfig<'_>) -> Result<Self> {
        let PodConfig {
            space,
            name,
            ip,
            folder,
            programs,
            launch,
        } = config;

        prepare(&folder, &launch)?;

        // The program has the same name as in Istio's proxy image. It is a hard link, as the
        // program would see the target's name of a symbolic link.
        let program = folder.join("pilot-agent");
        std::fs::hard_link(programs.join("pilot-agent"), &program)?;
        if let Some((args, env)) = &launch.capture {
            capture(&space, &folder, &program, args, env)?;
        }

        let mut agent = within(&space, &folder);
        let (user, group) = launch.user;
        agent.args([
            "setpriv",
            &format!("--reuid={user}"),
            &format!("--regid={group}"),
            "--clear-groups",
        ]);

        agent
            .args(launch.rights)
            .arg("--")
            .arg(&program)
            .args(&launch.args);
        agent
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .envs(launch.env);

        agent
            .stdout(log(&folder, "agent.log")?)
            .stderr(log(&folder, "agent.log")?);
        let agent = agent.spawn().context("cannot start the agent")?;
        let app = if launch.capture.is_some() {
            Some(spawn_app(&space, name, &folder, programs)?)
        } else {
            None
        };

        let logs = vec![folder.join("agent.log")];
        Self::of(
            PodFiles {
                name,
                ip,
                folder,
                logs,
            },
            agent,
            app,
        )
    }

    /// A pod of processes that run already.
    pub(crate) fn of(files: PodFiles<'_>, agent: Child, app: Option<Child>) -> Result<Self> {
        let pids: Vec<u32> = std::iter::once(agent.id())
            .chain(app.as_ref().map(Child::id))
            .collect();
        let guard = navarch_testkit::guard::Guard::over(&pids, None)?;

        Ok(Self {
            ip: files.ip,
            name: files.name.to_owned(),
            folder: files.folder,
            logs: files.logs,
            agent: std::sync::Mutex::new(agent),
            app,
            _guard: guard,
        })
    }

    /// The output of the agent and Envoy.
    pub(crate) fn log(&self) -> String {
        let texts = self.logs.iter().map(std::fs::read_to_string);
        texts.filter_map(Result::ok).collect()
    }

    /// An error with the end of the log.
    fn fail<T>(&self, what: &str) -> Result<T> {
        let log = self.log();
        let from = log.len().saturating_sub(6000);
        bail!("{}: {what}\n{}", self.name, log.get(from..).unwrap_or(&log))
    }

    /// Waits until the agent reports that Envoy is ready.
    pub(crate) async fn wait_ready(&self) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        let address = SocketAddr::from((self.ip, 15021));
        loop {
            let answer =
                navarch_testkit::client::get(address, "agent", "/healthz/ready", &[]).await;
            match answer {
                Ok(answer) if answer.status == 200 => return Ok(()),
                _ if self.agent.lock().unwrap().try_wait()?.is_some() => {
                    return self.fail("the agent has ended");
                }
                answer if Instant::now() > end => {
                    return self.fail(&format!("not ready: {answer:?}"));
                }
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Waits until the agent has reconnected to the control plane.
    pub(crate) async fn wait_connected(&self) -> Result<()> {
        let end = Instant::now() + TIMEOUT;

        loop {
            let log = self.log();
            let ends = [
                "the stream to the control plane failed",
                "the control plane closed the stream",
            ];
            let lost = ends.iter().filter_map(|end| log.rfind(end)).max();
            let connected =
                log.rfind("INFO navarch_agent::ads::stream: connected to the control plane");
            if lost.is_some() && lost < connected {
                return Ok(());
            }

            if Instant::now() > end {
                return self.fail("not connected again");
            }

            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Requests a page of Envoy's admin interface, from within the pod.
    async fn admin(&self, path: &str) -> Result<String> {
        let space = format!("{}", self.folder.join("space").display());
        let space = std::fs::read_to_string(space)?;
        let path = path.to_owned();
        let output = tokio::task::spawn_blocking(move || {
            let url = format!("http://127.0.0.1:15000{path}");
            within(&space, Path::new("/"))
                .args(["setpriv", "--reuid=1337", "curl", "-s", &url])
                .output()
        });
        Ok(String::from_utf8_lossy(&output.await??.stdout).into_owned())
    }

    /// The workload's certificate in Envoy.
    pub(crate) async fn certificate(&self) -> Result<Certificate> {
        let page: Value = serde_json::from_str(&self.admin("/certs").await?)?;
        let all = page["certificates"].as_array().cloned().unwrap_or_default();
        let chains = all
            .iter()
            .flat_map(|one| one["cert_chain"].as_array().cloned().unwrap_or_default());
        let certificate = chains.into_iter().find_map(|chain| {
            let own = chain["subject_alt_names"]
                .to_string()
                .contains(&format!("sa/{}", self.name));
            let expiry = chain["expiration_time"].as_str()?.parse().ok()?;
            own.then(|| {
                Some(Certificate {
                    serial: chain["serial_number"].as_str()?.to_owned(),
                    expiry,
                })
            })
            .flatten()
        });

        certificate.with_context(|| format!("no certificate of its own: {page}"))
    }

    /// The command socket of the application.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("app")
    }

    /// Sends a command to the application.
    pub(crate) async fn app(&self, order: &Value) -> Result<Value> {
        send_command(&self.socket(), order).await
    }

    /// Lets the application request a page.
    pub(crate) async fn get(&self, host: &str, path: &str) -> Result<Value> {
        self.app(&json!({"op": "get", "host": host, "path": path}))
            .await
    }

    /// Whether a file exists, by its path in the pod.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.folder.join(path).exists()
    }

    /// Stops the application.
    pub(crate) fn stop_app(&mut self) -> Result<()> {
        let mut app = self.app.take().context("the application is running")?;
        app.kill()?;
        app.wait()?;
        Ok(())
    }

    /// Sends SIGTERM to the agent, and returns whether it exited in time.
    pub(crate) async fn terminate(&self, patience: Duration) -> Result<bool> {
        let pid = self.agent.lock().unwrap().id();
        let status = Command::new("kill")
            .args(["-TERM", &pid.to_string()])
            .status()?;
        ensure!(status.success(), "SIGTERM cannot be sent to the agent");
        let end = Instant::now() + patience;
        while Instant::now() < end {
            if self.agent.lock().unwrap().try_wait()?.is_some() {
                return Ok(true);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(false)
    }
}

/// Starts the application of a pod; its command socket is the file `app` of the folder.
pub(crate) fn spawn_app(space: &str, name: &str, folder: &Path, programs: &Path) -> Result<Child> {
    let mut app = within(space, folder);
    app.arg(programs.join("pod"))
        .args([name, &PORT.to_string()])
        .arg(folder.join("app"));
    app.stdout(log(folder, "app.log")?)
        .stderr(log(folder, "app.log")?);
    app.spawn().context("cannot start the application")
}

/// Sends a command to an application by its socket.
pub(crate) async fn send_command(socket: &Path, order: &Value) -> Result<Value> {
    let stream = UnixStream::connect(socket)
        .await
        .context("no application")?;
    let (reader, mut writer) = stream.into_split();
    writer.write_all(format!("{order}\n").as_bytes()).await?;
    let line = BufReader::new(reader)
        .lines()
        .next_line()
        .await?
        .context("the application does not accept connections")?;
    Ok(serde_json::from_str(&line)?)
}

/// Writes the files of a pod: token, root, labels.
fn prepare(folder: &Path, launch: &Launch) -> Result<()> {
    for (path, text) in &launch.files {
        let path = folder.join(path);
        if let Some(text) = text {
            std::fs::create_dir_all(path.parent().context("a folder")?)?;
            std::fs::write(path, text)?;
        } else {
            std::fs::create_dir_all(path)?;
        }
    }

    let (user, group) = launch.user;
    let status = Command::new("chown")
        .args(["-R", &format!("{user}:{group}")])
        .arg(folder)
        .status()?;
    ensure!(
        status.success(),
        "cannot change the owner of {}",
        folder.display()
    );

    Ok(())
}

/// Captures the traffic of a pod, as its init container does.
fn capture(
    space: &str,
    folder: &Path,
    program: &Path,
    args: &[String],
    env: &[(String, String)],
) -> Result<()> {
    let mut capture = within(space, folder);
    capture
        .arg(program)
        .args(args)
        .envs(env.iter().map(|(name, value)| (name, value)));
    let output = capture.output().context("cannot run istio-iptables")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "istio-iptables: {stderr}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    Ok(())
}

/// The environment of an agent, as the injector sets it.
fn variables(name: &str, namespace: &str, ip: Ipv4Addr, envoy: &Path) -> Vec<(String, String)> {
    let config = json!({
        "discoveryAddress": "istiod.istio-system.svc:15012",
        "binaryPath": envoy,
        "terminationDrainDuration": "5s",
        "concurrency": 1,
    });

    let probes = json!({"/app-health/app/readyz": {"httpGet": {"path": "/well", "port": PORT}}});
    let scrape = json!({"scrape": "true", "path": "/metrics", "port": PORT.to_string()});
    [
        ("POD_NAME", format!("{name}-1")),
        ("POD_NAMESPACE", namespace.to_owned()),
        ("INSTANCE_IP", ip.to_string()),
        ("SERVICE_ACCOUNT", name.to_owned()),
        ("CA_ADDR", "istiod.istio-system.svc:15012".to_owned()),
        ("PILOT_CERT_PROVIDER", "istiod".to_owned()),
        ("TRUST_DOMAIN", "cluster.local".to_owned()),
        ("IPTABLES_TRACE_LOGGING", "true".to_owned()),
        ("CLOUD_PLATFORM", "none".to_owned()),
        ("PROXY_CONFIG", config.to_string()),
        ("ISTIO_KUBE_APP_PROBERS", probes.to_string()),
        ("ISTIO_PROMETHEUS_ANNOTATIONS", scrape.to_string()),
        ("ISTIO_META_CLUSTER_ID", "Kubernetes".to_owned()),
        ("ISTIO_META_DNS_CAPTURE", "true".to_owned()),
        ("ISTIO_META_INTERCEPTION_MODE", "REDIRECT".to_owned()),
        ("ISTIO_META_APP_CONTAINERS", "app".to_owned()),
        ("ISTIO_META_WORKLOAD_NAME", name.to_owned()),
        ("ISTIO_META_MESH_ID", "cluster.local".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec()
}

impl Drop for Pod {
    fn drop(&mut self) {
        for child in self.app.iter_mut().chain(self.agent.get_mut().ok()) {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
