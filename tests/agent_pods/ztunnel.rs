//! A real ztunnel, shared by the pods of a node: it listens in their network namespaces, which it
//! gets through the CNI's socket.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::guard::Guard;
use navarch_testkit::process::Process;
use serde_json::Value;

use crate::cni::{Cni, Enrolled};

/// The mark of ztunnel's own packets.
const MARK: &str = "0x539/0xfff";
/// The mark of connections that ztunnel opens to an application with the client's source address.
const IN_NAME_OF_CLIENT: &str = "0x111/0xfff";

/// Whether it subscribes to the whole mesh, or on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    ForAll,
    OnDemand,
}

/// The settings of ztunnel's pod.
pub(crate) struct ZtunnelConfig<'a> {
    pub(crate) program: &'a Path,
    /// Its network namespace.
    pub(crate) space: &'a str,
    /// The directory of its files.
    pub(crate) folder: &'a Path,
    pub(crate) ip: Ipv4Addr,
    /// The token of its service account.
    pub(crate) token: &'a str,
    /// The control plane's root.
    pub(crate) root: &'a str,
    /// Of the certificates that it requests; a day if unset.
    pub(crate) lifetime: Option<Duration>,
    pub(crate) asks: Asks,
    /// The pods of its node.
    pub(crate) pods: &'a [Enrolled],
}

/// A running ztunnel. It is killed when dropped.
pub(crate) struct Ztunnel {
    process: Process,
    cni: Cni,
    space: String,
    _guard: Guard,
}

impl Ztunnel {
    /// Starts it, and sends it the pods.
    pub(crate) fn start(config: &ZtunnelConfig<'_>) -> Result<Self> {
        let ZtunnelConfig {
            program,
            space,
            folder,
            ip,
            token,
            root,
            lifetime,
            asks,
            pods,
        } = *config;

        std::fs::create_dir_all(folder)?;
        let file = |name: &str| folder.join(name).display().to_string();
        std::fs::write(file("token"), token)?;
        std::fs::write(file("root.pem"), root)?;
        let mut cni = Cni::listen(&folder.join("cni.sock"))?;
        let istiod = "https://istiod.istio-system.svc:15012".to_owned();
        let on_demand = asks == Asks::OnDemand;
        let variables = [
            ("RUST_LOG", "info".to_owned()),
            ("LOG_FORMAT", "json".to_owned()),
            ("PROXY_MODE", "shared".to_owned()),
            ("INPOD_UDS", file("cni.sock")),
            ("XDS_ADDRESS", istiod.clone()),
            ("CA_ADDRESS", istiod),
            ("XDS_ROOT_CA", file("root.pem")),
            ("CA_ROOT_CA", file("root.pem")),
            ("AUTH_TOKEN", file("token")),
            ("NODE_NAME", "here".to_owned()),
            ("CLUSTER_ID", "Kubernetes".to_owned()),
            ("POD_NAME", "ztunnel-1".to_owned()),
            ("POD_NAMESPACE", "istio-system".to_owned()),
            ("SERVICE_ACCOUNT", "ztunnel".to_owned()),
            ("INSTANCE_IP", ip.to_string()),
            ("IPV6_ENABLED", "false".to_owned()),
            ("ZTUNNEL_WORKER_THREADS", "1".to_owned()),
            ("XDS_ON_DEMAND", on_demand.to_string()),
            // On demand, ztunnel has only names that were used before, so it cannot answer DNS
            // queries.
            ("ISTIO_META_DNS_CAPTURE", (!on_demand).to_string()),
        ];

        let mut args: Vec<String> = ["netns", "exec", space, "env", "-i"]
            .map(str::to_owned)
            .to_vec();
        args.extend(
            variables
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );

        if let Some(lifetime) = lifetime {
            args.push(format!("SECRET_TTL={}s", lifetime.as_secs()));
        }

        args.extend([
            program.display().to_string(),
            "proxy".to_owned(),
            "ztunnel".to_owned(),
        ]);

        let mut process = Process::start(
            "ztunnel",
            Path::new("ip"),
            &args,
            &folder.join("ztunnel.log"),
        )?;

        let guard = Guard::over(&[process.pid()], None)?;

        if let Err(error) = cni.enroll(pods) {
            process.check_running()?;
            return Err(error.context(process.output()));
        }

        Ok(Self {
            process,
            cni,
            space: space.to_owned(),
            _guard: guard,
        })
    }

    /// Sends it another pod.
    pub(crate) fn add(&self, pod: &Enrolled) -> Result<()> {
        tokio::task::block_in_place(|| self.cni.add(pod))
    }

    pub(crate) fn remove(&self, pod: &str) -> Result<()> {
        tokio::task::block_in_place(|| self.cni.remove(pod))
    }

    /// Its configuration: `workloads`, `services`, `policies`, `certificates`.
    pub(crate) async fn config(&self) -> Result<Value> {
        let space = self.space.clone();
        let output = tokio::task::spawn_blocking(move || {
            let url = "http://127.0.0.1:15000/config_dump";
            Command::new("ip")
                .args([
                    "netns",
                    "exec",
                    &space,
                    "curl",
                    "-s",
                    "--max-time",
                    "5",
                    url,
                ])
                .output()
        });

        let output = output.await??;
        serde_json::from_slice(&output.stdout).with_context(|| self.output())
    }

    /// The entries of its access log.
    pub(crate) fn connections(&self) -> Vec<Value> {
        let log = self.process.output();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["scope"] == "access").collect()
    }

    pub(crate) fn output(&self) -> String {
        self.process.output()
    }
}

/// Captures the traffic of a pod for ztunnel, as Istio's CNI plugin does: outbound connections go
/// to 15001, DNS queries to 15053, inbound connections without a tunnel to 15006; responses on
/// connections with the client's source address stay within the pod.
pub(crate) fn capture(space: &str) -> Result<()> {
    let mangle = format!(
        "*mangle
-A PREROUTING -m mark --mark {MARK} -j CONNMARK --set-xmark {IN_NAME_OF_CLIENT}
-A OUTPUT -m connmark --mark {IN_NAME_OF_CLIENT} -j CONNMARK --restore-mark
COMMIT
"
    );

    let nat = format!(
        "*nat
-A PREROUTING ! -d 127.0.0.1/32 -p tcp ! --dport 15008 -m mark ! --mark {MARK} -j REDIRECT --to-ports 15006
-A OUTPUT ! -o lo -p udp --dport 53 -m mark ! --mark {MARK} -j REDIRECT --to-ports 15053
-A OUTPUT ! -d 127.0.0.1/32 -p tcp --dport 53 -m mark ! --mark {MARK} -j REDIRECT --to-ports 15053
-A OUTPUT -p tcp -m mark --mark {IN_NAME_OF_CLIENT} -j ACCEPT
-A OUTPUT ! -d 127.0.0.1/32 -o lo -j ACCEPT
-A OUTPUT ! -d 127.0.0.1/32 -p tcp -m mark ! --mark {MARK} -j REDIRECT --to-ports 15001
COMMIT
"
    );

    let script = format!(
        "set -e
iptables-restore --wait 10 --noflush <<'END'
{mangle}{nat}END
ip rule add fwmark {IN_NAME_OF_CLIENT} pref 32764 lookup 100
ip route add local 0.0.0.0/0 dev lo table 100
"
    );

    let output = Command::new("ip")
        .args(["netns", "exec", space, "sh", "-c", &script])
        .output()?;
    ensure!(
        output.status.success(),
        "{space}: {}",
        String::from_utf8_lossy(&output.stderr)
    );

    Ok(())
}
