//! Starts the Envoy process.

use std::process::Stdio;

use tokio::process::{Child, Command};

use super::HotRestart;

/// The program and its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The command prefix that binds the program's life to the agent's; may be empty.
    pub launcher: Vec<String>,
    /// Path of Envoy: `binaryPath` of the proxy config. With a launcher, it follows the launcher's
    /// words.
    pub program: String,
    /// Those of Envoy, beginning with `-c` and the bootstrap's path, without the name of the
    /// program.
    pub arguments: Vec<String>,
    /// Variables in addition to the agent's own.
    pub variables: Vec<(String, String)>,
    /// The user and group of the process, if different from the agent's.
    pub user: Option<u32>,
    /// How a next epoch takes over; `None` if the arguments disable hot restart.
    pub hot_restart: Option<HotRestart>,
}

impl Launch {
    /// Starts the process, with the further arguments of its epoch. It inherits the agent's standard
    /// output and error.
    pub(super) fn start(&self, epoch_arguments: &[String]) -> std::io::Result<Child> {
        let words: Vec<_> = self.launcher.iter().chain([&self.program]).collect();
        let (first, rest) = words.split_first().expect("the program is always there");

        let mut command = Command::new(first);
        command
            .args(rest)
            .args(&self.arguments)
            .args(epoch_arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }

        let child = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?;
        tracing::info!(pid = child.id(), program = self.program, arguments = ?self.arguments, ?epoch_arguments, "started Envoy");
        Ok(child)
    }
}
