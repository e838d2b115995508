//! nftables rules by table, and their text for `nft -f`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::iptables::trace;

/// Chains of [`Table::Nat`]: the name, and the hook declaration of a base chain.
const NAT_CHAINS: &[(&str, &str)] = &[
    (
        "prerouting",
        " { type nat hook prerouting priority -100 ; }",
    ),
    ("output", " { type nat hook output priority -100 ; }"),
    ("istio-inbound", ""),
    ("istio-redirect", ""),
    ("istio-in-redirect", ""),
    ("istio-output", ""),
    ("istio-output-dns", ""),
];

/// Chains of [`Table::Mangle`].
const MANGLE_CHAINS: &[(&str, &str)] = &[
    (
        "prerouting",
        " { type filter hook prerouting priority -150 ; }",
    ),
    ("output", " { type route hook output priority -150 ; }"),
    ("istio-divert", ""),
    ("istio-tproxy", ""),
    ("istio-inbound", ""),
    ("istio-drop", ""),
];

/// Chains of [`Table::Raw`].
const RAW_CHAINS: &[(&str, &str)] = &[
    (
        "prerouting",
        " { type filter hook prerouting priority -300 ; }",
    ),
    ("output", " { type filter hook output priority -300 ; }"),
    ("istio-inbound", ""),
    ("istio-output-dns", ""),
];

/// An nftables table of the mesh; variants are in output order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Table {
    /// Redirects connections.
    Nat,
    /// Marks packets and applies TPROXY.
    Mangle,
    /// Applies conntrack zones before connection tracking.
    Raw,
}

impl Table {
    pub(super) const ALL: [Self; 3] = [Self::Nat, Self::Mangle, Self::Raw];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nat => "istio-proxy-nat",
            Self::Mangle => "istio-proxy-mangle",
            Self::Raw => "istio-proxy-raw",
        }
    }

    /// The table's chains in output order, each with its hook declaration.
    fn chains(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Nat => NAT_CHAINS,
            Self::Mangle => MANGLE_CHAINS,
            Self::Raw => RAW_CHAINS,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    table: Table,
    chain: &'static str,
    /// The index in the chain, counted from 0; `None` appends the rule.
    place: Option<usize>,
    /// The matches and the statement of the rule.
    text: String,
}

impl Rule {
    /// The log rule for this rule; `None` for rules that are logged at the jump to their chain, or
    /// that decide nothing.
    fn log_rule(&self) -> Option<String> {
        let ends_chain = [
            "istio-redirect",
            "istio-in-redirect",
            "istio-tproxy",
            "istio-divert",
            "istio-drop",
        ];

        if self.table == Table::Raw || ends_chain.contains(&self.chain) {
            return None;
        }

        let (matching, verdict) = self.text.split_once("counter ")?;
        let name = verdict
            .strip_prefix("jump ")
            .unwrap_or(verdict)
            .split(' ')
            .next()?;

        let deciding = [
            "return",
            "redirect",
            "istio-redirect",
            "istio-in-redirect",
            "istio-tproxy",
            "istio-drop",
        ];

        deciding.contains(&name).then(|| {
            let group = trace::GROUP;
            let size = trace::SIZE;
            format!(
                r#"{matching}log group {group} prefix "{}:{name}" snaplen {size}"#,
                self.chain
            )
        })
    }
}

/// Rules in the order of generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ruleset(Vec<Rule>);

impl Ruleset {
    /// Adds a rule at the end of a chain.
    pub(super) fn append(&mut self, table: Table, chain: &'static str, text: impl Into<String>) {
        self.0.push(Rule {
            table,
            chain,
            place: None,
            text: text.into(),
        });
    }

    /// Inserts a rule at an index of a chain; a chain with fewer rules gets the rule at its end.
    pub(super) fn insert(
        &mut self,
        table: Table,
        chain: &'static str,
        place: usize,
        text: impl Into<String>,
    ) {
        self.0.push(Rule {
            table,
            chain,
            place: Some(place),
            text: text.into(),
        });
    }

    /// The tables without rules.
    pub(super) fn unused_tables(&self) -> Vec<Table> {
        let unused = |table: &Table| self.0.iter().all(|rule| rule.table != *table);
        Table::ALL.into_iter().filter(unused).collect()
    }

    /// Adds a log rule for each rule that decides about a packet.
    pub(super) fn traced(self) -> Self {
        let log = |rule: &Rule| {
            rule.log_rule().map(|text| Rule {
                text,
                ..rule.clone()
            })
        };
        Self(trace::with_logs(self.0, |rule| rule.place.is_some(), log))
    }

    /// The text for `nft -f`, which replaces the content of the tables in one transaction.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();

        for table in Table::ALL {
            let rules: Vec<_> = self.0.iter().filter(|rule| rule.table == table).collect();
            if rules.is_empty() {
                continue;
            }

            let name = table.name();

            // Writing to a `String` never fails.
            let _ = writeln!(text, "add table inet {name}\nflush table inet {name}");

            for (chain, hook) in table.chains() {
                if rules.iter().any(|rule| rule.chain == *chain) {
                    let _ = writeln!(text, "add chain inet {name} {chain}{hook}");
                }
            }

            let mut lengths: BTreeMap<&str, usize> = BTreeMap::new();

            for Rule {
                chain,
                place,
                text: rule,
                ..
            } in rules
            {
                let length = lengths.entry(chain).or_default();
                let _ = match place.filter(|place| *place < *length) {
                    Some(place) => {
                        writeln!(text, "insert rule inet {name} {chain} index {place} {rule}")
                    }
                    None => writeln!(text, "add rule inet {name} {chain} {rule}"),
                };
                *length += 1;
            }
        }

        text
    }
}
