//! `proxy`: starts Envoy and stands by it.

use anyhow::Context as _;

use crate::command::ProxyCommand;
use crate::ignored;
use crate::run::{self, Environment};
use crate::variables::Variables;
use navarch_api::huge_pages;

/// The most threads for what blocks.
const MAX_BLOCKING_THREADS: usize = 8;
const STACK_SIZE: usize = 1 << 20;

/// Runs until Envoy exits or the agent receives a termination signal.
pub(super) fn run(arguments: &[String], variables: &Variables) -> anyhow::Result<i32> {
    huge_pages::do_without_huge_pages();
    let command = ProxyCommand::read(arguments, variables)?;
    let unknown = super::log::start(&command.log_output_level, command.settings.log_json)?;
    super::say_ignored("--log_output_level: scopes that do not exist here", &unknown);
    super::say_ignored("flags that have no effect", &command.without_effect);
    super::say_ignored("environment variables of pilot-agent that have no effect", &ignored::ignored(variables));
    // One thread serves all: what the agent does is small, and the kernel binds Envoy to the thread that started it.
    // Files and names of hosts are looked up on a few more, which end when there is nothing to do.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_stack_size(STACK_SIZE)
        .build()
        .context("failed to start the tokio runtime")?;
    #[expect(clippy::disallowed_methods, reason = "this is where the clock is handed out")]
    let clock = std::time::SystemTime::now;
    let launcher = launcher().context("failed to find the agent's executable")?;
    Ok(runtime.block_on(run::run(&command, variables, &Environment { launcher, clock }))?)
}

/// What starts a program that ends with the agent: the agent's own program, and words before the other's.
fn launcher() -> std::io::Result<Vec<String>> {
    let own = std::env::current_exe()?.to_string_lossy().into_owned();
    Ok(launcher_of(own, std::process::id()))
}

/// The launcher where the agent's own program is the file `own`. A file named `pilot-agent` takes the agent's commands
/// as its own, where that of `navarch` is a subcommand; a symbolic link counts as the file that it leads to.
fn launcher_of(own: String, parent: u32) -> Vec<String> {
    let subcommand = super::command_of_name(Some(&own)).is_none().then(|| "agent".to_owned());
    let command = [super::exec::COMMAND.to_owned(), parent.to_string()];
    std::iter::once(own).chain(subcommand).chain(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_named_pilot_agent_starts_itself_by_its_own_commands() {
        let words = |own: &str| launcher_of(own.to_owned(), 7);
        assert_eq!(words("/usr/local/bin/pilot-agent"), ["/usr/local/bin/pilot-agent", "exec-with-parent", "7"]);
        assert_eq!(words("/usr/local/bin/navarch"), ["/usr/local/bin/navarch", "agent", "exec-with-parent", "7"]);
    }
}
