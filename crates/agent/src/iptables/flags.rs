//! The flags of istio-iptables, and their environment variables.

use crate::flags::Flag;

/// All flags, including those of istio-clean-iptables.
pub(super) const FLAGS: &[Flag] = &[
    Flag::text("envoy-port", "15001", "Envoy's port for outbound connections").letter('p'),
    Flag::text("inbound-capture-port", "15006", "Envoy's port for inbound connections").letter('z'),
    Flag::text("inbound-tunnel-port", "15008", "Port of HBONE tunnels; it is never captured").letter('e'),
    Flag::text(
        "proxy-uid",
        "",
        "Users whose traffic is that of Envoy itself, comma-separated; if unset, the user ENVOY_USER, or 1337",
    )
    .letter('u'),
    Flag::text(
        "proxy-gid",
        "",
        "Groups whose traffic is that of Envoy itself, comma-separated; the same as --proxy-uid if unset",
    )
    .letter('g'),
    Flag::text(
        "istio-inbound-interception-mode",
        "REDIRECT",
        "How inbound connections are redirected to Envoy: REDIRECT, or TPROXY, which keeps the client's address",
    )
    .letter('m'),
    Flag::text("istio-inbound-ports", "", "Inbound ports to capture: comma-separated, or * for all; none if unset")
        .letter('b'),
    Flag::text("istio-local-exclude-ports", "", "Inbound ports to exclude if all are captured, comma-separated")
        .letter('d'),
    Flag::text("istio-exclude-interfaces", "", "Interfaces whose traffic is not captured, comma-separated").letter('c'),
    Flag::text(
        "istio-service-cidr",
        "",
        "Destinations of outbound connections to capture: CIDRs, comma-separated, or * for all; none if unset",
    )
    .letter('i'),
    Flag::text("istio-service-exclude-cidr", "", "Destinations to exclude if all are captured: CIDRs, comma-separated")
        .letter('x'),
    Flag::text("istio-outbound-ports", "", "Outbound ports to capture for any destination, comma-separated")
        .letter('q'),
    Flag::text("istio-local-outbound-ports-exclude", "", "Outbound ports to exclude, comma-separated").letter('o'),
    Flag::text(
        "kube-virt-interfaces",
        "",
        "Interfaces of virtual machines, whose traffic is treated as outbound, comma-separated",
    )
    .letter('k'),
    Flag::text("istio-inbound-tproxy-mark", "1337", "Mark of packets to Envoy with TPROXY").letter('t'),
    Flag::text("istio-inbound-tproxy-route-table", "133", "Routing table for packets with that mark").letter('r'),
    Flag::switch("dry-run", "Only print the commands, also to the file DRY_RUN_FILE_PATH").letter('n'),
    Flag::text("iptables-probe-port", "15002", "Port to which --run-validation connects"),
    Flag::text("probe-timeout", "5s", "Timeout of --run-validation"),
    Flag::switch("skip-rule-apply", "Do not change rules, only validate them"),
    Flag::switch("run-validation", "Check that a connection of this pod is captured; exit code 126 if not"),
    Flag::switch("redirect-dns", "Redirect DNS queries to the resolvers of /etc/resolv.conf to the agent"),
    Flag::switch("drop-invalid", "Drop packets that conntrack considers invalid"),
    Flag::switch("dual-stack", "Set up rules for IPv6 if any address is an IPv6 address, not only the first"),
    Flag::switch("capture-all-dns", "With --redirect-dns: redirect all DNS queries, to any server"),
    Flag::text("network-namespace", "", "Path of the pod's network namespace, which is locked with --cni-mode"),
    Flag::switch(
        "cni-mode",
        "Lock the network namespace instead of the lock file of the machine, as required by the CNI plugin",
    ),
    Flag::switch("reconcile", "Replace existing mesh rules that differ"),
    Flag::switch("cleanup-only", "Only remove the rules"),
    Flag::switch("force-apply", "Set up the rules even if they seem to exist"),
    Flag::switch("native-nftables", "Use nft instead of iptables"),
    Flag::switch(
        "iptables-trace-logging",
        "Log each packet at the rule that decides about it (NFLOG); see docs/agent.md",
    ),
    Flag::text("force-iptables-binary", "", "Variant of iptables: legacy or nft; detected if unset"),
    Flag::text("log_target", "", "No effect: logs go to standard error"),
    Flag::text("log_output_level", "", "No effect: info is logged"),
    Flag::text("log_stacktrace_level", "", "No effect: stack traces are not logged"),
    Flag::text("log_caller", "", "No effect: callers are not logged"),
    Flag::switch("log_as_json", "No effect: lines are logged"),
];

/// Additional variables for a flag, which take precedence over the variable with the flag's own
/// name.
const OTHER_VARIABLES: [(&str, &str); 3] = [
    ("redirect-dns", "ISTIO_META_DNS_CAPTURE"),
    ("drop-invalid", "INVALID_DROP"),
    ("dual-stack", "ISTIO_DUAL_STACK"),
];

/// Flags without a variable of their own name. `envoy-port` has none in Istio. Istio removed
/// `iptables-trace-logging`; its variable now only makes the agent read the log of existing rules.
const WITHOUT_VARIABLE: [&str; 2] = ["envoy-port", "iptables-trace-logging"];

/// The variables that set a flag; if several are set, the last one applies.
pub(super) fn variables_of(flag: &str) -> impl Iterator<Item = String> + use<> {
    let own = (!WITHOUT_VARIABLE.contains(&flag)).then(|| flag.replace('-', "_").to_uppercase());
    let other = OTHER_VARIABLES
        .iter()
        .find(|(name, _)| *name == flag)
        .map(|(_, variable)| (*variable).to_owned());
    own.into_iter().chain(other)
}
