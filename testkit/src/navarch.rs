//! The navarch process on a directory of YAML.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::process::Process;
use crate::{client, ports};

/// How long it may take to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A running `navarch discovery`. It is killed when dropped.
#[derive(Debug)]
pub struct Navarch {
    process: Process,
    /// Plaintext xDS.
    pub xds: SocketAddr,
    /// Health and debug.
    pub http: SocketAddr,
    /// Metrics.
    pub monitoring: SocketAddr,
    _folder: TempDir,
}

impl Navarch {
    /// Starts it on ports that are free, and waits until it is ready.
    ///
    /// # Errors
    /// When it ends or is not ready in time.
    pub async fn start(program: &Path, config_dir: &Path, args: &[String]) -> Result<Self> {
        let address = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        Self::start_at(program, config_dir, args, &[], address()?, address()?, address()?).await
    }

    /// As [`Navarch::start`], with further variables of the environment and on given addresses (xDS, HTTP, monitoring), to come
    /// back where another was.
    ///
    /// # Errors
    /// As [`Navarch::start`].
    pub async fn start_at(
        program: &Path,
        config_dir: &Path,
        args: &[String],
        environment: &[(&str, &str)],
        xds: SocketAddr,
        http: SocketAddr,
        monitoring: SocketAddr,
    ) -> Result<Self> {
        let mut all = vec![format!("--config-dir={}", config_dir.display())];
        all.extend(args.iter().cloned());
        let mut navarch = Self::launch(program, &all, environment, xds, http, monitoring)?;
        navarch.wait_ready().await?;
        Ok(navarch)
    }

    /// Starts it on a cluster, on ports that are free, with further arguments and variables of the environment, and waits
    /// until it is ready.
    ///
    /// # Errors
    /// As [`Navarch::start`].
    pub async fn start_on_kubernetes(
        program: &Path,
        kubeconfig: &Path,
        args: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let mut navarch = Self::launch_on_kubernetes(program, kubeconfig, args, environment)?;
        navarch.wait_ready().await?;
        Ok(navarch)
    }

    /// As [`Navarch::start_on_kubernetes`] on given addresses (xDS, HTTP, monitoring); `args` name the kubeconfig.
    ///
    /// # Errors
    /// As [`Navarch::start`].
    pub async fn start_with_args_at(
        program: &Path,
        args: &[String],
        environment: &[(&str, &str)],
        xds: SocketAddr,
        http: SocketAddr,
        monitoring: SocketAddr,
    ) -> Result<Self> {
        let mut navarch = Self::launch(program, args, environment, xds, http, monitoring)?;
        navarch.wait_ready().await?;
        Ok(navarch)
    }

    /// As [`Navarch::start_on_kubernetes`], without waiting.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn launch_on_kubernetes(
        program: &Path,
        kubeconfig: &Path,
        args: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let address = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut all = vec![format!("--kubeconfig={}", kubeconfig.display())];
        all.extend(args.iter().map(ToString::to_string));
        Self::launch(program, &all, environment, address()?, address()?, address()?)
    }

    /// Starts it; it need not be ready.
    fn launch(
        program: &Path,
        args: &[String],
        environment: &[(&str, &str)],
        xds: SocketAddr,
        http: SocketAddr,
        monitoring: SocketAddr,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // `env` sets the variables and becomes the program, under the same process id.
        let mut all: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        all.extend([program.display().to_string(), "discovery".to_owned()]);
        let addresses = [
            ("--grpc-addr", xds.to_string()),
            ("--http-addr", http.to_string()),
            ("--monitoring-addr", monitoring.to_string()),
            ("--https-addr", String::new()),
            ("--secure-grpc-addr", String::new()),
            // Its usual port is one for all of the machine.
            ("--ctrlz_address", String::new()),
        ];
        for (flag, address) in addresses {
            if !args.iter().any(|arg| arg.starts_with(flag)) {
                all.push(format!("{flag}={address}"));
            }
        }
        all.extend(args.iter().cloned());
        let process = Process::start("navarch", Path::new("/usr/bin/env"), &all, &folder.path().join("navarch.log"))?;
        Ok(Self { process, xds, http, monitoring, _folder: folder })
    }

    /// Whether it says that it is ready.
    pub async fn is_ready(&self) -> bool {
        client::get(self.http, "navarch", "/ready", &[]).await.is_ok_and(|reply| reply.status == 200)
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits for `/ready`.
    ///
    /// # Errors
    /// When it ends or is not ready in time.
    pub async fn wait_ready(&mut self) -> Result<()> {
        self.wait_ready_within(START_TIMEOUT).await
    }

    /// As [`Navarch::wait_ready`], for so long.
    ///
    /// # Errors
    /// When it ends or is not ready in time.
    pub async fn wait_ready_within(&mut self, patience: Duration) -> Result<()> {
        let end = tokio::time::Instant::now() + patience;
        loop {
            self.process.check_running()?;
            if client::get(self.http, "navarch", "/ready", &[]).await.is_ok_and(|reply| reply.status == 200) {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                bail!("not ready in {patience:?}:\n{}", self.process.output());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// A page of the debug and health server.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn page(&self, path: &str) -> Result<String> {
        Ok(client::get(self.http, "localhost", path, &[]).await?.body)
    }

    /// Its metrics, as text.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> Result<String> {
        Ok(client::get(self.monitoring, "navarch", "/metrics", &[]).await?.body)
    }

    /// Has it read all files anew (SIGUSR1).
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn reload(&self) -> Result<()> {
        self.process.signal("USR1")
    }

    /// Kills it as a crash would.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(&self) -> Result<()> {
        self.process.signal("KILL")
    }

    /// What it has printed.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Asks it to end, and waits. Says whether it did so by itself.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn stop(self) -> Result<bool> {
        self.process.stop(Duration::from_secs(12)).await
    }
}
