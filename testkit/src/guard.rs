//! Ends what a test started when the test process has ended, however that happened.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A shell that waits for the end of its input, which comes when nobody holds the other end any more: so when the guard is
/// dropped, and when the process that holds it ends by a panic, an exit or SIGKILL.
///
/// It then kills processes, or runs a command that ends them; a folder is removed when nobody writes to it any more.
#[derive(Debug)]
pub struct Guard {
    shell: Child,
}

impl Guard {
    /// Watches over processes, and the folder that they live in.
    ///
    /// # Errors
    /// When there is no shell.
    pub fn over(pids: &[u32], folder: Option<&Path>) -> Result<Self> {
        let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
        let kill = r#"[ $# -eq 0 ] || kill -KILL "$@" 2>/dev/null; [ -z "$folder" ] || sleep 1"#;
        Self::wait(kill, &pids, folder)
    }

    /// Runs a command when the end has come, then removes the folder.
    ///
    /// # Errors
    /// When there is no shell.
    pub fn running(command: &[&OsStr], folder: Option<&Path>) -> Result<Self> {
        Self::wait(r#""$@" >/dev/null 2>&1"#, command, folder)
    }

    /// Starts the shell that waits, does `then` with `words` as its arguments, and removes the folder.
    fn wait(then: &str, words: &[impl AsRef<OsStr>], folder: Option<&Path>) -> Result<Self> {
        let script = format!("folder=$1; shift; read -r _\n{then}\n[ -z \"$folder\" ] || rm -rf \"$folder\"");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &script, "guard"]).arg(folder.unwrap_or(Path::new(""))).args(words);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own, so that Ctrl-C at the terminal does not end it before its work.
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        Ok(Self { shell: shell.spawn().context("cannot start /bin/sh")? })
    }
}

impl Guard {
    /// Sends it home: its processes are left alone.
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
