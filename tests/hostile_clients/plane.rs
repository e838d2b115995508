//! The control plane under attack: Istio's port numbers, configuration in a directory, injection
//! enabled.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use navarch_testkit::navarch::{Addresses, Navarch};
use tempfile::TempDir;

use crate::issuer::Issuer;
use crate::network::SERVER;

/// A port of the server.
const fn port(number: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(SERVER), number)
}

/// Plaintext xDS.
pub(crate) const XDS: SocketAddr = port(15010);
/// xDS and certificates over TLS.
pub(crate) const SECURE: SocketAddr = port(15012);
/// Webhooks.
pub(crate) const HTTPS: SocketAddr = port(15017);
/// Readiness and debug.
pub(crate) const HTTP: SocketAddr = port(8080);
/// Metrics.
pub(crate) const MONITORING: SocketAddr = port(15014);

/// The program under test.
pub(crate) fn program() -> PathBuf {
    let other = std::env::var_os("NAVARCH_BIN").map(PathBuf::from);
    other.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_navarch")))
}

/// A running control plane.
pub(crate) struct Plane {
    pub(crate) navarch: Navarch,
    /// The issuer of accepted tokens.
    pub(crate) issuer: Issuer,
    folder: TempDir,
    state: PathBuf,
    variables: Vec<(String, String)>,
}

impl Plane {
    /// Starts without configuration.
    pub(crate) async fn start() -> Result<Self> {
        Self::start_in(None, &[]).await
    }

    /// Starts with its state in a directory, if one is given, and with further variables.
    pub(crate) async fn start_in(
        state: Option<PathBuf>,
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        for name in ["mesh", "var/lib/istio/inject"] {
            std::fs::create_dir_all(folder.path().join(name))?;
        }

        std::fs::write(folder.path().join("var/lib/istio/inject/config"), "")?;
        std::fs::write(folder.path().join("var/lib/istio/inject/values"), "{}")?;

        // Injection is configured below the working directory.
        let script = folder.path().join("navarch");
        let text = format!(
            "#!/bin/sh\ncd '{}' && exec '{}' \"$@\"\n",
            folder.path().display(),
            program().display()
        );
        std::fs::write(&script, text)?;

        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
        let state = state.unwrap_or_else(|| folder.path().join("state"));
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();

        Self::launch(folder, state, Issuer::with_new_key(), variables).await
    }

    /// Starts with existing state, if any.
    async fn launch(
        folder: TempDir,
        state: PathBuf,
        issuer: Issuer,
        variables: Vec<(String, String)>,
    ) -> Result<Self> {
        let args = [
            format!("--https-addr={HTTPS}"),
            format!("--secure-grpc-addr={SECURE}"),
            format!("--state-dir={}", state.display()),
        ];
        let script = folder.path().join("navarch");
        let mesh = folder.path().join("mesh");
        let rule = issuer.rule();

        // Limits that attacks reach within seconds on any machine.
        let mut environment = vec![
            ("JWT_RULE", rule.as_str()),
            ("NAVARCH_CLIENT_MEMORY", "96Mi"),
            ("NAVARCH_MAX_WEBHOOK_CONNECTIONS", "400"),
            ("NAVARCH_MAX_HTTP_CONNECTIONS", "400"),
        ];

        environment.extend(
            variables
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );

        // Listen on every address, including loopback: clients on the same machine have more
        // rights.
        let any = |address: SocketAddr| SocketAddr::from(([0, 0, 0, 0], address.port()));
        let at = Addresses {
            xds: XDS,
            http: any(HTTP),
            monitoring: any(MONITORING),
        };
        let mut navarch = Navarch::start_at(&script, &mesh, &args, &environment, at).await?;
        (navarch.http, navarch.monitoring) = (HTTP, MONITORING);

        Ok(Self {
            navarch,
            issuer,
            folder,
            state,
            variables,
        })
    }

    /// Stops, and starts again with the same state.
    pub(crate) async fn restart(self) -> Result<Self> {
        let Self {
            navarch,
            issuer,
            folder,
            state,
            variables,
        } = self;
        ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
        Self::launch(folder, state, issuer, variables).await
    }

    /// The debug port's loopback address.
    pub(crate) fn local_http(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.navarch.http.port()))
    }

    /// The configuration directory.
    pub(crate) fn mesh(&self) -> PathBuf {
        self.folder.path().join("mesh")
    }

    /// The directory that contains it.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}
