//! The flags of istio-iptables, and their environment variables.

use crate::flags::Flag;

/// All flags, including those of istio-clean-iptables.
pub(super) const FLAGS: &[Flag] = &[
    Flag::text("envoy-port", "15001", "Envoy's port for outbound connections").letter('p'),
    Flag::text("inbound-capture-port", "15006", "Envoy's port for inbound connections").letter('z'),
    Flag::text("inbound-tunnel-port", "15008", "Port of HBONE tunnels, which is never captured").letter('e'),
    Flag::text(
        "proxy-uid",
        "",
        "Users whose traffic is Envoy's own, comma-separated; the user ENVOY_USER, else 1337, if unset",
    )
    .letter('u'),
    Flag::text("proxy-gid", "", "Groups whose traffic is Envoy's own, comma-separated; as --proxy-uid if unset")
        .letter('g'),
    Flag::text(
        "istio-inbound-interception-mode",
        "REDIRECT",
        "How inbound connections come to Envoy: REDIRECT, or TPROXY, which keeps the client's address",
    )
    .letter('m'),
    Flag::text("istio-inbound-ports", "", "Inbound ports to capture: comma-separated, or * for all; none if unset")
        .letter('b'),
    Flag::text("istio-local-exclude-ports", "", "Inbound ports to leave alone where all are captured, comma-separated")
        .letter('d'),
    Flag::text("istio-exclude-interfaces", "", "Interfaces whose traffic is left alone, comma-separated").letter('c'),
    Flag::text(
        "istio-service-cidr",
        "",
        "Destinations of outbound connections to capture: ranges, comma-separated, or * for all; none if unset",
    )
    .letter('i'),
    Flag::text(
        "istio-service-exclude-cidr",
        "",
        "Destinations to leave alone where all are captured: ranges, comma-separated",
    )
    .letter('x'),
    Flag::text("istio-outbound-ports", "", "Outbound ports to capture whatever the destination, comma-separated")
        .letter('q'),
    Flag::text("istio-local-outbound-ports-exclude", "", "Outbound ports to leave alone, comma-separated").letter('o'),
    Flag::text(
        "kube-virt-interfaces",
        "",
        "Interfaces of virtual machines, whose traffic counts as outbound, comma-separated",
    )
    .letter('k'),
    Flag::text("istio-inbound-tproxy-mark", "1337", "Mark of packets on their way to Envoy under TPROXY").letter('t'),
    Flag::text("istio-inbound-tproxy-route-table", "133", "Routing table for packets with that mark").letter('r'),
    Flag::switch("dry-run", "Print what would be done, to the file DRY_RUN_FILE_PATH as well, and do nothing")
        .letter('n'),
    Flag::text("iptables-probe-port", "15002", "Port to which --run-validation connects"),
    Flag::text("probe-timeout", "5s", "How long --run-validation waits for its connection"),
    Flag::switch("skip-rule-apply", "Leave the rules as they are, to validate them alone"),
    Flag::switch("run-validation", "Try whether a connection of this pod is captured; exit code 126 if not"),
    Flag::switch("redirect-dns", "Send DNS queries to the agent: those to the resolvers of /etc/resolv.conf"),
    Flag::switch("drop-invalid", "Drop packets that belong to no connection"),
    Flag::switch("dual-stack", "Set rules for IPv6 where any address is of IPv6, not the first alone"),
    Flag::switch("capture-all-dns", "With --redirect-dns: all DNS queries, whatever server they go to"),
    Flag::text("network-namespace", "", "Path of the pod's network namespace; it is locked with --cni-mode"),
    Flag::switch(
        "cni-mode",
        "Lock the network namespace in place of the machine's lock file, as the CNI plugin needs it",
    ),
    Flag::switch("reconcile", "Replace rules of a mesh that differ from those wanted"),
    Flag::switch("cleanup-only", "Take the rules away and set none"),
    Flag::switch("force-apply", "Set the rules though they seem to be there"),
    Flag::switch("native-nftables", "Set the rules by nft in place of iptables"),
    Flag::switch(
        "iptables-trace-logging",
        "Have each rule that decides send the packet to the kernel's log; docs/agent.md",
    ),
    Flag::text("force-iptables-binary", "", "Variant of iptables: legacy or nft; the one that works if unset"),
    Flag::text("log_target", "", "No effect: logs go to standard error"),
    Flag::text("log_output_level", "", "No effect: info is logged"),
    Flag::text("log_stacktrace_level", "", "No effect: stack traces are not logged"),
    Flag::text("log_caller", "", "No effect: callers are not logged"),
    Flag::switch("log_as_json", "No effect: lines are logged"),
];

/// Additional variables for a flag, which take precedence over the variable with the flag's own name.
const OTHER_VARIABLES: [(&str, &str); 3] =
    [("redirect-dns", "ISTIO_META_DNS_CAPTURE"), ("drop-invalid", "INVALID_DROP"), ("dual-stack", "ISTIO_DUAL_STACK")];

/// Flags without a variable of their own name. `envoy-port` has none in Istio. Istio removed `iptables-trace-logging`;
/// its variable now only makes the agent read the log of existing rules.
const WITHOUT_VARIABLE: [&str; 2] = ["envoy-port", "iptables-trace-logging"];

/// The variables that set a flag; if several are set, the last one applies.
pub(super) fn variables_of(flag: &str) -> impl Iterator<Item = String> + use<> {
    let own = (!WITHOUT_VARIABLE.contains(&flag)).then(|| flag.replace('-', "_").to_uppercase());
    let other = OTHER_VARIABLES.iter().find(|(name, _)| *name == flag).map(|(_, variable)| (*variable).to_owned());
    own.into_iter().chain(other)
}
