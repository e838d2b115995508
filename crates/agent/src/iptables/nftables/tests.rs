//! Tests of the generated rules, as text.

use super::*;
use crate::iptables::options::HostFacts;

/// Parses a command line, on a machine with both families.
fn options(line: &str) -> Options {
    let arguments: Vec<_> = line
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let addresses = ["10.0.0.1", "fd00::1"]
        .map(|address| address.parse().unwrap())
        .to_vec();
    let host = HostFacts {
        addresses,
        name_servers: Some(vec!["10.96.0.10".into(), "fd00::a".into()]),
        proxy_user: None,
    };
    let arguments = [vec!["--native-nftables".to_owned()], arguments].concat();
    Options::read(&arguments, &crate::variables::Variables::default(), &host).unwrap()
}

/// The output lines for a table and, if given, a chain.
fn lines(line: &str, place: &str) -> Vec<String> {
    let planned = dry_run(&options(line)).unwrap();
    assert_eq!(planned.len(), 1);
    assert_eq!(planned[0].program, "nft");
    planned[0]
        .lines
        .iter()
        .filter_map(|line| line.split_once(&format!("{place} ")))
        .map(|(_, rule)| rule.to_owned())
        .collect()
}

#[test]
fn an_nftables_table_is_created_in_one_transaction() {
    let planned = dry_run(&options("-u 1337 -g 1337 -b * -d 15020 -i *")).unwrap();
    let table = "inet istio-proxy-nat";
    let expected = [
        format!("add table {table}"),
        format!("flush table {table}"),
        format!("add chain {table} prerouting {{ type nat hook prerouting priority -100 ; }}"),
        format!("add chain {table} output {{ type nat hook output priority -100 ; }}"),
        format!("add chain {table} istio-inbound"),
        format!("add chain {table} istio-redirect"),
        format!("add chain {table} istio-in-redirect"),
        format!("add chain {table} istio-output"),
        format!("add rule {table} istio-inbound meta l4proto tcp tcp dport 15008 counter return"),
        format!("add rule {table} istio-redirect meta l4proto tcp counter redirect to :15001"),
        format!("add rule {table} istio-in-redirect meta l4proto tcp counter redirect to :15006"),
        format!("add rule {table} prerouting meta l4proto tcp counter jump istio-inbound"),
        format!("add rule {table} istio-inbound meta l4proto tcp tcp dport 15020 counter return"),
        format!("add rule {table} istio-inbound meta l4proto tcp counter jump istio-in-redirect"),
        format!("add rule {table} output counter jump istio-output"),
        format!("add rule {table} istio-output oifname lo ip saddr 127.0.0.6/32 counter return"),
        format!(
            "add rule {table} istio-output oifname lo meta l4proto tcp ip daddr != 127.0.0.1/32 tcp dport != 15008 skuid 1337 \
             counter jump istio-in-redirect"
        ),
        format!("add rule {table} istio-output oifname lo skuid != 1337 counter return"),
        format!("add rule {table} istio-output skuid 1337 counter return"),
        format!(
            "add rule {table} istio-output oifname lo meta l4proto tcp ip daddr != 127.0.0.1/32 tcp dport != 15008 skgid 1337 \
             counter jump istio-in-redirect"
        ),
        format!("add rule {table} istio-output oifname lo skgid != 1337 counter return"),
        format!("add rule {table} istio-output skgid 1337 counter return"),
        format!("add rule {table} istio-output ip daddr 127.0.0.1/32 counter return"),
        format!("add rule {table} istio-output counter jump istio-redirect"),
    ];

    assert_eq!(planned[0].lines, expected);
}

#[test]
fn queries_of_both_families_go_to_the_agent_and_are_tracked_apart() {
    let line = "--dual-stack --redirect-dns -u 7 -g 8";
    assert_eq!(
        lines(line, "rule inet istio-proxy-nat istio-output-dns"),
        [
            "ip daddr 10.96.0.10/32 tcp dport 53 counter redirect to :15053",
            "ip6 daddr fd00::a/128 tcp dport 53 counter redirect to :15053",
            "ip daddr 10.96.0.10/32 udp dport 53 counter redirect to :15053",
            "ip6 daddr fd00::a/128 udp dport 53 counter redirect to :15053",
        ]
    );

    assert_eq!(
        lines(line, "rule inet istio-proxy-raw istio-output-dns"),
        [
            "udp dport 53 meta skuid 7 counter ct zone set 1",
            "udp sport 15053 meta skuid 7 counter ct zone set 2",
            "udp dport 53 meta skgid 8 counter ct zone set 1",
            "udp sport 15053 meta skgid 8 counter ct zone set 2",
            "udp dport 53 ip daddr 10.96.0.10/32 counter ct zone set 2",
            "udp dport 53 ip6 daddr fd00::a/128 counter ct zone set 2",
        ]
    );

    assert_eq!(
        lines(
            "--redirect-dns --capture-all-dns -u 7",
            "rule inet istio-proxy-nat istio-output-dns"
        ),
        [
            "meta l4proto tcp tcp dport 53 counter redirect to :15053",
            "udp dport 53 counter redirect to :15053"
        ]
    );

    let output = lines(line, "rule inet istio-proxy-nat istio-output");
    let itself = "oifname lo meta l4proto tcp ip6 daddr != ::1/128 tcp dport != { 53, 15008 } skuid 7 counter jump";
    assert!(
        output.iter().any(|rule| rule.starts_with(itself)),
        "{output:?}"
    );
    let loopback = "oifname lo meta l4proto tcp tcp dport != 53 skuid != 7 counter return";
    assert!(output.iter().any(|rule| rule == loopback), "{output:?}");
}

#[test]
fn tproxy_rules_mark_packets_and_have_istios_order() {
    let line = "-m TPROXY -b 80 -u 7 -t 9 -c eth9 --drop-invalid";
    assert_eq!(
        lines(line, "inet istio-proxy-mangle istio-inbound"),
        [
            "meta l4proto tcp ct state related,established tcp dport 80 counter jump istio-divert",
            "meta l4proto tcp tcp dport 80 counter jump istio-tproxy",
            "index 0 meta l4proto tcp mark 9 counter return",
            "index 1 iifname lo meta l4proto tcp ip saddr 127.0.0.6/32 counter return",
            "index 2 iifname lo meta l4proto tcp mark != 1338 counter return",
        ]
    );

    assert_eq!(
        lines(line, "rule inet istio-proxy-mangle prerouting"),
        [
            "iifname eth9 counter return",
            "meta l4proto tcp ct state invalid counter jump istio-drop",
            "meta l4proto tcp counter jump istio-inbound",
            "meta l4proto tcp mark 9 counter ct mark set mark",
        ]
    );

    assert_eq!(
        lines(line, "rule inet istio-proxy-mangle istio-tproxy"),
        [
            "meta l4proto tcp ip daddr != 127.0.0.1/32 tproxy ip to :15006 meta mark set 9 counter accept"
        ]
    );

    // The first insertion has no existing rule to precede.
    let first = lines(
        "-m TPROXY",
        "add rule inet istio-proxy-mangle istio-inbound",
    );
    assert_eq!(
        first.first().map(String::as_str),
        Some("meta l4proto tcp mark 1337 counter return")
    );
}

#[test]
fn ranges_groups_and_interfaces_are_in_the_right_chains() {
    let line = "--dual-stack -k eth1 -i 10.0.0.0/8,2001:db8::/32 -x 10.1.0.0/16,2001:db8:1::/48 -q 90 -o 91";
    assert_eq!(
        lines(line, "rule inet istio-proxy-nat prerouting"),
        [
            "iifname eth1 counter return",
            "index 0 iifname eth1 ip daddr 10.0.0.0/8 counter jump istio-redirect",
            "index 0 iifname eth1 ip6 daddr 2001:db8::/32 counter jump istio-redirect",
        ]
    );

    let output = lines(line, "rule inet istio-proxy-nat istio-output");
    assert_eq!(
        output[..2],
        ["tcp dport 91 counter return", "udp dport 91 counter return"]
    );
    assert_eq!(
        output[output.len() - 5..],
        [
            "ip daddr 10.1.0.0/16 counter return",
            "ip6 daddr 2001:db8:1::/48 counter return",
            "tcp dport 90 counter jump istio-redirect",
            "ip daddr 10.0.0.0/8 counter jump istio-redirect",
            "ip6 daddr 2001:db8::/32 counter jump istio-redirect",
        ]
    );

    let loopback = lines(
        "-i 127.1.2.3/32 -u 7",
        "rule inet istio-proxy-nat istio-output",
    );
    assert!(
        loopback.iter().all(|rule| !rule.contains("skuid != 7")),
        "{loopback:?}"
    );
}

#[test]
fn obsolete_rules_are_removed_whether_they_exist_or_not() {
    let text = cleaning(&generate(&options("-b *")).unwrap().unused_tables());
    let gone = |table| format!("add table inet {table}\ndelete table inet {table}\n");
    assert_eq!(text, gone("istio-proxy-mangle") + &gone("istio-proxy-raw"));
    let planned = dry_run(&options("--cleanup-only")).unwrap();
    assert_eq!(planned[0].lines.len(), 6);
}

#[test]
fn decisions_are_logged_before_they_are_made() {
    let output = lines(
        "--iptables-trace-logging -i *",
        "rule inet istio-proxy-nat istio-output",
    );
    assert_eq!(
        output[output.len() - 2..],
        [
            r#"log group 1337 prefix "istio-output:istio-redirect" snaplen 60"#,
            "counter jump istio-redirect"
        ]
    );
}
