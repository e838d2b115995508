//! Stamps the binary with the version that it was built from, and does nothing else.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo and the image's build speak to a build script by environment alone"
)]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=NAVARCH_VERSION");
    println!("cargo::rerun-if-env-changed=NAVARCH_COMMIT");
    // Only a release looks at the repository: else each commit would have everything compiled again.
    let released = std::env::var_os("PROFILE").is_some_and(|profile| profile == "release");
    if released {
        watch_commits();
    }
    stamp("NAVARCH_VERSION", released, &["describe", "--tags", "--always", "--dirty"]);
    stamp("NAVARCH_COMMIT", released, &["rev-parse", "HEAD"]);
}

/// Sets `name` for `env!`: to its own value if the build was given one, else to what git says, else to `dev`.
fn stamp(name: &str, ask_git: bool, question: &[&str]) {
    let given = std::env::var(name).ok().filter(|value| !value.is_empty());
    let value = given.or_else(|| if ask_git { git(question) } else { None });
    println!("cargo::rustc-env={name}={}", value.as_deref().unwrap_or("dev"));
}

/// Has this script run again when a commit, a switch of branches or a tag moves HEAD.
fn watch_commits() {
    let branch = git(&["symbolic-ref", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// What git answers, or nothing where there is no git, no repository or no answer.
fn git(question: &[&str]) -> Option<String> {
    let output = Command::new("git").args(question).output().ok().filter(|output| output.status.success())?;
    let answer = String::from_utf8(output.stdout).ok()?;
    Some(answer.trim().to_owned()).filter(|answer| !answer.is_empty())
}
