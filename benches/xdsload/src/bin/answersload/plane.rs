//! A control plane on a mesh made to measure, and proxies that are connected to it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::process::Process;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// How long proxies may take to come into sync, and to obey.
const SYNC_TIMEOUT: Duration = Duration::from_mins(10);
/// How long they may take to end.
const END: Duration = Duration::from_secs(60);
/// The pause between two looks at what they say.
const LOOK: Duration = Duration::from_millis(20);
/// What they say once they have done all, and stay.
const HOLDING: &str = "stay connected until SIGTERM";
/// Namespaces over which services and proxies are spread.
const NAMESPACES: usize = 10;

/// What is started.
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
    /// The flags that say how large its mesh is.
    size: Vec<String>,
    /// What it reads is in `mesh`.
    folder: TempDir,
}

#[derive(Debug)]
pub(crate) struct Proxies {
    process: Process,
    /// Where they write what they saw, at their end.
    report: PathBuf,
}

impl<'a> Plane<'a> {
    /// Makes a mesh of so many services, a tenth of them with rules, and starts the control plane
    /// on it.
    ///
    /// # Errors
    /// When the mesh cannot be written, or the control plane does not get ready.
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

    /// Connects so many proxies, tells them what else to do, and gives them once they have done it.
    /// `meanwhile` is given what they have said so far, again and again.
    ///
    /// # Errors
    /// When they fail, or take too long.
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
            sleep(LOOK).await;
        }
    }

    /// The directory that the control plane reads.
    pub(crate) fn mesh(&self) -> PathBuf {
        self.folder.path().join("mesh")
    }

    /// A VirtualService that reaches all proxies: its namespace, its name and its file.
    pub(crate) fn rule(&self) -> (String, &'static str, PathBuf) {
        let namespace = format!("ns{}", 7 % NAMESPACES);
        let file = self
            .mesh()
            .join(format!("virtualservice/vs7.{namespace}.yaml"));
        (namespace, "vs7", file)
    }

    /// Runs a command of `navarch` that asks this control plane, and gives how long that took and
    /// what it printed.
    ///
    /// # Errors
    /// When it fails.
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

    /// One of its metrics that has no labels.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn metric(&self, name: &str) -> Result<f64> {
        let metrics = self.navarch.metrics().await?;
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.with_context(|| format!("{name} is not among the metrics"))?
            .parse()
            .context("a number")
    }

    /// A folder of its own for what it writes.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Proxies {
    /// Ends them, and gives what they saw.
    ///
    /// # Errors
    /// When they do not end.
    pub(crate) async fn end(self) -> Result<Value> {
        if !self.process.stop(END).await? {
            bail!("the proxies did not end within {END:?}");
        }
        let report = std::fs::read(&self.report)
            .with_context(|| format!("cannot read {}", self.report.display()))?;
        let report: Value = serde_json::from_slice(&report)?;
        ensure!(report["broken"] == 0, "{} streams broke", report["broken"]);
        Ok(report)
    }
}

/// Runs a command, and fails with what it says.
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
