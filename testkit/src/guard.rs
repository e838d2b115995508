//! Ends the processes of a test when the test process has ended, in whatever way.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A shell that waits for the end of its input, which comes when the other end of the pipe is
/// closed: when the guard is dropped, and when the process that holds it ends by a panic, an exit
/// or SIGKILL.
///
/// It then kills processes, or runs a command that ends them, and removes a directory that no
/// process writes to any more.
#[derive(Debug)]
pub struct Guard {
    shell: Child,
}

impl Guard {
    /// Guards processes, and their directory.
    ///
    /// # Errors
    /// If there is no shell.
    pub fn over(pids: &[u32], folder: Option<&Path>) -> Result<Self> {
        let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
        let kill = r#"[ $# -eq 0 ] || kill -KILL "$@" 2>/dev/null; [ -z "$folder" ] || sleep 1"#;
        Self::wait(kill, &pids, folder)
    }

    /// Runs a command at the end, then removes the directory.
    ///
    /// # Errors
    /// If there is no shell.
    pub fn running(command: &[&OsStr], folder: Option<&Path>) -> Result<Self> {
        Self::wait(r#""$@" >/dev/null 2>&1"#, command, folder)
    }

    /// Starts the waiting shell, which then runs `then` with `words` as arguments, and removes the
    /// directory.
    fn wait(then: &str, words: &[impl AsRef<OsStr>], folder: Option<&Path>) -> Result<Self> {
        let script = format!(
            "folder=$1; shift; read -r _\n{then}\n[ -z \"$folder\" ] || rm -rf \"$folder\""
        );
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", &script, "guard"])
            .arg(folder.unwrap_or(Path::new("")))
            .args(words);

        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());

        // In its own process group, so that Ctrl-C at the terminal does not end it before its work
        // is done.
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        Ok(Self {
            shell: shell.spawn().context("cannot start /bin/sh")?,
        })
    }
}

impl Guard {
    /// Ends the guard, and leaves its processes alone.
    pub fn release(mut self) {
        drop(self.shell.kill());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        drop(self.shell.wait());
    }
}
