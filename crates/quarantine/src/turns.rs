//! In which order rejected objects are judged: each round takes a limited time, and a namespace
//! whose proxies reject many objects must not delay the judgement of others.

use std::collections::BTreeMap;

use navarch_api::names::Namespace;
use navarch_api::object::ObjectRef;
use tokio::time::Instant;

/// An object whose judgement waits for answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenCase {
    pub(super) name: ObjectRef,
    /// The namespace whose proxies reject it.
    pub(super) rejecting: Namespace,
    /// When its answers were last looked at; `None` if they were not.
    pub(super) looked_at: Option<Instant>,
}

/// The objects in turn by namespace: of each the one that was not looked at for longest, then the
/// next ones.
pub(super) fn in_turn(mut open: Vec<OpenCase>) -> Vec<ObjectRef> {
    open.sort_by_key(|case| case.looked_at);
    let mut counts: BTreeMap<Namespace, usize> = BTreeMap::new();
    let mut ranked = Vec::new();
    for case in open {
        let count = counts.entry(case.rejecting).or_default();
        ranked.push((*count, case.name));
        *count += 1;
    }

    // Stable: of equal ranks the one that was not looked at for longest stays first.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use navarch_api::object::{Kind, NamespacedName};

    use super::*;

    #[test]
    fn many_rejected_objects_of_one_namespace_delay_those_of_others_by_one() {
        let start = Instant::now();
        let case = |rejecting: &str, number: u64, looked: Option<u64>| OpenCase {
            name: ObjectRef {
                kind: Kind::DestinationRule,
                name: NamespacedName::new("all", &format!("{rejecting}-{number:02}")),
            },
            rejecting: Namespace::new(rejecting),
            looked_at: looked.map(|millis| start + Duration::from_millis(millis)),
        };
        let mut open: Vec<OpenCase> = (0..64)
            .map(|number| case("evil", number, Some(number)))
            .collect();
        open.push(case("shop", 1, Some(1000)));
        open.push(case("shop", 2, None));

        let order = in_turn(open);
        let names: Vec<&str> = order.iter().map(|name| &*name.name.name).take(5).collect();
        assert_eq!(
            names,
            ["shop-02", "evil-00", "evil-01", "shop-01", "evil-02"]
        );
        assert_eq!(order.len(), 66);
    }
}
