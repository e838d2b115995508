//! A real SPIRE server, and its agent, for the trust domain `cluster.local`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::envoy;
use crate::guard::Guard;
use crate::ports;
use crate::skip::skip_test;
use crate::wait::until;

/// A SPIRE server, and perhaps its agent. Dropping it stops both.
#[derive(Debug)]
pub struct Spire {
    /// Dropped before their folder is removed.
    running: Vec<Running>,
    programs: PathBuf,
    folder: TempDir,
    port: u16,
}

/// A process, and the guard that ends it when the test's process ends.
#[derive(Debug)]
struct Running {
    process: Child,
    guard: Option<Guard>,
}

impl Spire {
    /// Starts a server, and waits until it is healthy; `None` if `scripts/spire` has not built it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start() -> Result<Option<Self>> {
        let programs = envoy::tools().join("spire");
        if !programs.join("spire-server").exists() {
            skip_test("no SPIRE: run scripts/spire");
            return Ok(None);
        }

        let mut spire = Self {
            running: Vec::new(),
            programs,
            folder: tempfile::tempdir()?,
            port: ports::free()?,
        };

        let config = spire.path("server.conf");
        std::fs::write(&config, spire.server_config())?;
        spire.run("spire-server", &config, &[])?;
        until("the server is healthy", async || {
            spire.server(&["healthcheck"]).is_ok()
        })
        .await;
        Ok(Some(spire))
    }

    fn server_config(&self) -> String {
        let folder = self.folder.path().display();
        let port = self.port;
        format!(
            r#"server {{
  bind_address = "127.0.0.1"
  bind_port = "{port}"
  socket_path = "{folder}/api.sock"
  trust_domain = "cluster.local"
  data_dir = "{folder}/server"
  default_x509_svid_ttl = "1h"
}}
plugins {{
  DataStore "sql" {{
    plugin_data {{
      database_type = "sqlite3"
      connection_string = "{folder}/store.sqlite3"
    }}
  }}
  NodeAttestor "join_token" {{ plugin_data {{}} }}
  KeyManager "memory" {{ plugin_data {{}} }}
}}
"#
        )
    }

    /// A file in the folder of the server and its agent.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The server's own socket, which is for administrators.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path("api.sock")
    }

    /// The socket of the agent.
    #[must_use]
    pub fn agent_socket(&self) -> PathBuf {
        self.path("agent.sock")
    }

    /// The server's port on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The roots of the trust domain, in PEM.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn roots(&self) -> Result<String> {
        self.server(&["bundle", "show"])
    }

    /// Runs a command of the server; returns its output.
    ///
    /// # Errors
    /// If it fails, with its output.
    pub fn server(&self, words: &[&str]) -> Result<String> {
        self.command("spire-server", words, &self.socket())
    }

    fn command(&self, program: &str, words: &[&str], socket: &Path) -> Result<String> {
        let output = Command::new(self.programs.join(program))
            .args(words)
            .arg("-socketPath")
            .arg(socket)
            .output()?;
        ensure!(
            output.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Starts a program; its output is in `<name>.log`.
    fn run(&mut self, name: &str, config: &Path, further: &[&str]) -> Result<()> {
        let log = std::fs::File::create(self.path(&format!("{name}.log")))?;
        let process = Command::new(self.programs.join(name))
            .args(["run", "-config"])
            .arg(config)
            .args(further)
            .current_dir(self.folder.path())
            .stdout(log.try_clone()?)
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()?;
        let guard = Guard::over(&[process.id()], None)?;
        self.running.push(Running {
            process,
            guard: Some(guard),
        });
        Ok(())
    }

    /// Starts an agent, whose workloads of this user are administrators, and waits until it hands
    /// out an SVID.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start_agent(&mut self) -> Result<()> {
        let node = "spiffe://cluster.local/node";
        let token = self.server(&["token", "generate", "-spiffeID", node])?;
        let token = token.trim().strip_prefix("Token: ").context("a token")?;
        let user = format!("unix:uid:{}", nix::unistd::getuid());
        self.server(&[
            "entry",
            "create",
            "-admin",
            "-parentID",
            node,
            "-spiffeID",
            "spiffe://cluster.local/navarch",
            "-selector",
            &user,
        ])?;

        std::fs::write(self.path("bundle.pem"), self.roots()?)?;
        let config = self.path("agent.conf");
        std::fs::write(&config, self.agent_config())?;
        self.run("spire-agent", &config, &["-joinToken", token])?;
        until("the agent hands out an SVID", async || {
            self.command(
                "spire-agent",
                &["api", "fetch", "x509"],
                &self.agent_socket(),
            )
            .is_ok()
        })
        .await;
        Ok(())
    }

    fn agent_config(&self) -> String {
        let folder = self.folder.path().display();
        let port = self.port;
        format!(
            r#"agent {{
  data_dir = "{folder}/agent"
  server_address = "127.0.0.1"
  server_port = "{port}"
  socket_path = "{folder}/agent.sock"
  trust_bundle_path = "{folder}/bundle.pem"
  trust_domain = "cluster.local"
}}
plugins {{
  NodeAttestor "join_token" {{ plugin_data {{}} }}
  KeyManager "memory" {{ plugin_data {{}} }}
  WorkloadAttestor "unix" {{ plugin_data {{}} }}
}}
"#
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();

        // The PID may be reused from now on.
        if let Some(guard) = self.guard.take() {
            guard.release();
        }
    }
}
