//! A real SPIRE server signs, over its own socket and over TCP by the control plane's SVID.
//!
//! Needs the programs of `scripts/spire`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use navarch_proto::istio::mesh::v1alpha1::ProxyConfig;
use navarch_testkit::ports;
use navarch_testkit::skip::skip_test;
use navarch_testkit::wait::{until, until_some, wanted};
use prost::Message;
use serde_json::json;
use tempfile::TempDir;

use crate::client::Proof;
use crate::own_authority::{NODE_PROXIES, PODS, signers, signs_for_sidecars_and_nodes};
use crate::server::{self, Server};

/// The type of the trust bundle.
const TRUST_BUNDLE: &str = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig";
/// The trust domain that the server federates with.
const PARTNER: &str = "partner.example";

/// A SPIRE server, and perhaps its agent.
struct Spire {
    programs: PathBuf,
    folder: TempDir,
    port: u16,
    running: Vec<Child>,
}

impl Spire {
    /// Starts a server; `None` if it was not built.
    async fn start() -> Result<Option<Self>> {
        let tools = navarch_testkit::envoy::program();
        let tools = tools.parent().and_then(Path::parent).context("tools")?;
        let programs = tools.join("spire");
        if !programs.join("spire-server").exists() {
            skip_test("no SPIRE: run scripts/spire");
            return Ok(None);
        }

        let mut spire = Self {
            programs,
            folder: tempfile::tempdir()?,
            port: ports::free()?,
            running: Vec::new(),
        };
        let folder = spire.folder.path().display();
        let port = spire.port;
        let config = format!(
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
        );
        std::fs::write(spire.path("server.conf"), config)?;
        let config = spire.path("server.conf");
        spire.run("spire-server", &config, &[])?;
        until("the server is healthy", async || {
            spire.server(&["healthcheck"]).is_ok()
        })
        .await;
        Ok(Some(spire))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a program.
    fn run(&mut self, name: &str, config: &Path, further: &[&str]) -> Result<()> {
        let log = std::fs::File::create(self.path(&format!("{name}.log")))?;
        let child = Command::new(self.programs.join(name))
            .args(["run", "-config"])
            .arg(config)
            .args(further)
            .current_dir(self.folder.path())
            .stdout(log.try_clone()?)
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()?;
        self.running.push(child);
        Ok(())
    }

    /// Runs a command of the server; returns its output.
    fn server(&self, words: &[&str]) -> Result<String> {
        self.command("spire-server", words, "api.sock")
    }

    fn command(&self, program: &str, words: &[&str], socket: &str) -> Result<String> {
        let output = Command::new(self.programs.join(program))
            .args(words)
            .arg("-socketPath")
            .arg(self.path(socket))
            .output()?;
        ensure!(
            output.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Starts an agent, whose workloads of this user are administrators.
    async fn start_agent(&mut self) -> Result<()> {
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

        std::fs::write(self.path("bundle.pem"), self.server(&["bundle", "show"])?)?;
        let folder = self.folder.path().display();
        let port = self.port;
        let config = format!(
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
        );
        std::fs::write(self.path("agent.conf"), config)?;
        let config = self.path("agent.conf");
        self.run("spire-agent", &config, &["-joinToken", token])?;
        until("the agent hands out an SVID", async || {
            self.command("spire-agent", &["api", "fetch", "x509"], "agent.sock")
                .is_ok()
        })
        .await;
        Ok(())
    }
}

impl Drop for Spire {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The roots that proxies get by PCDS.
async fn trusted(server: &Server) -> Result<String> {
    let proof = Proof::Token(server.issuer.token(json!({})));
    let found = server
        .resources(&proof, server::node("shop", "web"), TRUST_BUNDLE, &[])
        .await?;
    let mut roots = String::new();
    for resource in found {
        let body = resource.resource.context("a body")?.value;
        roots.push_str(
            &ProxyConfig::decode(body.as_slice())?
                .ca_certificates_pem
                .concat(),
        );
    }
    Ok(roots)
}

#[tokio::test]
async fn a_spire_server_signs_over_its_socket_and_its_federated_bundles_are_trusted() -> Result<()>
{
    let Some(spire) = Spire::start().await? else {
        return Ok(());
    };
    let partner = partners_root()?;
    std::fs::write(spire.path("partner.pem"), &partner)?;
    let file = spire.path("partner.pem").display().to_string();
    let id = format!("spiffe://{PARTNER}");
    spire.server(&["bundle", "set", "-id", &id, "-path", &file])?;

    let variables = format!(
        "EXTERNAL_CA=NAVARCH_RA_SPIRE NAVARCH_SPIRE_SERVER=unix:{} \
         NAVARCH_SPIRE_FEDERATES_WITH={PARTNER} {NODE_PROXIES}",
        spire.path("api.sock").display()
    );
    let server = Server::with_variables(PODS, &variables).await?;
    let roots = spire.server(&["bundle", "show"])?;
    signs_for_sidecars_and_nodes(&server, &roots).await?;
    let shown = signers(&server).await?;
    ensure!(shown[0]["name"] == "spire", "{shown}");

    let body = |pem: &str| pem.lines().nth(1).unwrap_or_default().to_owned();
    until_some("proxies trust the partner's root", async || {
        let found = trusted(&server).await.map_err(|error| error.to_string())?;
        wanted(found, |found| {
            found.contains(&body(&partner)) && found.contains(&body(&roots))
        })
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn a_spire_server_signs_for_the_svid_of_the_control_plane() -> Result<()> {
    let Some(mut spire) = Spire::start().await? else {
        return Ok(());
    };
    spire.start_agent().await?;
    let variables = format!(
        "EXTERNAL_CA=NAVARCH_RA_SPIRE NAVARCH_SPIRE_SERVER=127.0.0.1:{} \
         SPIFFE_ENDPOINT_SOCKET=unix://{} {NODE_PROXIES}",
        spire.port,
        spire.path("agent.sock").display()
    );
    let server = Server::with_variables(PODS, &variables).await?;
    let roots = spire.server(&["bundle", "show"])?;
    signs_for_sidecars_and_nodes(&server, &roots).await
}

/// A root of another company.
fn partners_root() -> Result<String> {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let id = format!("spiffe://{PARTNER}");
    params.subject_alt_names = vec![rcgen::SanType::URI(id.as_str().try_into()?)];
    Ok(params.self_signed(&rcgen::KeyPair::generate()?)?.pem())
}
