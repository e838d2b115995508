//! A child process whose output goes to a file and that ends with its handle.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::Instant;

/// The termination signal.
const SIGTERM: i32 = 15;

/// A running child process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The file with its output.
    log: PathBuf,
    /// The name in errors.
    name: String,
}

impl Process {
    /// Starts a program with its output in `log`.
    ///
    /// # Errors
    /// If the program cannot be started or the log cannot be written.
    pub fn start(name: &str, program: &Path, args: &[String], log: &Path) -> Result<Self> {
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self {
            child,
            log: log.to_owned(),
            name: name.to_owned(),
        })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The output so far.
    #[must_use]
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Fails with the end of its output if the process has ended.
    ///
    /// # Errors
    /// If it is no longer running.
    pub fn check_running(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            // The reason precedes a possible stack trace.
            let output = self.output();
            let lines: Vec<&str> = output.lines().collect();
            let (head, rest) = lines.split_at(lines.len().min(10));
            let tail = rest.split_at(rest.len().saturating_sub(30)).1;
            bail!(
                "{} ended with {status}:\n{}\n…\n{}",
                self.name,
                head.join("\n"),
                tail.join("\n")
            );
        }
        Ok(())
    }

    /// Sends a signal by name, such as `TERM` or `USR1`.
    ///
    /// # Errors
    /// If it cannot be signalled.
    pub fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.pid().to_string())
            .status()?;
        anyhow::ensure!(
            status.success(),
            "failed to send SIG{name} to {}",
            self.name
        );
        Ok(())
    }

    /// Sends SIGTERM and waits; kills it after `patience`. Returns whether it ended by itself.
    ///
    /// # Errors
    /// If it crashes, or waiting fails.
    pub async fn stop(mut self, patience: Duration) -> Result<bool> {
        let end = Instant::now() + patience;
        self.signal("TERM")?;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                let crashed = status.signal().filter(|signal| *signal != SIGTERM);
                anyhow::ensure!(crashed.is_none(), "{} crashed: {status}", self.name);
                return Ok(true);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(false)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
