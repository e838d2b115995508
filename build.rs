//! Stamps the binary with the version that it was built from, and packs its table of relocations.
//!
//! | variable | default | value |
//! | --- | --- | --- |
//! | `NAVARCH_VERSION`, `NAVARCH_COMMIT` | from git | the version and the commit |
//! | `NAVARCH_PACK_RELOCATIONS` | `yes` | `no`: the programs run with a glibc before 2.36, too |

#![expect(
    clippy::disallowed_methods,
    reason = "cargo and the image build pass values to a build script only by the environment"
)]

use std::path::Path;
use std::process::Command;

// By path: as a dependency of the build, the crate would be compiled a second time.
#[path = "crates/base/src/version.rs"]
#[expect(unreachable_pub, reason = "it is a public module of a crate, too")]
mod version;

/// The version and the commit of a build without either, such as one from an archive.
const UNKNOWN: &str = "dev";

fn main() {
    println!("cargo::rerun-if-env-changed=NAVARCH_VERSION");
    println!("cargo::rerun-if-env-changed=NAVARCH_COMMIT");
    println!("cargo::rerun-if-env-changed=NAVARCH_PACK_RELOCATIONS");
    // Only a release looks at the repository: else each commit would have everything compiled
    // again.
    let released = std::env::var_os("PROFILE").is_some_and(|profile| profile == "release");
    if released {
        watch_commits();
    }
    if released && packs_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    let ask = |question: &[&str]| if released { git(question) } else { None };
    stamp("NAVARCH_VERSION", || {
        let tag = ask(&["describe", "--tags", "--dirty"]);
        let commit = ask(&["describe", "--always", "--dirty"]);
        let version = version::of_build(tag.as_deref(), commit.as_deref().unwrap_or(UNKNOWN));
        // Set by cargo for the feature `fips`.
        let is_fips = std::env::var_os("CARGO_FEATURE_FIPS").is_some();
        version + if is_fips { "-fips" } else { "" }
    });
    stamp("NAVARCH_COMMIT", || {
        ask(&["rev-parse", "HEAD"]).unwrap_or_else(|| UNKNOWN.to_owned())
    });
}

/// Sets `name` for `env!`: to its own value if the build was given one, else to this one.
fn stamp(name: &str, otherwise: impl FnOnce() -> String) {
    let given = std::env::var(name).ok().filter(|value| !value.is_empty());
    let value = given.unwrap_or_else(otherwise);
    println!("cargo::rustc-env={name}={value}");
}

/// Whether the addresses that are corrected at start can stand in a packed table, which takes a
/// fiftieth of the room: the dynamic linker reads all of the table, 1.3 MB of an agent otherwise.
/// GNU's can since 2.36; that of the building machine stands for that of others, unless the
/// programs are for machines that are not known (`NAVARCH_PACK_RELOCATIONS=no`).
fn packs_relocations() -> bool {
    let is = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|value| value == wanted);
    if is("NAVARCH_PACK_RELOCATIONS", "no")
        || !is("CARGO_CFG_TARGET_OS", "linux")
        || !is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        return false;
    }
    let native = std::env::var_os("HOST") == std::env::var_os("TARGET");
    let version = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .ok();
    let version = version
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .unwrap_or_default();
    let minor = version
        .trim()
        .strip_prefix("glibc 2.")
        .and_then(|minor| minor.parse::<u32>().ok());
    native && minor.is_some_and(|minor| minor >= 36)
}

/// Has this script run again when a commit, a switch of branches or a tag moves HEAD.
fn watch_commits() {
    let branch = git(&["symbolic-ref", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        if let Some(path) =
            git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists())
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// The output of a git command; `None` without git, without a repository or after an error.
fn git(question: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(question)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let answer = String::from_utf8(output.stdout).ok()?;
    Some(answer.trim().to_owned()).filter(|answer| !answer.is_empty())
}
