//! One rule, and the text of several rules for `iptables-restore`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Chains and targets that exist without creation.
const BUILT_IN: [&str; 8] = [
    "INPUT",
    "OUTPUT",
    "FORWARD",
    "PREROUTING",
    "POSTROUTING",
    "ACCEPT",
    "RETURN",
    "DROP",
];

/// The prefix of the mesh's own chains.
pub(super) const OWN_PREFIX: &str = "ISTIO_";

/// An iptables table; variants are in output order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Filters packets.
    Filter,
    /// Marks packets and applies TPROXY.
    Mangle,
    /// Redirects connections.
    Nat,
    /// Applies conntrack zones before connection tracking.
    Raw,
}

impl Table {
    pub(super) const ALL: [Self; 4] = [Self::Filter, Self::Mangle, Self::Nat, Self::Raw];

    /// The table's name in iptables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Raw => "raw",
        }
    }
}

/// One rule of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The table that contains the chain.
    pub table: Table,
    /// The chain that contains the rule.
    pub chain: String,
    /// The position in the chain, counted from 1; `None` appends the rule.
    pub position: Option<u32>,
    /// The matches and the target, separated by single spaces.
    pub text: String,
}

impl Rule {
    /// The target of the rule if its name is the last word: a chain, or a target without options.
    fn jump(&self) -> Option<&str> {
        let mut words = self.text.split(' ').rev();
        let target = words.next()?;
        (words.next()? == "-j").then_some(target)
    }

    /// The rule as a line of `iptables-restore`.
    fn line(&self) -> String {
        match self.position {
            None => format!("-A {} {}", self.chain, self.text),
            Some(position) => format!("-I {} {position} {}", self.chain, self.text),
        }
    }

    /// The arguments of `iptables` that apply `operation` (`-C` or `-D`) to this rule.
    fn arguments(&self, operation: &str) -> Vec<String> {
        let words = ["-t", self.table.name(), operation, &self.chain];
        words
            .into_iter()
            .chain(self.text.split(' '))
            .map(str::to_owned)
            .collect()
    }

    /// The arguments of `iptables` that add this rule.
    pub(super) fn adding(&self) -> Vec<String> {
        let table = ["-t", self.table.name()].map(str::to_owned);
        table
            .into_iter()
            .chain(self.line().split(' ').map(str::to_owned))
            .collect()
    }

    /// The arguments of `iptables` that succeed only if the rule exists.
    pub(super) fn checking(&self) -> Vec<String> {
        self.arguments("-C")
    }

    /// The arguments of `iptables` that delete the rule; `None` if flushing its chain deletes the
    /// rule.
    pub(super) fn deletion(&self) -> Option<Vec<String>> {
        let jumps_to_ours = self
            .text
            .split(' ')
            .zip(self.text.split(' ').skip(1))
            .any(|(word, target)| is_jump_to_ours(word, target));
        (!self.chain.starts_with(OWN_PREFIX) || jumps_to_ours).then(|| self.arguments("-D"))
    }
}

/// Whether two consecutive words are a jump to one of the mesh's chains.
fn is_jump_to_ours(word: &str, target: &str) -> bool {
    (word == "-j" || word == "--jump") && target.starts_with(OWN_PREFIX)
}

/// The chains to create for `rules`: first the chains with rules, then the chains that are only
/// jumped to.
fn made_chains(rules: &[Rule]) -> Vec<(Table, &str)> {
    let mut seen = BTreeSet::new();
    let with_rules = rules.iter().map(|rule| (rule.table, rule.chain.as_str()));
    let jumped_to = rules
        .iter()
        .filter_map(|rule| Some((rule.table, rule.jump()?)));
    let all = with_rules
        .chain(jumped_to)
        .filter(|(_, chain)| !BUILT_IN.contains(chain));
    all.filter(|chain| seen.insert(*chain)).collect()
}

/// The input of `iptables-restore --noflush` for `rules`; empty without rules.
#[must_use]
pub fn restore_text(rules: &[Rule]) -> String {
    let mut tables: BTreeMap<Table, Vec<String>> = BTreeMap::new();
    for (table, chain) in made_chains(rules) {
        tables.entry(table).or_default().push(format!("-N {chain}"));
    }
    for rule in rules {
        tables.entry(rule.table).or_default().push(rule.line());
    }
    let mut text = String::new();
    for (table, lines) in tables {
        // Writing to a `String` never fails.
        let _ = writeln!(text, "* {}\n{}\nCOMMIT", table.name(), lines.join("\n"));
    }
    text
}

/// The commands that delete `rules` and their chains. Each command runs even if another fails.
pub(super) fn cleaning(rules: &[Rule]) -> Vec<Vec<String>> {
    let mut commands: Vec<_> = rules.iter().rev().filter_map(Rule::deletion).collect();
    let mut seen = BTreeSet::new();

    for rule in rules
        .iter()
        .rev()
        .filter(|rule| !BUILT_IN.contains(&rule.chain.as_str()))
    {
        if seen.insert((rule.table, rule.chain.as_str())) {
            for operation in ["-F", "-X"] {
                commands.push(
                    ["-t", rule.table.name(), operation, &rule.chain]
                        .map(str::to_owned)
                        .to_vec(),
                );
            }
        }
    }

    commands
}

/// Rules that drop all traffic while old rules are replaced, so that no traffic bypasses Envoy.
pub(super) fn guards() -> Vec<Rule> {
    let pairs = ["INPUT", "FORWARD", "OUTPUT"]
        .into_iter()
        .flat_map(|chain| [(chain, "tcp"), (chain, "udp")]);
    pairs
        .map(|(chain, protocol)| Rule {
            table: Table::Filter,
            chain: chain.to_owned(),
            position: Some(1),
            text: format!("-p {protocol} -j DROP"),
        })
        .collect()
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
    fn chains_that_are_only_jump_targets_are_created() {
        let rules = [
            rule(Table::Nat, "OUTPUT", None, "-p tcp -j ISTIO_EMPTY"),
            rule(Table::Mangle, "ISTIO_A", Some(2), "-j RETURN"),
        ];
        assert_eq!(
            restore_text(&rules),
            "* mangle\n-N ISTIO_A\n-I ISTIO_A 2 -j RETURN\nCOMMIT\n* nat\n-N ISTIO_EMPTY\n-A OUTPUT -p tcp -j ISTIO_EMPTY\nCOMMIT\n"
        );
        assert_eq!(restore_text(&[]), "");
    }

    #[test]
    fn cleanup_reverses_the_order_and_flushes_inner_chains() {
        let rules = [
            rule(Table::Nat, "OUTPUT", None, "-j ISTIO_A"),
            rule(Table::Nat, "ISTIO_A", None, "-p tcp -j RETURN"),
            rule(Table::Nat, "ISTIO_A", Some(1), "-j ISTIO_B"),
        ];
        let commands: Vec<_> = cleaning(&rules)
            .iter()
            .map(|command| command.join(" "))
            .collect();

        assert_eq!(
            commands,
            [
                "-t nat -D ISTIO_A -j ISTIO_B",
                "-t nat -D OUTPUT -j ISTIO_A",
                "-t nat -F ISTIO_A",
                "-t nat -X ISTIO_A"
            ]
        );
    }
}
