//! The programs that change the kernel's tables: selection of a working variant, and execution.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::families::IpFamily;

/// The program that changes the tables with `--native-nftables`.
pub(super) const NFT: &str = "nft";

/// Every program that traffic capture may run: an image that captures traffic must have them all.
pub fn programs() -> impl Iterator<Item = String> {
    let variants = |family: IpFamily| {
        ["", "-nft", "-legacy"]
            .into_iter()
            .flat_map(move |variant| {
                let program = family.program();
                ["", "-save", "-restore"].map(|action| format!("{program}{variant}{action}"))
            })
    };
    [IpFamily::V4, IpFamily::V6]
        .into_iter()
        .flat_map(variants)
        .chain([NFT.to_owned()])
}

/// A variant of the iptables tools that works in this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tool {
    /// The program for single rules; the programs for saving and restoring have suffixes.
    program: String,
    /// Whether the programs need `--wait` for the xtables lock.
    locks: bool,
    /// The path of the lock file, instead of the machine's lock file.
    lock_file: Option<String>,
}

/// Why a tool failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No variant of the tools works.
    #[error(
        "no variant of {0} works: check that the kernel modules are loaded and that the process has NET_ADMIN"
    )]
    None(&'static str),
    /// The program could not be started.
    #[error("failed to run {program}")]
    Start {
        /// The program that could not be started.
        program: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The program failed.
    #[error("{command} failed: {message}")]
    Failed {
        /// The command line.
        command: String,
        /// The program's error output.
        message: String,
    },
}

impl Tool {
    /// Selects the variant: the forced one, else the legacy variant if it has rules, else nftables,
    /// else the program without a suffix.
    pub(super) fn find(
        family: IpFamily,
        forced: &str,
        lock_file: Option<&str>,
    ) -> Result<Self, ToolError> {
        let plain = family.program();
        let variants: &[&str] = match forced {
            "" => &["-legacy", "-nft", ""],
            "nft" => &["-nft"],
            _ => &["-legacy"],
        };

        for variant in variants {
            // Probing the legacy tools creates their tables, which then remain beside the nftables
            // tables.
            let only_with_rules = forced.is_empty() && *variant == "-legacy";
            let Some(tool) = Self::try_variant(&format!("{plain}{variant}"), only_with_rules)
            else {
                continue;
            };
            tracing::debug!(program = tool.program, "selected an iptables variant");
            return Ok(Self {
                lock_file: lock_file.map(str::to_owned),
                ..tool
            });
        }

        Err(ToolError::None(plain))
    }

    /// Tests a variant; `None` if the variant does not work here, or lacks rules with
    /// `only_with_rules`.
    fn try_variant(program: &str, only_with_rules: bool) -> Option<Self> {
        let saved = run(&format!("{program}-save"), &[], None).ok()?;
        if only_with_rules && !saved.lines().any(|line| line.starts_with("-A")) {
            return None;
        }

        let version =
            run(&format!("{program}-save"), &["--version".to_owned()], None).unwrap_or_default();
        let tool = Self {
            program: program.to_owned(),
            locks: needs_lock(&version),
            lock_file: None,
        };

        // A rule for an unused protocol shows whether the kernel accepts rules.
        let probe = |operation: &str| {
            let words =
                ["-t", "nat", operation, "INPUT", "-p", "255", "-j", "RETURN"].map(str::to_owned);
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

    /// The output of `iptables-save`.
    pub(super) fn save(&self) -> Result<String, ToolError> {
        run(&format!("{}-save", self.program), &[], None)
    }

    /// Adds rules without flushing existing ones. Each table is changed atomically.
    pub(super) fn restore(&self, text: &str) -> Result<String, ToolError> {
        self.write(
            &format!("{}-restore", self.program),
            &["--noflush".to_owned()],
            Some(text),
        )
    }

    /// Runs a program that changes tables, with the xtables lock.
    fn write(
        &self,
        program: &str,
        arguments: &[String],
        input: Option<&str>,
    ) -> Result<String, ToolError> {
        let mut command = Command::new(program);
        command.args(arguments);
        if self.locks {
            command.arg("--wait=30");
            command.envs(self.lock_file.iter().map(|path| ("XTABLES_LOCKFILE", path)));
        }
        finish(program, arguments, command, input)
    }
}

/// Whether a version of the tools needs `--wait` to wait for the xtables lock: legacy variants from
/// 1.6.2 on.
fn needs_lock(version: &str) -> bool {
    let number = version
        .split_whitespace()
        .find_map(|word| word.strip_prefix('v'))
        .unwrap_or_default();
    let mut parts = number
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let parts = [parts.next(), parts.next(), parts.next()].map(Option::unwrap_or_default);
    !version.contains("nf_tables") && parts >= [1, 6, 2]
}

/// Runs a program and returns its output.
pub(super) fn run(
    program: &str,
    arguments: &[String],
    input: Option<&str>,
) -> Result<String, ToolError> {
    let mut command = Command::new(program);
    command.args(arguments);
    finish(program, arguments, command, input)
}

/// Runs a command to completion and returns its output.
fn finish(
    program: &str,
    arguments: &[String],
    mut command: Command,
    input: Option<&str>,
) -> Result<String, ToolError> {
    debug_assert!(
        programs().any(|known| known == program),
        "{program} is not among the programs that images must have"
    );
    let start = |source| ToolError::Start {
        program: program.to_owned(),
        source,
    };
    let stdin = if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    };

    command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(start)?;
    // A program that rejects the input may end before it has read all of it. Its message then tells
    // more than the broken pipe.
    let written = match (child.stdin.take(), input) {
        (Some(mut stdin), Some(input)) => stdin.write_all(input.as_bytes()),
        (_, _) => Ok(()),
    };

    let output = child.wait_with_output().map_err(start)?;
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();

    if !output.status.success() {
        let command = format!("{program} {}", arguments.join(" "));
        return Err(ToolError::Failed { command, message });
    }

    written.map_err(start)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_program_that_ends_before_its_input_is_reported() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such chain >&2; exit 2"]);
        // More than a pipe holds.
        let input = "x".repeat(1 << 20);

        let error = finish("iptables-restore", &[], command, Some(&input)).unwrap_err();

        assert!(error.to_string().contains("no such chain"), "{error:?}");
    }

    #[test]
    fn only_legacy_tools_that_know_of_locks_wait_for_them() {
        assert!(needs_lock("iptables-save v1.8.7 (legacy)"));
        assert!(needs_lock("iptables-save v1.6.2"));
        assert!(!needs_lock("iptables-save v1.8.7 (nf_tables)"));
        assert!(!needs_lock("iptables-save v1.6.1"));
        assert!(!needs_lock(""));
    }
}
