//! The programs that change the kernel's tables: which variant works here, and how they are run.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::families::Family;

/// A variant of the tools that works in this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tool {
    /// The program for single rules; those to save and to restore have suffixes.
    program: String,
    /// Whether the programs need `--wait` to wait for the xtables lock.
    locks: bool,
    /// Where the lock is, in place of the machine's.
    lock_file: Option<String>,
}

/// What a tool could not do.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No variant works.
    #[error("no variant of {0} works: check that the kernel modules are loaded and that the process has NET_ADMIN")]
    None(&'static str),
    /// The program could not be started.
    #[error("failed to run {program}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// The program failed.
    #[error("{command} failed: {message}")]
    Failed {
        /// What was run.
        command: String,
        /// What it said.
        message: String,
    },
}

impl Tool {
    /// Finds the variant to use: the one asked for, else the legacy one where it has rules, else nftables, else whatever
    /// bears the plain name.
    pub(super) fn find(family: Family, forced: &str, lock_file: Option<&str>) -> Result<Self, ToolError> {
        let plain = family.program();
        let variants: &[&str] = match forced {
            "" => &["-legacy", "-nft", ""],
            "nft" => &["-nft"],
            _ => &["-legacy"],
        };
        for variant in variants {
            // Trying the legacy tools makes their tables, which then lie beside those of nftables for good.
            let only_with_rules = forced.is_empty() && *variant == "-legacy";
            let Some(tool) = Self::try_variant(&format!("{plain}{variant}"), only_with_rules) else { continue };
            tracing::debug!(program = tool.program, "selected an iptables variant");
            return Ok(Self { lock_file: lock_file.map(str::to_owned), ..tool });
        }
        Err(ToolError::None(plain))
    }

    /// The variant of a name; `None` where it does not work here, or has no rules though it should.
    fn try_variant(program: &str, only_with_rules: bool) -> Option<Self> {
        let saved = run(&format!("{program}-save"), &[], None).ok()?;
        if only_with_rules && !saved.lines().any(|line| line.starts_with("-A")) {
            return None;
        }
        let version = run(&format!("{program}-save"), &["--version".to_owned()], None).unwrap_or_default();
        let tool = Self { program: program.to_owned(), locks: needs_lock(&version), lock_file: None };
        // A rule for a protocol that nobody speaks tells whether the kernel takes any.
        let probe = |operation: &str| {
            let words = ["-t", "nat", operation, "INPUT", "-p", "255", "-j", "RETURN"].map(str::to_owned);
            tool.run(&words)
        };
        probe("-A").ok()?;
        if let Err(error) = probe("-D") {
            tracing::warn!(%error, "failed to remove the probe rule");
        }
        Some(tool)
    }

    /// Runs a command on single rules or chains.
    pub(super) fn run(&self, arguments: &[String]) -> Result<String, ToolError> {
        self.write(&self.program, arguments, None)
    }

    /// The rules there are.
    pub(super) fn save(&self) -> Result<String, ToolError> {
        run(&format!("{}-save", self.program), &[], None)
    }

    /// Adds rules to those there are, all or none of each table.
    pub(super) fn restore(&self, text: &str) -> Result<String, ToolError> {
        self.write(&format!("{}-restore", self.program), &["--noflush".to_owned()], Some(text))
    }

    /// Runs a program that changes tables.
    fn write(&self, program: &str, arguments: &[String], input: Option<&str>) -> Result<String, ToolError> {
        let mut command = Command::new(program);
        command.args(arguments);
        if self.locks {
            command.arg("--wait=30");
            command.envs(self.lock_file.iter().map(|path| ("XTABLES_LOCKFILE", path)));
        }
        finish(program, arguments, command, input)
    }
}

/// Whether a version of the tools needs `--wait` to wait for the xtables lock: legacy variants from 1.6.2 on.
fn needs_lock(version: &str) -> bool {
    let number = version.split_whitespace().find_map(|word| word.strip_prefix('v')).unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let parts = [parts.next(), parts.next(), parts.next()].map(Option::unwrap_or_default);
    !version.contains("nf_tables") && parts >= [1, 6, 2]
}

/// Runs a program and gives what it wrote.
pub(super) fn run(program: &str, arguments: &[String], input: Option<&str>) -> Result<String, ToolError> {
    let mut command = Command::new(program);
    command.args(arguments);
    finish(program, arguments, command, input)
}

/// Runs a command to its end.
fn finish(program: &str, arguments: &[String], mut command: Command, input: Option<&str>) -> Result<String, ToolError> {
    let start = |source| ToolError::Start { program: program.to_owned(), source };
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(start)?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        stdin.write_all(input.as_bytes()).map_err(start)?;
    }
    let output = child.wait_with_output().map_err(start)?;
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if !output.status.success() {
        let command = format!("{program} {}", arguments.join(" "));
        return Err(ToolError::Failed { command, message });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_legacy_tools_that_know_of_locks_wait_for_them() {
        assert!(needs_lock("iptables-save v1.8.7 (legacy)"));
        assert!(needs_lock("iptables-save v1.6.2"));
        assert!(!needs_lock("iptables-save v1.8.7 (nf_tables)"));
        assert!(!needs_lock("iptables-save v1.6.1"));
        assert!(!needs_lock(""));
    }
}
