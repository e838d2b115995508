//! Ends processes when the test process has ended, however that happened.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A shell that waits for the end of its input, which comes when nobody holds the other end any more: so when the guard is
/// dropped, and when the process that holds it ends by a panic, an exit or SIGKILL.
///
/// It then kills the processes; a folder is removed a second later, when nobody writes to it any more.
#[derive(Debug)]
pub struct Guard {
    /// The shell.
    shell: Child,
}

impl Guard {
    /// Watches over processes, and the folder that they live in.
    ///
    /// # Errors
    /// When there is no shell.
    pub fn over(pids: &[u32], folder: Option<&Path>) -> Result<Self> {
        let script = r#"folder=$1; shift; read -r _; [ $# -eq 0 ] || kill -KILL "$@" 2>/dev/null
            [ -z "$folder" ] || { sleep 1; rm -rf "$folder"; }"#;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script, "guard"]).arg(folder.unwrap_or(Path::new("")));
        shell.args(pids.iter().map(ToString::to_string));
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
