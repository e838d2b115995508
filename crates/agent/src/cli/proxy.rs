//! `proxy`: starts Envoy and manages it.

use std::ffi::OsString;

use anyhow::{Context as _, anyhow};

use crate::command::ProxyCommand;
use crate::run::{self, Environment};
use crate::start_log;
use crate::variables::Variables;
use navarch_net::cryptography;
use navarch_process::huge_pages;

/// Maximum number of threads for blocking work.
const MAX_BLOCKING_THREADS: usize = 8;
const STACK_SIZE: usize = 1 << 20;

/// Runs until Envoy exits or the agent receives a termination signal. `not_utf8` are the names of
/// variables that are ignored.
pub(super) fn run(
    arguments: &[String],
    variables: &Variables,
    not_utf8: &[String],
) -> anyhow::Result<i32> {
    huge_pages::disable_huge_pages();
    let command = ProxyCommand::read(arguments, variables)?;
    let unknown = super::log::start(&command.log_output_level, command.settings.log_json)?;
    start_log::log_flags(&command.flags);
    super::warn_ignored("unknown scopes in --log_output_level", &unknown);
    super::warn_ignored("flags that have no effect", &command.without_effect);
    super::warn_ignored(
        "environment variables that are ignored, because they are not UTF-8 text",
        not_utf8,
    );

    cryptography::warn_unknown(&command.settings.compliance_policy);

    // One thread is enough for the agent's work, and the kernel binds Envoy to the thread that
    // started it. Files and host names are read on a few more, which end when they are idle.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_stack_size(STACK_SIZE)
        .build()
        .context("failed to start the tokio runtime")?;

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the only place that reads the clock"
    )]
    let clock = std::time::SystemTime::now;
    let launcher = launcher().context("failed to find the agent's executable")?;

    Ok(runtime.block_on(run::run(
        &command,
        variables,
        &Environment { launcher, clock },
    ))?)
}

/// The command prefix that starts a program which is killed with the agent.
fn launcher() -> anyhow::Result<Vec<String>> {
    let own = std::env::current_exe()?.into_os_string();
    launcher_of(own, std::process::id())
}

/// The prefix for the agent's own program file `own`. A file named `pilot-agent` accepts the
/// agent's commands directly, one named `navarch` as a subcommand; symbolic links are resolved.
fn launcher_of(own: OsString, parent: u32) -> anyhow::Result<Vec<String>> {
    let own = own
        .into_string()
        .map_err(|own| anyhow!("its path {own:?} is not UTF-8 text"))?;
    let subcommand = super::command_of_name(Some(&own))
        .is_none()
        .then(|| "agent".to_owned());
    let command = [super::exec::COMMAND.to_owned(), parent.to_string()];
    Ok(std::iter::once(own)
        .chain(subcommand)
        .chain(command)
        .collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn a_binary_named_pilot_agent_runs_agent_commands() {
        let words = |own: &str| launcher_of(own.into(), 7).unwrap();
        assert_eq!(
            words("/usr/local/bin/pilot-agent"),
            ["/usr/local/bin/pilot-agent", "exec-with-parent", "7"]
        );
        assert_eq!(
            words("/usr/local/bin/navarch"),
            ["/usr/local/bin/navarch", "agent", "exec-with-parent", "7"]
        );
    }

    #[test]
    fn a_path_that_is_not_text_is_no_launcher() {
        let own = OsString::from_vec(b"/opt/\xff/pilot-agent".to_vec());
        let error = launcher_of(own, 7).unwrap_err().to_string();
        assert_eq!(
            error,
            r#"its path "/opt/\xFF/pilot-agent" is not UTF-8 text"#
        );
    }
}
