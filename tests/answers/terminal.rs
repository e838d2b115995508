//! The output of `navarch plan` on a terminal and in a pipe.

use std::process::Command;

use navarch_testkit::skip::skip;

use crate::{edited, sample};

/// The output of a plan on a terminal, or in a pipe.
fn printed(on_terminal: bool, environment: &[(&str, &str)]) -> String {
    let change = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(
        change.path(),
        edited("reviews-routing.yaml", &[("weight: 90", "weight: 50")]),
    )
    .unwrap();
    let program = env!("CARGO_BIN_EXE_navarch");
    let change = change.path().display().to_string();

    let sample = sample().display().to_string();
    let mut command = if on_terminal {
        let mut command = Command::new("script");
        command.args([
            "-qec",
            &format!("{program} plan -f {change} --against {sample}"),
            "/dev/null",
        ]);
        command
    } else {
        let mut command = Command::new(program);
        command.args(["plan", "-f", &change, "--against", &sample]);
        command
    };

    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("TERM", "xterm")
        .envs(environment.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");

    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn colours_are_for_terminals_and_no_color_disables_them() {
    if Command::new("script").arg("--version").output().is_err() {
        return skip("`script` (util-linux) is not installed");
    }

    let green = "\u{1b}[32m      +  ";
    assert!(
        printed(true, &[]).contains(green),
        "{:?}",
        printed(true, &[])
    );
    let plain = printed(true, &[("NO_COLOR", "1")]);
    assert!(
        plain.contains("      +  ") && !plain.contains("\u{1b}[3"),
        "{plain:?}"
    );

    let piped = printed(false, &[]);
    assert!(
        piped.contains("      +  ") && !piped.contains('\u{1b}'),
        "{piped:?}"
    );
}
