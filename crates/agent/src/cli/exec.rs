//! The intermediate step between the agent and Envoy: a process that is killed with the agent, and
//! then becomes Envoy.
//!
//! A child that the kernel kills with its parent must request that itself, between fork and exec.
//! Code there is unsafe in Rust, so the agent executes itself again, and that process makes the
//! request and then executes Envoy.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, ensure};
use nix::sys::prctl::{set_pdeathsig, set_thp_disable};
use nix::sys::signal::Signal;
use nix::unistd::getppid;

/// The command's name; only the agent uses it.
pub(super) const COMMAND: &str = "exec-with-parent";

/// Executes the program that follows the parent's process ID.
pub(super) fn run(arguments: &[String]) -> anyhow::Result<i32> {
    let (parent, command) = arguments
        .split_first()
        .context("the parent's process ID is missing")?;
    let (program, arguments) = command.split_first().context("the program is missing")?;
    set_pdeathsig(Signal::SIGKILL).context("failed to set the parent-death signal")?;
    // The agent disables huge pages for itself only. This call fails on kernels without support,
    // where they were not disabled.
    let _ = set_thp_disable(false);
    // The parent may have exited before the request to the kernel.
    ensure!(
        getppid().as_raw().to_string() == *parent,
        "the agent has exited"
    );
    Err(Command::new(program).args(arguments).exec())
        .with_context(|| format!("failed to start {program}"))
}
