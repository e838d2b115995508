//! The kernel's rules as reported by `iptables-save`, and their comparison with the generated
//! rules.

use std::collections::BTreeMap;

use super::rule::{OWN_PREFIX, Rule, Table, restore_text};

/// The number of rules per chain. Chains outside the mesh are listed only if they have rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State(BTreeMap<(Table, String), usize>);

/// The result of comparing the kernel's rules with the generated rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// The kernel has no rules.
    Clean,
    /// Chains and numbers of rules are equal; the individual rules are not compared yet.
    Alike,
    /// The kernel has other rules.
    Differs,
}

impl State {
    /// Parses the text format of `iptables-save` or `iptables-restore`.
    pub(super) fn parse(text: &str) -> Self {
        let mut chains = BTreeMap::new();
        let mut table = None;

        for line in text.lines().map(str::trim_end) {
            if let Some(name) = line.strip_prefix('*') {
                table = Table::ALL
                    .into_iter()
                    .find(|table| table.name() == name.trim());
                continue;
            }

            let Some(table) = table else { continue };

            if let Some(chain) = line.strip_prefix(':') {
                let chain = chain.split(' ').next().unwrap_or_default();
                if chain.starts_with("ISTIO") {
                    chains.entry((table, chain.to_owned())).or_insert(0);
                }
                continue;
            }

            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some("-A" | "--append" | "-I" | "--insert"), Some(chain)) => {
                    *chains.entry((table, unquoted(chain))).or_insert(0) += 1;
                }
                (Some("-N" | "--new"), Some(chain)) if chain.starts_with("ISTIO") => {
                    chains.entry((table, unquoted(chain))).or_insert(0);
                }
                _ => {}
            }
        }

        Self(chains)
    }

    /// The state of a clean kernel after applying `rules`.
    pub(super) fn of(rules: &[Rule]) -> Self {
        Self::parse(&restore_text(rules))
    }

    /// Whether no chain is listed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares this state with the wanted state. Chains outside the mesh may have any number of
    /// rules.
    pub(super) fn against(&self, wanted: &Self) -> Comparison {
        if self.is_empty() {
            return Comparison::Clean;
        }
        let there = |(key, rules): (&(Table, String), &usize)| {
            self.0
                .get(key)
                .is_some_and(|found| !key.1.starts_with(OWN_PREFIX) || found == rules)
        };
        let surplus = self
            .0
            .keys()
            .any(|key| key.1.starts_with(OWN_PREFIX) && !wanted.0.contains_key(key));
        if wanted.0.iter().all(there) && !surplus {
            Comparison::Alike
        } else {
            Comparison::Differs
        }
    }
}

/// Removes quotes around the name of a chain.
fn unquoted(chain: &str) -> String {
    chain.trim_matches(['\'', '"']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = "# Generated\n*nat\n:PREROUTING ACCEPT [0:0]\n:ISTIO_A - [0:0]\n:KUBE_X - [0:0]\n\
        -A PREROUTING -p tcp -j ISTIO_A\n-A ISTIO_A -j RETURN\nCOMMIT\n*security\n-A OTHER -j DROP\nCOMMIT\n";

    #[test]
    fn iptables_states_are_equal_if_our_chains_have_the_same_number_of_rules() {
        let wanted = State::parse(
            "* nat\n-N ISTIO_A\n-A PREROUTING -j ISTIO_A\n-A ISTIO_A -j RETURN\nCOMMIT\n",
        );
        let saved = State::parse(SAVED);
        assert_eq!(saved.against(&wanted), Comparison::Alike);
        assert_eq!(State::parse("").against(&wanted), Comparison::Clean);
        let more = State::parse(&SAVED.replace(
            "-A ISTIO_A -j RETURN",
            "-A ISTIO_A -j RETURN\n-A ISTIO_A -p udp",
        ));
        assert_eq!(more.against(&wanted), Comparison::Differs);
        let other = State::parse(&SAVED.replace(":KUBE_X", ":ISTIO_OLD"));
        assert_eq!(other.against(&wanted), Comparison::Differs);
    }
}
