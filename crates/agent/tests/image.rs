//! The image of the proxy contains every program that the agent runs, and traffic capture works in
//! it: in a root directory with only the files that `scripts/image-root` puts there.
//!
//! Needs root, for network namespaces, the packages iptables and nftables, and Envoy.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test may fail loudly and spawn"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The agent's source files that start programs, the number of places, and the programs.
const STARTS: [(&str, usize, &str); 6] = [
    ("cli/exec.rs", 1, "Envoy, started through the agent itself"),
    ("envoy_features.rs", 1, "Envoy"),
    ("envoy_life/process.rs", 1, "Envoy or the agent itself"),
    (
        "health/probe.rs",
        1,
        "an application's probe, from ProxyConfig or a WorkloadGroup",
    ),
    ("iptables/tool.rs", 2, "those of `iptables::programs`"),
    (
        "upgrade/program.rs",
        1,
        "another Envoy, judged before it serves",
    ),
];

/// Every Rust file below a folder, its path relative to it, and its text.
fn sources(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
                found.insert(name, fs::read_to_string(path)?);
            }
        }
    }
    Ok(found)
}

#[test]
fn every_program_that_the_agent_starts_is_listed() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    // Test modules stand at the end of their file, and start programs of the building machine.
    let product = |text: &str| text.split("#[cfg(test)]").next().map(str::to_owned);
    let starts = sources(&root)?
        .into_iter()
        .filter_map(|(name, text)| Some((name, product(&text)?)))
        .map(|(name, text)| (name, text.matches("Command::new(").count()))
        .filter(|(_, count)| *count > 0)
        .collect::<BTreeSet<_>>();

    let known = STARTS
        .into_iter()
        .map(|(name, count, _)| (name.to_owned(), count))
        .collect::<BTreeSet<_>>();
    ensure!(
        starts == known,
        "the agent starts a program that STARTS does not name: it must be in the image \
         (scripts/image-root): {starts:?}"
    );
    Ok(())
}

/// Why the tests cannot run here; `None` if they can.
fn missing() -> Option<String> {
    if !nix::unistd::getuid().is_root() {
        return Some("it needs root, for network namespaces".to_owned());
    }
    for program in ["ip", "nft", "xtables-nft-multi", "readelf"] {
        if Command::new(program).arg("--version").output().is_err() {
            return Some(format!("{program} is not installed"));
        }
    }
    let envoy = navarch_testkit::envoy::program();
    (!envoy.exists()).then(|| format!("{} is missing: run `make tools`", envoy.display()))
}

/// The root folder of the image `navarch-proxy`, from the programs of this build.
fn root(folder: &Path) -> Result<PathBuf> {
    let root = folder.join("root");
    let output = Command::new("scripts/image-root")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .arg("navarch-proxy")
        .arg(&root)
        .arg(env!("CARGO_BIN_EXE_pilot-agent"))
        .arg(navarch_testkit::envoy::program())
        .output()?;
    ensure!(
        output.status.success(),
        "scripts/image-root: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(root)
}

/// Runs a shell script in a new network namespace, with `$1` as the image's root directory; returns
/// its output.
fn unshared(root: &Path, script: &str) -> Result<String> {
    let output = Command::new("unshare")
        .args([
            "--net",
            "--mount",
            "--propagation",
            "private",
            "bash",
            "-ec",
        ])
        .args([script, "unshared"])
        .arg(root)
        .output()?;
    ensure!(
        output.status.success(),
        "{script}: {}{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The address families of a pod.
const PODS: [(&str, &str); 3] = [
    ("IPv4", "ip addr add 10.9.0.1/24 dev lo"),
    ("IPv6", "ip addr add fd00:9::1/64 dev lo nodad"),
    (
        "dual stack",
        "ip addr add 10.9.0.1/24 dev lo; ip addr add fd00:9::1/64 dev lo nodad",
    ),
];

#[test]
fn traffic_is_captured_by_the_programs_of_the_image_alone() -> Result<()> {
    if let Some(why) = missing() {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }

    let folder = tempfile::tempdir()?;
    let root = root(folder.path())?;
    for program in navarch_agent::iptables::programs() {
        let path = root.join("usr/sbin").join(&program);
        ensure!(path.exists(), "{program} is not in the image");
    }

    // A kernel may lack the tables for iptables-legacy, and TPROXY for either tool.
    let legacy = "chroot $1 /usr/sbin/iptables-legacy -t nat -L; chroot $1 /usr/sbin/ip6tables-legacy -t mangle -L";
    let mut tools = vec!["--native-nftables", "--force-iptables-binary nft"];
    match unshared(&root, legacy) {
        Ok(_) => tools.push("--force-iptables-binary legacy"),
        Err(error) => navarch_testkit::skip::skip_test(&format!(
            "this kernel has no tables of iptables-legacy: {error:#}"
        )),
    }

    for tool in tools {
        for mode in ["REDIRECT", "TPROXY"] {
            for (families, addresses) in PODS {
                captures(&root, tool, mode, addresses)
                    .with_context(|| format!("{tool} {mode} {families}"))?;
            }
        }
    }
    Ok(())
}

/// Applies the rules twice inside the image, with the mounts of a container runtime, and checks the
/// kernel's rules.
fn captures(root: &Path, tool: &str, mode: &str, addresses: &str) -> Result<()> {
    let script = format!(
        "mkdir -p $1/proc $1/dev
         mount --rbind /proc $1/proc
         mount --rbind /dev $1/dev
         ip link set lo up
         {addresses}
         export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
         export ISTIO_DUAL_STACK=true XTABLES_LOCKFILE=/tmp/lock
         for turn in 1 2; do
           chroot $1 /usr/local/bin/pilot-agent istio-iptables -u 1337 -g 1337 -b '*' -i '*' \
             -m {mode} {tool}
         done
         ip -6 addr show dev lo
         for family in 4 6; do
           ip -$family rule
           ip -$family route show table 133 2>/dev/null || true
         done"
    );
    let shown = unshared(root, &script)?;

    let ipv6 = addresses.contains("fd00");
    let has = |text: &str| shown.lines().filter(|line| line.contains(text)).count();
    ensure!(has("inet6 ::6/128") == usize::from(ipv6), "{shown}");
    let families = match (mode, ipv6) {
        ("TPROXY", true) => 2,
        ("TPROXY", false) => 1,
        _ => 0,
    };
    ensure!(has("fwmark 0x539 lookup 133") == families, "{shown}");
    ensure!(has("local default dev lo") == families, "{shown}");
    Ok(())
}
