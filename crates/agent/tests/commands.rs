//! The command line of the real `pilot-agent`: help, and the names under which Istio's pods call
//! it.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail loudly and spawn"
)]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pilot-agent");

/// Runs the program with an empty environment; it must exit by itself.
fn run(program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command
        .arg("60")
        .arg(program)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null());
    command.output().unwrap()
}

/// Runs a command with `--help`, which must have no other effect.
fn helps(program: &Path, arguments: &[&str], usage: &str) {
    let output = run(program, arguments);
    let out = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && out.contains(usage) && error.is_empty(),
        "{arguments:?}: {out} {error}"
    );
}

#[test]
fn each_command_has_help_by_every_name_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| {
        let path = folder.path().join(name);
        symlink(PROGRAM, &path).unwrap();
        path
    };

    helps(
        Path::new(PROGRAM),
        &["--help"],
        "Usage: pilot-agent <COMMAND>",
    );

    for command in [
        "proxy",
        "request",
        "wait",
        "istio-iptables",
        "istio-clean-iptables",
        "version",
    ] {
        helps(
            Path::new(PROGRAM),
            &[command, "--help"],
            &format!("Usage: pilot-agent {command}"),
        );
    }

    for command in ["istio-iptables", "istio-clean-iptables"] {
        helps(
            &named(command),
            &["--help"],
            &format!("Usage: pilot-agent {command}"),
        );
    }
}

#[test]
fn an_unknown_command_fails_with_those_that_there_are() {
    let output = run(Path::new(PROGRAM), &["fly"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && error.contains("\"fly\"") && error.contains("istio-iptables"),
        "{error}"
    );
}

#[test]
fn a_program_starts_with_the_agent_as_its_parent_under_any_file_name() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("agent-of-the-node");
    std::fs::copy(PROGRAM, &other).unwrap();
    // The command that the agent runs before Envoy, here before `true`; its parent is `timeout`,
    // not the process with the given id.
    for (program, words) in [
        (Path::new(PROGRAM), &["exec-with-parent", "1", "true"][..]),
        (&other, &["agent", "exec-with-parent", "1", "true"]),
    ] {
        let output = run(program, words);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("the agent has exited"), "{words:?}: {error}");
    }
}
