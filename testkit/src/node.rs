//! A Kubernetes cluster of one node or more with running pods: `scripts/cluster`, whose README
//! describes its parts.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::guard::Guard;

/// The directory of the scripts in the checkout at `root`.
fn scripts(root: &Path) -> PathBuf {
    root.join("scripts/cluster")
}

/// The networks of a cluster, as variables of the scripts.
pub type Networks = Vec<(&'static str, String)>;

/// Why this machine cannot run such a cluster; `None` if it can.
#[must_use]
pub fn missing(root: &Path) -> Option<String> {
    let output = match Command::new(scripts(root).join("missing")).output() {
        Ok(output) => output,
        Err(error) => return Some(format!("scripts/cluster/missing cannot be run: {error}")),
    };
    (!output.status.success()).then(|| {
        let message = if output.stdout.is_empty() {
            output.stderr
        } else {
            output.stdout
        };
        String::from_utf8_lossy(&message).trim().to_owned()
    })
}

/// A running cluster. One in its own directory ends when dropped, even if the process is killed.
#[derive(Debug)]
pub struct Node {
    /// The directory of the cluster.
    folder: PathBuf,
    scripts: PathBuf,
    /// The networks, as variables of the scripts.
    networks: Networks,
    /// The directory, if it is removed with the cluster, and the guard that ends the cluster.
    own: Option<(TempDir, Guard)>,
}

impl Node {
    /// Starts one in its own directory, with networks that no other has; it ends with its handle.
    ///
    /// # Errors
    /// If a part is missing (see [`missing`]) or does not become ready.
    pub fn start(root: &Path, images: &[&Path]) -> Result<Self> {
        let [networks] = free_networks()?;
        Self::start_in(root, images, networks)
    }

    /// Like [`Node::start`], with networks of [`free_networks`].
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_in(root: &Path, images: &[&Path], networks: Networks) -> Result<Self> {
        // The paths of sockets are limited, so the directory name is short.
        let folder = tempfile::Builder::new()
            .prefix("node-")
            .tempdir_in("/tmp")?;
        let down = scripts(root).join("down");
        let words = [down.as_os_str(), folder.path().as_os_str()];
        let guard = Guard::running(&words, Some(folder.path()))?;
        let mut node = Self {
            folder: folder.path().to_owned(),
            scripts: scripts(root),
            networks,
            own: Some((folder, guard)),
        };
        node.up(images)?;
        Ok(node)
    }

    /// Starts the cluster of `folder`, or reuses it; it stays when the handle is dropped.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn keep(root: &Path, folder: &Path, images: &[&Path]) -> Result<Self> {
        let mut node = Self {
            folder: folder.to_owned(),
            scripts: scripts(root),
            networks: Vec::new(),
            own: None,
        };
        node.up(images)?;
        Ok(node)
    }

    /// Starts the cluster with images to load first.
    fn up(&mut self, images: &[&Path]) -> Result<()> {
        let folder = self.folder.join("images");
        std::fs::create_dir_all(&folder)?;
        for image in images {
            let name = image.file_name().context("an image must be a file")?;
            std::fs::copy(image, folder.join(name))
                .with_context(|| format!("cannot copy {}", image.display()))?;
        }
        self.script("up", &[])
    }

    /// Runs a script on the cluster's folder.
    fn script(&self, name: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(self.scripts.join(name));
        command.arg(&self.folder).args(arguments);
        command.envs(
            self.networks
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        );
        succeed(
            command.stdin(Stdio::null()),
            &format!("scripts/cluster/{name}"),
        )
        .map(drop)
    }

    /// The kubeconfig of clients and `kubectl`.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The directory of its logs.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The node's own address.
    ///
    /// # Errors
    /// If the node was not started in its own networks ([`Node::keep`]).
    pub fn address(&self) -> Result<Ipv4Addr> {
        let net = self
            .networks
            .iter()
            .find(|(name, _)| *name == "NODE_NET")
            .context("the node has no network")?;
        Ok(format!("{}.1", net.1).parse()?)
    }

    /// The PID of the process that holds the node's namespaces.
    ///
    /// # Errors
    /// If the node is not running.
    pub fn pid(&self) -> Result<String> {
        let written =
            std::fs::read_to_string(self.folder.join("pid")).context("the node does not run")?;
        Ok(written
            .split_whitespace()
            .next()
            .context("no process id")?
            .to_owned())
    }

    /// A command in the node's network, which all pods' traffic passes through.
    ///
    /// # Errors
    /// If the node is not running.
    pub fn in_network(&self, program: &Path) -> Result<Command> {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.pid()?, "--net"])
            .arg(program);
        Ok(command)
    }

    /// Runs a command in the node's network, and fails with its output.
    ///
    /// # Errors
    /// If the node is not running, or the command fails.
    pub fn run_in_network(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let mut command = self.in_network(Path::new(program))?;
        succeed(
            command.args(arguments).stdin(Stdio::null()),
            &format!("{program} {}", arguments.join(" ")),
        )
        .map(drop)
    }

    /// A kubectl command on the cluster.
    fn kubectl_command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(crate::cluster::programs()?.join("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(arguments);
        Ok(command)
    }

    /// The output of kubectl.
    ///
    /// # Errors
    /// If it fails, with its error output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        succeed(
            self.kubectl_command(arguments)?.stdin(Stdio::null()),
            &format!("kubectl {}", arguments.join(" ")),
        )
    }

    /// An object from the API server, such as `deployment/istiod`, or a list of a kind.
    ///
    /// # Errors
    /// If the object does not exist.
    pub fn get(&self, namespace: &str, what: &[&str]) -> Result<Value> {
        let mut arguments = vec!["--namespace", namespace, "get", "--output=json"];
        arguments.extend(what);
        Ok(serde_json::from_str(&self.kubectl(&arguments)?)?)
    }

    /// Applies YAML or JSON documents.
    ///
    /// # Errors
    /// If one is rejected.
    pub fn apply(&self, documents: &str) -> Result<()> {
        self.kubectl_apply(&[], documents).map(drop)
    }

    /// Like [`Node::apply`], but the API server stores nothing: it defaults and validates the
    /// documents, and asks the webhooks. Returns a line for each.
    ///
    /// # Errors
    /// If one is rejected.
    pub fn apply_dry(&self, documents: &str) -> Result<String> {
        self.kubectl_apply(&["--dry-run=server"], documents)
    }

    /// Runs `kubectl apply` with further flags on documents, and returns its output.
    fn kubectl_apply(&self, flags: &[&str], documents: &str) -> Result<String> {
        let arguments = [&["apply", "--filename=-"], flags].concat();
        let mut child = self
            .kubectl_command(&arguments)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;

        child
            .stdin
            .take()
            .context("kubectl has no stdin")?
            .write_all(documents.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(
            output.status.success(),
            "kubectl {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );

        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Loads an image archive.
    ///
    /// # Errors
    /// If containerd rejects it.
    pub fn load(&self, archive: &Path) -> Result<()> {
        self.ctr(&["import", &archive.display().to_string()])
    }

    /// Adds a name to an image.
    ///
    /// # Errors
    /// If the image does not exist.
    pub fn tag(&self, image: &str, name: &str) -> Result<()> {
        self.ctr(&["tag", "--force", image, name])
    }

    /// Runs a containerd command on images.
    fn ctr(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("ctr");
        command
            .arg("--address")
            .arg(self.folder.join("run/containerd/containerd.sock"));
        command
            .args(["--namespace=k8s.io", "images"])
            .args(arguments);
        succeed(command.stdin(Stdio::null()), "ctr images").map(drop)
    }

    /// Kills a part (`apiserver`, `kubelet`, …), which is not restarted.
    ///
    /// # Errors
    /// If it is not running.
    pub fn kill(&self, part: &str) -> Result<()> {
        self.script("part", &["kill", part])
    }

    /// Starts a part that was killed.
    ///
    /// # Errors
    /// If the part does not exist.
    pub fn restart(&self, part: &str) -> Result<()> {
        self.script("part", &["start", part])
    }

    /// Starts another node of the cluster, a worker, and waits until it is Ready; or continues one
    /// that was lost.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn start_worker(&self, name: &str) -> Result<()> {
        self.script("worker", &["up", name])
    }

    /// Ends a worker as a power failure would: its peers get no packet more, and its Node object
    /// stays.
    ///
    /// # Errors
    /// If there is no such worker.
    pub fn lose_worker(&self, name: &str) -> Result<()> {
        self.script("worker", &["lose", name])
    }

    /// The requests of the control plane's accounts that the API server has denied, a line each.
    ///
    /// # Errors
    /// If the API server has written no log of requests.
    pub fn denied_requests(&self) -> Result<String> {
        let mut command = Command::new(self.scripts.join("denied"));
        command.arg(&self.folder).stdin(Stdio::null());
        succeed(&mut command, "scripts/cluster/denied")
    }

    /// Stops the node with all of its pods, and starts it again with its data.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn reboot(&mut self) -> Result<()> {
        self.script("down", &[])?;
        self.up(&[])
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The guard runs `down` and removes the directory; waiting for it ensures that it has.
        if let Some((folder, guard)) = self.own.take() {
            drop(guard);
            drop(folder);
        }
    }
}

/// Runs a command and returns its output.
fn succeed(command: &mut Command, what: &str) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {what}"))?;
    ensure!(
        output.status.success(),
        "{what}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Networks for this number of clusters to which this machine has no route yet.
///
/// # Errors
/// If all candidates are in use, or the routes cannot be read.
pub fn free_networks<const COUNT: usize>() -> Result<[Networks; COUNT]> {
    let routes = succeed(Command::new("ip").args(["-4", "route"]), "ip route")?;

    // Concurrent test processes start the search at different candidates.
    let first = std::process::id() % 20;
    let all = (0..20).map(|step| {
        let number = (first + step) % 20;
        (
            format!("10.200.{number}"),
            format!("10.{}", 201 + number),
            format!("10.{}", 221 + number),
        )
    });

    let mut free = all.filter(|(node, pods, services)| {
        [node, pods, services]
            .iter()
            .all(|prefix| !routes.contains(&format!("{prefix}.")))
    });

    let found: Vec<Networks> = free
        .by_ref()
        .take(COUNT)
        .map(|(node, pods, services)| {
            vec![
                ("NODE_NET", node),
                ("POD_CIDR", format!("{pods}.0.0/16")),
                ("SERVICE_CIDR", format!("{services}.0.0/16")),
            ]
        })
        .collect();

    found
        .try_into()
        .map_err(|_| anyhow!("twenty clusters are already running"))
}
