//! The step between the agent and its Envoy: a process that is bound to the agent's life and becomes Envoy.
//!
//! A child that the kernel is to kill with its parent has to ask for it itself, between fork and exec. Code there is unsafe
//! in Rust, so the agent starts itself once more, and that process asks and then turns into Envoy.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, ensure};
use nix::sys::prctl::{set_pdeathsig, set_thp_disable};
use nix::sys::signal::Signal;
use nix::unistd::getppid;

/// The command's name; it is for the agent alone.
pub(super) const COMMAND: &str = "exec-with-parent";

/// Becomes the program that follows the parent's id.
pub(super) fn run(arguments: &[String]) -> anyhow::Result<i32> {
    let (parent, command) = arguments.split_first().context("the parent's process ID is missing")?;
    let (program, arguments) = command.split_first().context("the program is missing")?;
    set_pdeathsig(Signal::SIGKILL).context("failed to set the parent-death signal")?;
    // The agent does without huge pages for itself alone; a kernel that does not know them had none to take away.
    let _ = set_thp_disable(false);
    // The parent may have gone before the kernel was asked.
    ensure!(getppid().as_raw().to_string() == *parent, "the agent has exited");
    Err(Command::new(program).args(arguments).exec()).with_context(|| format!("failed to start {program}"))
}
