//! The navarch process on a directory of YAML.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::process::Process;
use crate::{client, ports};

/// Time between the requests for whether it is ready.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout until it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A loopback port that the operating system chooses.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The listen addresses of Navarch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Plaintext xDS; if it has no port of its own, that of health and debug.
    pub xds: SocketAddr,
    /// Health and debug.
    pub http: SocketAddr,
    /// Metrics; if they have no port of their own, that of health and debug.
    pub monitoring: SocketAddr,
}

impl Addresses {
    /// Loopback ports that Navarch chooses itself and logs, which requires the level `info`.
    pub const ANY: Self = Self {
        xds: ANY,
        http: ANY,
        monitoring: ANY,
    };

    /// Loopback ports that are known in advance, so that another Navarch can reuse them.
    ///
    /// # Errors
    /// If the machine has none.
    pub fn free() -> std::io::Result<Self> {
        let address = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        Ok(Self {
            xds: address()?,
            http: address()?,
            monitoring: address()?,
        })
    }
}

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
    /// xDS and certificates over TLS; off unless an argument enables it.
    secure: Option<SocketAddr>,
    /// Webhooks over TLS; off unless an argument enables them.
    https: Option<SocketAddr>,
    _folder: TempDir,
}

impl Navarch {
    /// Starts it on free ports, and waits until it is ready.
    ///
    /// # Errors
    /// If it ends or is not ready in time.
    pub async fn start(program: &Path, config_dir: &Path, args: &[String]) -> Result<Self> {
        Self::start_at(program, config_dir, args, &[], Addresses::ANY).await
    }

    /// Like [`Navarch::start`], with further environment variables and given addresses.
    ///
    /// # Errors
    /// As [`Navarch::start`].
    pub async fn start_at(
        program: &Path,
        config_dir: &Path,
        args: &[String],
        environment: &[(&str, &str)],
        at: Addresses,
    ) -> Result<Self> {
        let mut all = vec![format!("--config-dir={}", config_dir.display())];
        all.extend(args.iter().cloned());
        Self::start_with_args_at(program, &all, environment, at).await
    }

    /// Starts it on a cluster, on free ports, with further arguments and environment variables, and
    /// waits until it is ready.
    ///
    /// # Errors
    /// As [`Navarch::start`].
    pub async fn start_on_kubernetes(
        program: &Path,
        kubeconfig: &Path,
        args: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let mut navarch =
            Self::launch_on_kubernetes(program, kubeconfig, args, environment).await?;
        navarch.wait_ready().await?;
        Ok(navarch)
    }

    /// Starts it with these arguments, which select its sources, and waits until it is ready.
    ///
    /// # Errors
    /// As [`Navarch::start`].
    pub async fn start_with_args_at(
        program: &Path,
        args: &[String],
        environment: &[(&str, &str)],
        at: Addresses,
    ) -> Result<Self> {
        let mut navarch = Self::launch(program, args, environment, at).await?;
        navarch.wait_ready().await?;
        Ok(navarch)
    }

    /// Like [`Navarch::start_on_kubernetes`], without waiting for readiness.
    ///
    /// # Errors
    /// If it cannot be started, or ends at once.
    pub async fn launch_on_kubernetes(
        program: &Path,
        kubeconfig: &Path,
        args: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let mut all = vec![format!("--kubeconfig={}", kubeconfig.display())];
        all.extend(args.iter().map(ToString::to_string));
        Self::launch(program, &all, environment, Addresses::ANY).await
    }

    /// Starts it, and waits until its ports are open, but not for readiness.
    async fn launch(
        program: &Path,
        args: &[String],
        environment: &[(&str, &str)],
        at: Addresses,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;

        // `env` sets the variables and executes the program, with the same PID.
        let mut all: Vec<String> = environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        all.extend([program.display().to_string(), "discovery".to_owned()]);
        let Addresses {
            xds,
            http,
            monitoring,
        } = at;

        let addresses = [
            ("--grpc-addr", xds.to_string()),
            ("--http-addr", http.to_string()),
            ("--monitoring-addr", monitoring.to_string()),
            ("--https-addr", String::new()),
            ("--secure-grpc-addr", String::new()),
            // Its default port can be used only once per machine.
            ("--ctrlz_address", String::new()),
        ];

        for (flag, address) in addresses {
            if !args.iter().any(|arg| arg.starts_with(flag)) {
                all.push(format!("{flag}={address}"));
            }
        }

        all.extend(args.iter().cloned());
        let process = Process::start(
            "navarch",
            Path::new("/usr/bin/env"),
            &all,
            &folder.path().join("navarch.log"),
        )?;

        let mut navarch = Self {
            process,
            xds,
            http,
            monitoring,
            secure: None,
            https: None,
            _folder: folder,
        };

        if all.iter().any(|arg| arg.ends_with(":0")) {
            navarch.learn_addresses().await?;
        }

        Ok(navarch)
    }

    /// Reads its listen addresses from its log.
    async fn learn_addresses(&mut self) -> Result<()> {
        let end = tokio::time::Instant::now() + START_TIMEOUT;

        loop {
            if let Some(addresses) = addresses(&self.process.output()) {
                let of = |name: &str| addresses.get(name).copied();
                self.http = of("http").unwrap_or(self.http);
                self.xds = of("grpc").unwrap_or(self.http);
                self.monitoring = of("monitoring").unwrap_or(self.http);
                (self.secure, self.https) = (of("secure-grpc"), of("https"));
                return Ok(());
            }

            self.process.check_running()?;

            if tokio::time::Instant::now() > end {
                bail!(
                    "it does not log where it listens:\n{}",
                    self.process.output()
                );
            }

            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The address of xDS and certificates over TLS.
    ///
    /// # Panics
    /// If no argument set that port to `:0`.
    #[must_use]
    pub fn secure(&self) -> SocketAddr {
        self.secure.expect("it was started with --secure-grpc-addr")
    }

    /// The address of its webhooks.
    ///
    /// # Panics
    /// If no argument set that port to `:0`.
    #[must_use]
    pub fn https(&self) -> SocketAddr {
        self.https.expect("it was started with --https-addr")
    }

    /// The listen addresses.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        Addresses {
            xds: self.xds,
            http: self.http,
            monitoring: self.monitoring,
        }
    }

    /// Whether `/ready` returns 200.
    pub async fn is_ready(&self) -> bool {
        client::get(self.http, "navarch", "/ready", &[])
            .await
            .is_ok_and(|reply| reply.status == 200)
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits for `/ready`.
    ///
    /// # Errors
    /// If it ends or is not ready in time.
    pub async fn wait_ready(&mut self) -> Result<()> {
        self.wait_ready_within(START_TIMEOUT, READY_POLL_INTERVAL)
            .await
    }

    /// Like [`Navarch::wait_ready`], with this timeout and this time between requests.
    ///
    /// # Errors
    /// If it ends or is not ready in time.
    pub async fn wait_ready_within(
        &mut self,
        patience: Duration,
        interval: Duration,
    ) -> Result<()> {
        let end = tokio::time::Instant::now() + patience;
        loop {
            self.process.check_running()?;
            if client::get(self.http, "navarch", "/ready", &[])
                .await
                .is_ok_and(|reply| reply.status == 200)
            {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                bail!("not ready in {patience:?}:\n{}", self.process.output());
            }
            tokio::time::sleep(interval).await;
        }
    }

    /// A page of the debug and health server.
    ///
    /// # Errors
    /// If it does not respond.
    pub async fn page(&self, path: &str) -> Result<String> {
        Ok(client::get(self.http, "localhost", path, &[]).await?.body)
    }

    /// Its metrics as text.
    ///
    /// # Errors
    /// If it does not respond.
    pub async fn metrics(&self) -> Result<String> {
        Ok(client::get(self.monitoring, "navarch", "/metrics", &[])
            .await?
            .body)
    }

    /// Makes it read all files again (SIGUSR1).
    ///
    /// # Errors
    /// If it cannot be signalled.
    pub fn reload(&self) -> Result<()> {
        self.process.signal("USR1")
    }

    /// Kills it like a crash.
    ///
    /// # Errors
    /// If it cannot be signalled.
    pub fn kill(&self) -> Result<()> {
        self.process.signal("KILL")
    }

    /// The output of the process.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Requests its end, and waits. Returns whether it ended by itself.
    ///
    /// # Errors
    /// If waiting fails.
    pub async fn stop(self) -> Result<bool> {
        self.process.stop(Duration::from_secs(12)).await
    }
}

/// The addresses by name in the log line with the listen addresses, in either log format; `None`
/// before that line is complete.
fn addresses(log: &str) -> Option<BTreeMap<&str, SocketAddr>> {
    let mut lines = log
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let line = lines.find(|line| line.contains("listening") && line.contains("addresses"))?;
    let words = line
        .split([' ', '"'])
        .filter_map(|word| word.split_once('='));
    Some(
        words
            .filter_map(|(name, address)| Some((name, address.parse().ok()?)))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_off_either_format_of_the_log() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let expected = BTreeMap::from([("http", address(41)), ("secure-grpc", address(42))]);
        let plain = "INFO navarch: first\nINFO navarch::server: listening addresses=\"http=127.0.0.1:41 grpc=off secure-grpc=127.0.0.1:42\"\n";
        let json = "{\"msg\":\"listening\",\"addresses\":\"http=127.0.0.1:41 grpc=off secure-grpc=127.0.0.1:42\"}\n";
        for log in [plain, json] {
            assert_eq!(addresses(log).as_ref(), Some(&expected), "{log}");
        }
        assert_eq!(
            addresses(&plain[..plain.len() - 4]),
            None,
            "a line that is being written"
        );
    }
}
