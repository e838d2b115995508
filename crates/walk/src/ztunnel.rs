//! Whether ztunnel allows a connection to a workload: its policies, evaluated as ztunnel does
//! (`src/rbac.rs` and `assert_rbac` there).
//!
//! ztunnel knows the peer's identity, addresses and ports of a connection, not its requests.

use std::net::IpAddr;

use navarch_proto::istio::security::string_match::MatchType;
use navarch_proto::istio::security::{
    Action, Address, Authorization, Match, Rules, Scope, ServiceAccountMatch, StringMatch,
};

use super::chain::range_fit;
use super::policy::{Peer, Verdict, Visitor, all, any, both};

/// The prefix of SPIFFE ids; policies omit it.
const SPIFFE: &str = "spiffe://";

/// The properties of a workload that decide which policies apply to it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Policies of this namespace apply if their scope is `Namespace`.
    pub namespace: &'a str,
    /// The policies that it lists, as `namespace/name`.
    pub listed: &'a [String],
}

/// The peer's identity in parts.
struct Identity<'a> {
    /// Without `spiffe://`.
    whole: &'a str,
    namespace: &'a str,
    account: &'a str,
}

impl<'a> Identity<'a> {
    /// Parses `spiffe://domain/ns/namespace/sa/account`; any other text has no parts.
    fn read(text: &'a str) -> Self {
        let whole = text.strip_prefix(SPIFFE).unwrap_or_default();
        let mut parts = whole.split('/');
        let (namespace, account) = match (
            parts.next(),
            parts.next(),
            parts.next(),
            parts.next(),
            parts.next(),
        ) {
            (Some(_), Some("ns"), Some(namespace), Some("sa"), Some(account)) => {
                (namespace, account)
            }
            _ => ("", ""),
        };

        Self {
            whole,
            namespace,
            account,
        }
    }
}

/// The verdict of ztunnel's policies on a client of a workload. A policy is named as
/// `namespace/name`.
#[must_use]
pub fn verdict<'a>(
    policies: impl IntoIterator<Item = &'a Authorization>,
    subject: Subject<'_>,
    visitor: &Visitor<'_>,
) -> Verdict {
    let mut is_unknown = false;
    let mut allowing = Vec::new();
    let mut may_be_allowed = false;
    let holding = policies
        .into_iter()
        .filter(|policy| !policy.dry_run && applies_to(policy, subject));
    let mut denies = Vec::new();
    let mut allows = Vec::new();

    for policy in holding {
        match policy.action() {
            Action::Deny => denies.push(policy),
            Action::Allow => allows.push(policy),
        }
    }

    for policy in denies {
        match fits(policy, visitor) {
            Some(true) => return Verdict::Denied(name_of(policy)),
            Some(false) => {}
            None => is_unknown = true,
        }
    }

    for policy in allows {
        match fits(policy, visitor) {
            Some(true) => {
                return if is_unknown {
                    Verdict::Unknown
                } else {
                    Verdict::Passes
                };
            }
            Some(false) => {}
            None => may_be_allowed = true,
        }
        allowing.push(name_of(policy));
    }

    if allowing.is_empty() && !is_unknown {
        Verdict::Passes
    } else if !allowing.is_empty() && !may_be_allowed {
        Verdict::NotAllowed(allowing)
    } else {
        Verdict::Unknown
    }
}

fn name_of(policy: &Authorization) -> String {
    format!("{}/{}", policy.namespace, policy.name)
}

/// Whether a policy applies to a workload.
fn applies_to(policy: &Authorization, subject: Subject<'_>) -> bool {
    match policy.scope() {
        Scope::Global => true,
        Scope::Namespace => policy.namespace == subject.namespace,
        Scope::WorkloadSelector => subject.listed.contains(&name_of(policy)),
    }
}

/// Whether a policy matches a client: one of its groups must match, in it every rule, in each rule
/// one match. `None` if that depends on unknown properties.
fn fits(policy: &Authorization, visitor: &Visitor<'_>) -> Option<bool> {
    any(policy
        .groups
        .iter()
        .map(|group| all(group.rules.iter().map(|rule| rule_fits(rule, visitor)))))
}

/// A rule without matches matches every client; an empty match matches none.
fn rule_fits(rule: &Rules, visitor: &Visitor<'_>) -> Option<bool> {
    if rule.matches.is_empty() {
        return Some(true);
    }
    let says_something = |one: &&Match| {
        let extensions = Vec::new();
        Match {
            extensions,
            ..(*one).clone()
        } != Match::default()
    };
    any(rule
        .matches
        .iter()
        .filter(says_something)
        .map(|one| match_fits(one, visitor)))
}

/// Whether all conditions of a match are met.
fn match_fits(wanted: &Match, visitor: &Visitor<'_>) -> Option<bool> {
    let port = u32::from(visitor.destination.1);
    let on_port = |wanted: &u32| Some(*wanted == port);
    let to = |range: &Address| Some(contains(range, visitor.destination.0));
    let from = |range: &Address| visitor.source.map(|source| contains(range, source));
    let identity = match visitor.peer {
        Peer::Proven(identity) => Some(Identity::read(identity)),
        Peer::Nobody | Peer::Somebody => None,
    };

    let is_known = visitor.peer != Peer::Somebody;
    let is_principal = |wanted: &StringMatch| match &identity {
        Some(identity) => Some(matches_text(wanted, identity.whole)),
        None if is_known => Some(false),
        None => is_anybody(wanted),
    };

    let is_of_namespace = |wanted: &StringMatch| match &identity {
        Some(identity) => Some(matches_text(wanted, identity.namespace)),
        // A client without an identity is in the namespace with the empty name.
        None if is_known => Some(matches_text(wanted, "")),
        None => is_anybody(wanted),
    };

    let is_account = |wanted: &ServiceAccountMatch| match &identity {
        Some(identity) => Some(
            identity.namespace == wanted.namespace && identity.account == wanted.service_account,
        ),
        None => is_known.then_some(false),
    };

    let parts = [
        lists_fit(&wanted.destination_ips, &wanted.not_destination_ips, to),
        lists_fit(&wanted.source_ips, &wanted.not_source_ips, from),
        lists_fit(
            &wanted.destination_ports,
            &wanted.not_destination_ports,
            on_port,
        ),
        lists_fit(
            &wanted.service_accounts,
            &wanted.not_service_accounts,
            is_account,
        ),
        lists_fit(&wanted.principals, &wanted.not_principals, is_principal),
        lists_fit(&wanted.namespaces, &wanted.not_namespaces, is_of_namespace),
    ];

    all(parts.into_iter())
}

/// Whether one of `wanted` matches, unless the list is empty, and none of `unwanted`.
fn lists_fit<T>(wanted: &[T], unwanted: &[T], fits: impl Fn(&T) -> Option<bool>) -> Option<bool> {
    let is_wanted = if wanted.is_empty() {
        Some(true)
    } else {
        any(wanted.iter().map(&fits))
    };
    both(
        is_wanted,
        any(unwanted.iter().map(&fits)).map(|is_unwanted| !is_unwanted),
    )
}

/// Whether a string match accepts every identity; `None` if that depends on the identity.
fn is_anybody(wanted: &StringMatch) -> Option<bool> {
    matches!(wanted.match_type, Some(MatchType::Presence(()))).then_some(true)
}

/// Whether a text matches. The empty text counts as absent.
fn matches_text(wanted: &StringMatch, text: &str) -> bool {
    match &wanted.match_type {
        Some(MatchType::Exact(exact)) => text == exact,
        Some(MatchType::Prefix(prefix)) => text.starts_with(prefix.as_str()),
        Some(MatchType::Suffix(suffix)) => text.ends_with(suffix.as_str()),
        Some(MatchType::Presence(())) => !text.is_empty(),
        None => false,
    }
}

/// Whether a range holds an address.
fn contains(range: &Address, ip: IpAddr) -> bool {
    let four = <[u8; 4]>::try_from(&*range.address).map(IpAddr::from);
    let start = four.or_else(|_| <[u8; 16]>::try_from(&*range.address).map(IpAddr::from));
    start.is_ok_and(|start| range_fit(&start.to_string(), range.length, ip).is_some())
}

#[cfg(test)]
mod tests {
    use navarch_proto::istio::security::Group;

    use super::*;
    use crate::policy::TokenClaims;

    fn exact(text: &str) -> StringMatch {
        StringMatch {
            match_type: Some(MatchType::Exact(text.to_owned())),
        }
    }

    /// A policy in `shop` with one rule of one match.
    fn policy(name: &str, action: Action, scope: Scope, wanted: Match) -> Authorization {
        Authorization {
            name: name.to_owned(),
            namespace: "shop".to_owned(),
            scope: scope.into(),
            action: action.into(),
            groups: vec![Group {
                rules: vec![Rules {
                    matches: vec![wanted],
                }],
            }],
            ..Authorization::default()
        }
    }

    /// The verdict on a peer from 10.1.0.4 to port 8080 of a workload in `shop` that lists
    /// `shop/listed`.
    fn verdict_for(policies: &[&Authorization], peer: Peer<'_>) -> Verdict {
        let visitor = Visitor {
            peer,
            source: Some("10.1.0.4".parse().unwrap()),
            remote: None,
            claims: TokenClaims::Absent,
            destination: ("10.1.0.1".parse().unwrap(), 8080),
            http: None,
        };
        verdict(
            policies.iter().copied(),
            Subject {
                namespace: "shop",
                listed: &["shop/listed".to_owned()],
            },
            &visitor,
        )
    }

    const CLIENT: Peer<'_> = Peer::Proven("spiffe://cluster.local/ns/shop/sa/client");

    #[test]
    fn deny_policies_take_precedence_over_allow_policies() {
        let principals = vec![exact("cluster.local/ns/shop/sa/client")];
        let all = Match {
            destination_ports: vec![8080],
            ..Match::default()
        };
        let of_client = Match {
            principals,
            ..Match::default()
        };
        let allows = policy("a", Action::Allow, Scope::Namespace, of_client.clone());

        let denies = policy("d", Action::Deny, Scope::Global, all);
        assert_eq!(verdict_for(&[&allows], CLIENT), Verdict::Passes);
        assert_eq!(
            verdict_for(&[&allows], Peer::Nobody),
            Verdict::NotAllowed(vec!["shop/a".to_owned()])
        );
        assert_eq!(verdict_for(&[&allows], Peer::Somebody), Verdict::Unknown);
        assert_eq!(
            verdict_for(&[&allows, &denies], CLIENT),
            Verdict::Denied("shop/d".to_owned())
        );

        assert_eq!(
            verdict_for(
                &[&Authorization {
                    dry_run: true,
                    ..denies
                }],
                CLIENT
            ),
            Verdict::Passes
        );

        // Only listed policies with a selector apply.
        let other = policy(
            "other",
            Action::Deny,
            Scope::WorkloadSelector,
            of_client.clone(),
        );

        let listed = policy("listed", Action::Deny, Scope::WorkloadSelector, of_client);
        assert_eq!(verdict_for(&[&other], CLIENT), Verdict::Passes);
        assert_eq!(
            verdict_for(&[&other, &listed], CLIENT),
            Verdict::Denied("shop/listed".to_owned())
        );
    }

    #[test]
    fn plain_text_has_no_identity_and_empty_matches_match_nothing() {
        let anybody = StringMatch {
            match_type: Some(MatchType::Presence(())),
        };
        let strict = Match {
            not_principals: vec![anybody],
            ..Match::default()
        };
        let strict = policy("strict", Action::Deny, Scope::Global, strict);

        assert_eq!(
            verdict_for(&[&strict], Peer::Nobody),
            Verdict::Denied("shop/strict".to_owned())
        );
        assert_eq!(verdict_for(&[&strict], CLIENT), Verdict::Passes);
        assert_eq!(verdict_for(&[&strict], Peer::Somebody), Verdict::Passes);
        let empty = policy("empty", Action::Allow, Scope::Namespace, Match::default());
        assert_eq!(
            verdict_for(&[&empty], CLIENT),
            Verdict::NotAllowed(vec!["shop/empty".to_owned()])
        );

        // An empty rule list matches every client, an empty group list none.
        let all = Authorization {
            groups: vec![Group::default()],
            ..empty.clone()
        };
        assert_eq!(verdict_for(&[&all], CLIENT), Verdict::Passes);
        assert_ne!(
            verdict_for(
                &[&Authorization {
                    groups: Vec::new(),
                    ..empty
                }],
                CLIENT
            ),
            Verdict::Passes
        );
    }

    #[test]
    fn addresses_accounts_and_namespaces_count() {
        let range = |bytes: &[u8], length| Address {
            address: bytes.to_vec().into(),
            length,
        };
        let account = ServiceAccountMatch {
            namespace: "shop".to_owned(),
            service_account: "client".to_owned(),
        };

        for (wanted, passes) in [
            (
                Match {
                    source_ips: vec![range(&[10, 1, 0, 0], 16)],
                    ..Match::default()
                },
                true,
            ),
            (
                Match {
                    source_ips: vec![range(&[10, 2, 0, 0], 16)],
                    ..Match::default()
                },
                false,
            ),
            (
                Match {
                    not_destination_ips: vec![range(&[10, 1, 0, 1], 32)],
                    ..Match::default()
                },
                false,
            ),
            (
                Match {
                    service_accounts: vec![account.clone()],
                    ..Match::default()
                },
                true,
            ),
            (
                Match {
                    not_service_accounts: vec![account],
                    ..Match::default()
                },
                false,
            ),
            (
                Match {
                    namespaces: vec![exact("shop")],
                    ..Match::default()
                },
                true,
            ),
            (
                Match {
                    not_namespaces: vec![exact("bank")],
                    destination_ports: vec![80],
                    ..Match::default()
                },
                false,
            ),
        ] {
            let one = policy("p", Action::Allow, Scope::Namespace, wanted.clone());
            assert_eq!(
                verdict_for(&[&one], CLIENT) == Verdict::Passes,
                passes,
                "{wanted:?}"
            );
        }
    }
}
