//! iptables and nftables rules in a network namespace: applied, applied again, replaced, removed.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::net::Net;

/// Runs a program in a namespace and returns its output.
fn run(space: &str, program: &str, arguments: &str) -> Result<String> {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", space, program])
        .args(arguments.split_whitespace());
    let output = command.env("ISTIO_DUAL_STACK", "true").output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program} {arguments}: {stderr}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The kernel's rules without counters, in lower case.
fn kernel_rules(space: &str) -> Result<String> {
    Ok(run(space, "nft", "-s list ruleset")?.to_lowercase())
}

#[test]
fn rules_can_be_reapplied_replaced_and_removed() -> Result<()> {
    if let Some(why) = crate::missing() {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }

    if Command::new("nft").arg("--version").output().is_err() {
        navarch_testkit::skip::skip("nft is not installed");
        return Ok(());
    }

    let mut net = Net::new()?;
    let space = net.namespace(
        "rules",
        21,
        "",
        "nameserver 10.96.0.10\nnameserver fd00::a\n",
    )?;

    run(&space, "ip", "addr add fd00:10::21/64 dev eth0 nodad")?;
    let navarch = env!("CARGO_BIN_EXE_navarch");
    ensure!(Path::new(navarch).exists());
    let agent = |flags: &str| {
        run(
            &space,
            navarch,
            &format!("agent istio-iptables -u 1337 -g 1337 -b * -i * {flags}"),
        )
    };

    for tool in ["--native-nftables", "--force-iptables-binary nft"] {
        let all =
            "-m TPROXY -d 15020 -x 10.9.0.0/16,2001:db8::/32 -k eth9 --redirect-dns --drop-invalid";
        agent(&format!("{tool} {all} --iptables-trace-logging"))?;
        let traced = kernel_rules(&space)?;
        ensure!(
            traced.contains("log prefix") && traced.contains("tproxy"),
            "{traced}"
        );

        agent(&format!("{tool} {all} --reconcile"))?;
        let first = kernel_rules(&space)?;
        ensure!(
            !first.contains("log prefix") && first.contains("ip6"),
            "exchanged: {first}"
        );
        agent(&format!("{tool} {all} --reconcile"))?;
        ensure!(
            kernel_rules(&space)? == first,
            "applying twice equals applying once"
        );

        let mode = if tool == "--native-nftables" {
            // Tables that the next rules do not need are removed.
            agent(&format!("{tool} -m REDIRECT"))?;
            let redirected = kernel_rules(&space)?;
            ensure!(
                redirected.contains("redirect") && !redirected.contains("tproxy"),
                "left over: {redirected}"
            );
            "-m REDIRECT"
        } else {
            all
        };

        agent(&format!("{tool} {mode} --cleanup-only"))?;
        let left = kernel_rules(&space)?;
        ensure!(
            ["istio", "eth9"].iter().all(|word| !left.contains(word)),
            "{left}"
        );
    }

    Ok(())
}
