//! Network setup besides rules: the routes for TPROXY, and the source address of Envoy's
//! connections to the pod.

use super::capture::{Capture, Mode};
use super::families::Family;
use super::tool::{self, ToolError};

/// Adds routes and addresses. Existing ones are not changed.
pub(super) fn configure(capture: &Capture) -> Result<(), ToolError> {
    if capture.ipv6 {
        ignore_existing(&ip("-6 addr add ::6/128 dev lo"))?;
    }

    if capture.mode != Mode::Tproxy || capture.inbound_ports.is_empty() {
        return Ok(());
    }

    let mark = &capture.tproxy_mark;
    let table = &capture.tproxy_table;

    for family in capture.families() {
        let option = match family {
            Family::V4 => "-4",
            Family::V6 => "-6",
        };
        ignore_existing(&ip(&format!(
            "{option} rule add fwmark {mark} lookup {table}"
        )))?;
        ignore_existing(&ip(&format!(
            "{option} route add local default dev lo table {table}"
        )))?;
    }

    Ok(())
}

/// Splits a command line of `ip` into arguments.
fn ip(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Runs `ip`; an error about an existing object is ignored.
fn ignore_existing(arguments: &[String]) -> Result<(), ToolError> {
    match tool::run("ip", arguments, None) {
        // Newer kernels report existing IPv6 addresses with a different message.
        Err(ToolError::Failed { message, .. })
            if message.contains("File exists") || message.contains("already assigned") =>
        {
            Ok(())
        }
        done => done.map(drop),
    }
}
