//! Aliases: ExternalName services, resolved to their final host.

use std::collections::BTreeMap;

use super::model::ServiceKey;
use navarch_api::names::Hostname;

/// The aliases of each host, sorted, given each alias and the host that it refers to.
///
/// An alias may refer to another alias. Cycles resolve to nothing.
#[must_use]
pub(super) fn resolve_aliases(
    aliases: impl IntoIterator<Item = (ServiceKey, Hostname)>,
) -> BTreeMap<Hostname, Vec<ServiceKey>> {
    let aliases: BTreeMap<ServiceKey, Hostname> = aliases.into_iter().collect();
    let by_host: BTreeMap<&Hostname, &Hostname> = aliases
        .iter()
        .map(|(key, host)| (&key.hostname, host))
        .collect();

    // The final host of each alias; `None` for cycles, and while it is being resolved.
    let mut ends: BTreeMap<&Hostname, Option<&Hostname>> = BTreeMap::new();
    let mut resolved: BTreeMap<Hostname, Vec<ServiceKey>> = BTreeMap::new();

    for alias in aliases.keys() {
        let mut path = Vec::new();
        let mut at = &alias.hostname;
        let end = loop {
            match (ends.get(at), by_host.get(at)) {
                (Some(known), _) => break *known,
                (None, None) => break Some(at),
                (None, Some(next)) => {
                    ends.insert(at, None);
                    path.push(at);
                    at = next;
                }
            }
        };

        ends.extend(path.into_iter().map(|name| (name, end)));
        if let Some(end) = end {
            resolved.entry(end.clone()).or_default().push(alias.clone());
        }
    }

    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_followed_to_the_end_and_circles_lead_nowhere() {
        let key = |host: &str| ServiceKey::new("shop", host);
        let host = |host: &str| Hostname::new(host);
        let aliases = [
            (key("first"), host("second")),
            (key("second"), host("web")),
            (key("here"), host("there")),
            (key("there"), host("here")),
            (key("self"), host("self")),
        ];
        let resolved = resolve_aliases(aliases);
        assert_eq!(
            resolved,
            BTreeMap::from([(host("web"), vec![key("first"), key("second")])])
        );
    }
}
