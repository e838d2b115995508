//! Log rules for `--iptables-trace-logging`: before each deciding rule, a copy of the rule with the
//! target NFLOG. The agent reads the packets from NFLOG and writes lines to its own log.

use super::rule::{Rule, Table};

/// The NFLOG group of the packets.
pub const GROUP: u16 = 1337;
/// The number of logged bytes per packet: the IPv6 header and the ports after it.
pub(super) const SIZE: u32 = 60;

/// Adds the log rules.
pub(super) fn traced(rules: Vec<Rule>) -> Vec<Rule> {
    let log = |rule: &Rule| {
        log_rule(rule).map(|text| Rule {
            text,
            ..rule.clone()
        })
    };
    with_logs(rules, |rule| rule.position.is_some(), log)
}

/// Adds the log rule before each rule. If `has_place`, the log rule follows in the list, because a
/// later insertion at the same position precedes the rule.
pub(super) fn with_logs<R>(
    rules: Vec<R>,
    has_place: fn(&R) -> bool,
    log: impl Fn(&R) -> Option<R>,
) -> Vec<R> {
    let mut all = Vec::with_capacity(rules.len());
    for rule in rules {
        let log = log(&rule);
        if has_place(&rule) {
            all.push(rule);
            all.extend(log);
        } else {
            all.extend(log);
            all.push(rule);
        }
    }
    all
}

/// The log rule of a rule; `None` for rules that are logged at the jump to their chain, or that
/// decide nothing.
fn log_rule(rule: &Rule) -> Option<String> {
    let mut words = rule.text.split(' ');
    let before: Vec<&str> = words.by_ref().take_while(|word| *word != "-j").collect();
    let target = words.next()?;
    let decides = match rule.table {
        Table::Nat => {
            let ends_chain = ["ISTIO_REDIRECT", "ISTIO_IN_REDIRECT"].contains(&rule.chain.as_str());
            !ends_chain
                && ["RETURN", "REDIRECT", "ISTIO_REDIRECT", "ISTIO_IN_REDIRECT"].contains(&target)
        }
        Table::Mangle => ["ISTIO_TPROXY", "ISTIO_DROP"].contains(&target),
        Table::Filter | Table::Raw => false,
    };

    decides.then(|| {
        let log = format!(
            "-j NFLOG --nflog-prefix {}:{target} --nflog-group {GROUP} --nflog-size {SIZE}",
            rule.chain
        );
        [before.join(" "), log]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(table: Table, chain: &str, position: Option<u32>, text: &str) -> Rule {
        Rule {
            table,
            chain: chain.to_owned(),
            position,
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_log_rule_precedes_each_deciding_rule() {
        let rules = vec![
            rule(
                Table::Nat,
                "ISTIO_OUTPUT",
                None,
                "-d 127.0.0.1/32 -j RETURN",
            ),
            rule(Table::Nat, "ISTIO_OUTPUT", None, "-j ISTIO_REDIRECT"),
            rule(
                Table::Nat,
                "ISTIO_REDIRECT",
                None,
                "-p tcp -j REDIRECT --to-ports 15001",
            ),
            rule(
                Table::Mangle,
                "ISTIO_INBOUND",
                Some(1),
                "-p tcp -j ISTIO_TPROXY",
            ),
            rule(Table::Raw, "OUTPUT", None, "-j ISTIO_OUTPUT_DNS"),
        ];

        let texts: Vec<_> = traced(rules).into_iter().map(|rule| rule.text).collect();
        let log = |what: &str| {
            format!("-j NFLOG --nflog-prefix {what} --nflog-group 1337 --nflog-size 60")
        };
        assert_eq!(
            texts,
            [
                format!("-d 127.0.0.1/32 {}", log("ISTIO_OUTPUT:RETURN")),
                "-d 127.0.0.1/32 -j RETURN".to_owned(),
                log("ISTIO_OUTPUT:ISTIO_REDIRECT"),
                "-j ISTIO_REDIRECT".to_owned(),
                "-p tcp -j REDIRECT --to-ports 15001".to_owned(),
                "-p tcp -j ISTIO_TPROXY".to_owned(),
                format!("-p tcp {}", log("ISTIO_INBOUND:ISTIO_TPROXY")),
                "-j ISTIO_OUTPUT_DNS".to_owned(),
            ]
        );
    }
}
