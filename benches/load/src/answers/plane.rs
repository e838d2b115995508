//! A control plane on a generated mesh, and its connected proxies.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::process::Process;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// How long proxies may take to sync, and to finish their plan.
const SYNC_TIMEOUT: Duration = Duration::from_mins(10);
/// How long they may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);
/// How often their output is read.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// What `xdsload` prints when its plan is finished and its proxies stay connected.
const HOLDING: &str = "stay connected until SIGTERM";
/// Namespaces over which services and proxies are spread.
const NAMESPACES: usize = 10;

/// The programs to start.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) navarch: PathBuf,
    pub(crate) xdsload: PathBuf,
    pub(crate) root: PathBuf,
}

/// A control plane.
#[derive(Debug)]
pub(crate) struct Plane<'a> {
    programs: &'a Programs,
    pub(crate) navarch: Navarch,
    /// The flags for the size of its mesh.
    size: Vec<String>,
    /// Its files; the watched directory is `mesh`.
    folder: TempDir,
}

#[derive(Debug)]
pub(crate) struct Proxies {
    process: Process,
    /// The file of the report that `xdsload` writes when it exits.
    report: PathBuf,
}

impl<'a> Plane<'a> {
    /// Generates a mesh of this number of services, a tenth of them with rules, and starts the
    /// control plane on it.
    ///
    /// # Errors
    /// If the mesh cannot be written, or the control plane does not become ready.
    pub(crate) async fn start(
        programs: &'a Programs,
        services: usize,
        environment: &[(&str, &str)],
        args: &[String],
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let rules = (services / 10).max(8);
        let sizes = [
            ("--services", services),
            ("--endpoints", 10),
            ("--namespaces", NAMESPACES),
            ("--virtual-services", rules),
            ("--destination-rules", rules),
        ];

        let size: Vec<String> = sizes
            .iter()
            .flat_map(|(flag, size)| [(*flag).to_owned(), size.to_string()])
            .collect();
        let mesh = folder.path().join("mesh");
        run(Command::new(&programs.xdsload)
            .arg("generate")
            .arg("--config-dir")
            .arg(&mesh)
            .args(&size))?;

        let mut all = vec![format!(
            "--mesh-config={}",
            programs.root.join("deploy/samples/mesh.yaml").display()
        )];
        all.extend_from_slice(args);
        let navarch =
            Navarch::start_at(&programs.navarch, &mesh, &all, environment, Addresses::ANY).await?;

        Ok(Self {
            programs,
            navarch,
            size,
            folder,
        })
    }

    /// Connects a number of proxies with further arguments, and returns them when their plan is
    /// finished. Until then, `meanwhile` is called regularly with their output so far.
    ///
    /// # Errors
    /// If they fail, or take too long.
    pub(crate) async fn proxies(
        &self,
        count: usize,
        more: &[&str],
        mut meanwhile: impl FnMut(&str) -> Result<()>,
    ) -> Result<Proxies> {
        let report = self.folder.path().join("proxies.json");
        let mut args: Vec<String> = ["run", "--hold", "--proxies", &count.to_string()]
            .map(str::to_owned)
            .to_vec();
        let flags = [
            ("--server", self.navarch.xds.to_string()),
            ("--pid", self.navarch.pid().to_string()),
            ("--proxy-namespaces", NAMESPACES.to_string()),
            ("--config-dir", self.mesh().display().to_string()),
            ("--out", report.display().to_string()),
        ];

        args.extend(
            flags
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value]),
        );
        args.extend(self.size.iter().cloned());
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        args.push("--changes".to_owned());

        let mut process = Process::start(
            "xdsload",
            &self.programs.xdsload,
            &args,
            &self.folder.path().join("proxies.log"),
        )?;

        let end = Instant::now() + SYNC_TIMEOUT;

        loop {
            let output = process.output();
            meanwhile(&output)?;
            if output.contains(HOLDING) {
                return Ok(Proxies { process, report });
            }
            process.check_running()?;
            ensure!(
                Instant::now() < end,
                "the proxies did not finish within {SYNC_TIMEOUT:?}:\n{output}"
            );
            sleep(POLL_INTERVAL).await;
        }
    }

    /// The directory that the control plane watches.
    pub(crate) fn mesh(&self) -> PathBuf {
        self.folder.path().join("mesh")
    }

    /// A VirtualService that all proxies use: its namespace, name and file.
    pub(crate) fn rule(&self) -> (String, &'static str, PathBuf) {
        let namespace = format!("ns{}", 7 % NAMESPACES);
        let file = self
            .mesh()
            .join(format!("virtualservice/vs7.{namespace}.yaml"));
        (namespace, "vs7", file)
    }

    /// Runs a `navarch` command against this control plane, and returns its duration and its
    /// output.
    ///
    /// # Errors
    /// If the command fails.
    pub(crate) fn ask(&self, args: &[&str]) -> Result<(Duration, Value)> {
        let mut command = Command::new(&self.programs.navarch);
        command.args(args).args([
            "-o",
            "json",
            "--address",
            &self.navarch.monitoring.to_string(),
        ]);
        let begun = Instant::now();
        let output = run(&mut command)?;
        let took = begun.elapsed();
        Ok((took, serde_json::from_slice(&output.stdout)?))
    }

    /// The value of a metric without labels.
    ///
    /// # Errors
    /// If the metric does not exist.
    pub(crate) async fn metric(&self, name: &str) -> Result<f64> {
        let metrics = self.navarch.metrics().await?;
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.with_context(|| format!("{name} is not among the metrics"))?
            .parse()
            .context("a number")
    }

    /// A directory for its output files.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Proxies {
    /// Stops the proxies, and returns their report.
    ///
    /// # Errors
    /// If they do not exit.
    pub(crate) async fn end(self) -> Result<Value> {
        if !self.process.stop(EXIT_TIMEOUT).await? {
            bail!("the proxies did not end within {EXIT_TIMEOUT:?}");
        }
        let report = std::fs::read(&self.report)
            .with_context(|| format!("cannot read {}", self.report.display()))?;
        let report: Value = serde_json::from_slice(&report)?;
        ensure!(report["broken"] == 0, "{} streams broke", report["broken"]);
        Ok(report)
    }
}

/// Runs a command; if it fails, the error contains its stderr.
fn run(command: &mut Command) -> Result<Output> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}
