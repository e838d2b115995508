//! Expressions that read filter state of Istio's own filters about peers. A stock Envoy does not have
//! it, but its agent knows the same of peers.

use navarch_base::metrics_log::{Peer, PeerAttribute, PeerField};

/// The filter state about peers, by its key.
const PEERS: [(&str, Peer); 2] = [
    ("upstream_peer", Peer::Upstream),
    ("downstream_peer", Peer::Downstream),
];

/// The attribute that an expression consists of; `None` for all other expressions, and for
/// attributes that agents do not know.
pub(super) fn of_expression(expression: &str) -> Option<PeerAttribute> {
    let expression = expression.trim();
    match expression.strip_prefix("has(") {
        Some(rest) => of_upgrade(rest),
        None => of_path(&path(expression)?),
    }
}

/// Whether an expression reads filter state about peers.
pub(super) fn mentions_peer(expression: &str) -> bool {
    PEERS.iter().any(|(key, _)| expression.contains(key))
}

/// The attribute of the form that Istio's upgrade notes give for a mesh with older proxies, from
/// the name in `has(..)` on: `has(NEW) ? NEW.x : OLD.x`. There are no such proxies.
fn of_upgrade(rest: &str) -> Option<PeerAttribute> {
    let (tested, rest) = rest.split_once(')')?;
    let (attribute, older) = rest.trim_start().strip_prefix('?')?.split_once(':')?;
    let tested = path(tested.trim())?;
    let attribute = path(attribute.trim())?;
    let older = path(older.trim())?;

    let is_same = attribute.starts_with(&tested) && tested.len() == 2;
    let is_older = older.get(1)?.strip_prefix("wasm.")? == *tested.get(1)?;
    (is_same && is_older).then(|| of_path(&attribute)).flatten()
}

/// The attribute of a path.
fn of_path(path: &[&str]) -> Option<PeerAttribute> {
    let ["filter_state", key, rest @ ..] = path else {
        return None;
    };
    let (_, peer) = PEERS.iter().find(|(known, _)| known == key)?;
    let field = match rest {
        ["labels", label] => PeerField::Label((*label).to_owned()),
        ["workload"] => PeerField::Workload,
        ["namespace"] => PeerField::Namespace,
        ["cluster"] => PeerField::Cluster,
        ["service"] => PeerField::Service,
        ["revision"] => PeerField::Revision,
        ["app"] => PeerField::App,
        ["version"] => PeerField::Version,
        _ => return None,
    };
    Some(PeerAttribute { peer: *peer, field })
}

/// The names of an expression that consists of selections, such as `a.b["c"]`.
fn path(expression: &str) -> Option<Vec<&str>> {
    let (first, mut rest) = word(expression)?;
    let mut path = vec![first];
    while !rest.is_empty() {
        let (next, after) = match rest.strip_prefix('.') {
            Some(member) => word(member)?,
            None => quoted(rest.strip_prefix('[')?)?,
        };
        path.push(next);
        rest = after;
    }
    Some(path)
}

/// The name at the start of a text, and the rest.
fn word(text: &str) -> Option<(&str, &str)> {
    let length = text
        .find(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_')
        .unwrap_or(text.len());
    (length > 0).then(|| text.split_at(length))
}

/// The string literal at the start of a text, and the rest behind its closing bracket.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|sign| "'\"".contains(*sign))?;
    let (literal, rest) = text.strip_prefix(quote)?.split_once(quote)?;
    let rest = rest.strip_prefix(']')?;
    (!literal.contains('\\')).then_some((literal, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(peer: Peer, field: PeerField) -> Option<PeerAttribute> {
        Some(PeerAttribute { peer, field })
    }

    #[test]
    fn an_attribute_of_a_peer_is_read_in_every_notation() {
        let label = || PeerField::Label("custom-label".to_owned());

        for (expression, expected) in [
            (
                "filter_state.upstream_peer.labels['custom-label']",
                read(Peer::Upstream, label()),
            ),
            (
                " filter_state[\"downstream_peer\"].labels[\"custom-label\"] ",
                read(Peer::Downstream, label()),
            ),
            (
                "filter_state['upstream_peer']['app']",
                read(Peer::Upstream, PeerField::App),
            ),
            (
                "filter_state.downstream_peer.workload",
                read(Peer::Downstream, PeerField::Workload),
            ),
            (
                "has(filter_state.downstream_peer) ? filter_state.downstream_peer.namespace : \
                 filter_state[\"wasm.downstream_peer\"].namespace",
                read(Peer::Downstream, PeerField::Namespace),
            ),
        ] {
            assert_eq!(of_expression(expression), expected, "{expression}");
        }
    }

    #[test]
    fn other_expressions_are_left_to_envoy() {
        for expression in [
            "",
            "filter_state.upstream_peer",
            "filter_state.upstream_peer.name",
            "filter_state.upstream_peer.type",
            "filter_state.upstream_peer.labels['a'].value",
            "filter_state.upstream_peer.labels['a",
            "filter_state.upstream_peer.app + 'x'",
            "upstream_peer.app",
            "has(filter_state.upstream_peer) ? filter_state.upstream_peer.app : 'none'",
            "has(filter_state.upstream_peer) ? filter_state.downstream_peer.app : \
             filter_state['wasm.upstream_peer'].app",
        ] {
            assert_eq!(of_expression(expression), None, "{expression}");
            assert_eq!(mentions_peer(expression), !expression.is_empty());
        }

        let of_wasm = "filter_state[\"wasm.istio_operationId\"]";
        assert_eq!(of_expression(of_wasm), None);
        assert!(!mentions_peer(of_wasm));
    }
}
