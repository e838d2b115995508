//! Starting the process.

use std::process::Stdio;

use tokio::process::{Child, Command};

/// What is started, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Words before the program that bind its life to the agent's; the program alone if empty.
    pub launcher: Vec<String>,
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables beside the agent's own.
    pub variables: Vec<(String, String)>,
    /// The user and group to run under, where it is another than the agent's.
    pub user: Option<u32>,
}

impl Launch {
    /// Starts the process. Its log goes where the agent's output goes.
    pub(super) fn start(&self) -> std::io::Result<Child> {
        let words: Vec<_> = self.launcher.iter().chain([&self.program]).collect();
        let (first, rest) = words.split_first().expect("the program is always there");
        let mut command = Command::new(first);
        command.args(rest).args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let child = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?;
        tracing::info!(pid = child.id(), program = self.program, arguments = ?self.arguments, "started Envoy");
        Ok(child)
    }
}
