//! `proxy`: starts Envoy and stands by it.

use anyhow::Context as _;

use crate::agent::command::ProxyCommand;
use crate::agent::run::{self, Surroundings};
use crate::agent::variables::Variables;
use crate::cli::memory;

/// The most threads for what blocks.
const BLOCKING: usize = 8;
/// Their stacks.
const STACK: usize = 1 << 20;

/// Runs until Envoy has ended or the agent is told to end.
pub(super) fn run(arguments: &[String], variables: &Variables) -> anyhow::Result<i32> {
    memory::do_without_huge_pages();
    let command = ProxyCommand::read(arguments, variables)?;
    super::start_log(&command.log_output_level, command.settings.log_json)?;
    // One thread serves all: what the agent does is small, and the kernel binds Envoy to the thread that started it.
    // Files and names of hosts are looked up on a few more, which end when there is nothing to do.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING)
        .thread_stack_size(STACK)
        .build()
        .context("no runtime")?;
    #[expect(clippy::disallowed_methods, reason = "this is where the clock is handed out")]
    let clock = std::time::SystemTime::now;
    let launcher = launcher().context("the agent's own program cannot be found")?;
    Ok(runtime.block_on(run::run(&command, variables, &Surroundings { launcher, clock }))?)
}

/// What starts a program that ends with the agent: the agent's own program, and words before the other's.
fn launcher() -> std::io::Result<Vec<String>> {
    let own = std::env::current_exe()?.to_string_lossy().into_owned();
    Ok(vec![own, "agent".to_owned(), super::exec::COMMAND.to_owned(), std::process::id().to_string()])
}
