//! Which resources of a rejected response a client's message blames.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::names::ResourceName;
use navarch_push::resource::{Resource, ResourceType};

/// What Envoy's message begins with if it has added all clusters or listeners but the named ones.
const ADDED_OTHERS: [&str; 2] = [
    "Error adding/updating cluster(s) ",
    "Error adding/updating listener(s) ",
];
/// What Envoy's message begins with if it has rejected a cluster that requests wait for, whose name
/// follows before ` - `. It may have added none of the others.
const REQUESTED: &str = "Error adding/updating cluster ";
/// What Envoy's message begins with if it has added no resource since one is invalid, whose text
/// follows.
const INVALID: &str = "Proto constraint validation failed (";

/// The resources that a message blames.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Blamed {
    /// The one that is rejected for certain.
    pub(super) first: Option<ResourceName>,
    /// All, with that one.
    pub(super) named: BTreeSet<ResourceName>,
}

impl Blamed {
    fn only(name: &ResourceName) -> Self {
        Self {
            first: Some(name.clone()),
            named: BTreeSet::from([name.clone()]),
        }
    }
}

/// The names of the resources of a response, which are sorted by name, that the message of its NACK
/// blames.
///
/// A message can repeat what users of other namespaces have written, such as the name of a
/// resource of theirs. So names count only where the client itself writes them: before the error of
/// each in a list, before the error of a requested one, or at the begin of an invalid one. Of a list,
/// only the first one is certain: the others may be in the text of its error.
pub(super) fn blamed(resource_type: ResourceType, message: &str, sent: &[Arc<Resource>]) -> Blamed {
    if let [only] = sent {
        return Blamed::only(&only.name);
    }

    let envoys_list = || {
        ADDED_OTHERS
            .iter()
            .find_map(|begin| message.strip_prefix(begin))
    };
    let list = match resource_type.is_ambient() {
        true => Some(message),
        false => envoys_list(),
    };
    let find = |word: &str| {
        let place = sent
            .binary_search_by(|resource| resource.name.as_str().cmp(word))
            .ok()?;
        sent.get(place).map(|resource| &resource.name)
    };

    let Some(list) = list else {
        let word = name_of_requested(message).or_else(|| name_of_invalid(message));
        return word.and_then(find).map(Blamed::only).unwrap_or_default();
    };
    let first = name_at_begin(list, sent);
    let words = words_before_errors(list).into_iter().filter_map(find);
    Blamed {
        first: first.cloned(),
        named: words.chain(first).cloned().collect(),
    }
}

/// The name that a list begins with. Names of EnvoyFilters may have spaces.
fn name_at_begin<'a>(list: &str, sent: &'a [Arc<Resource>]) -> Option<&'a ResourceName> {
    let is_first = |name: &&ResourceName| {
        let rest = list.strip_prefix(name.as_str());
        rest.is_some_and(|rest| rest.starts_with(": "))
    };
    let names = sent.iter().map(|resource| &resource.name);
    names
        .filter(is_first)
        .max_by_key(|name| name.as_str().len())
}

/// The words of a list that may be names: those before `: `.
fn words_before_errors(list: &str) -> Vec<&str> {
    list.match_indices(": ")
        .filter_map(|(end, _)| list.get(..end)?.rsplit([' ', '\n']).next())
        .collect()
}

/// The name of a rejected cluster that requests wait for.
fn name_of_requested(message: &str) -> Option<&str> {
    let (name, _) = message.strip_prefix(REQUESTED)?.split_once(" - ")?;
    Some(name)
}

/// The name in the text of an invalid resource, whose first field it is.
fn name_of_invalid(message: &str) -> Option<&str> {
    let (_, text) = message.strip_prefix(INVALID)?.split_once("): ")?;
    let (before, rest) = text.split_once("name: \"")?;
    let (name, _) = rest.split_once('"')?;
    let is_first = !before.contains(['"', '{']);
    is_first.then_some(name)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use ResourceType::{Address, Cluster, Listener, Route};

    const A: &str = "outbound|80||a.example";
    const AB: &str = "outbound|80||a.example.b";
    const C: &str = "outbound|80|v1|c.example";

    /// What a message blames of a response with these resources.
    fn blamed_of(resource_type: ResourceType, sent: &[&str], message: &str) -> Blamed {
        let names: BTreeSet<ResourceName> = sent.iter().map(ResourceName::new).collect();
        let sent: Vec<Arc<Resource>> = names
            .into_iter()
            .map(|name| Arc::new(Resource::new(resource_type, name, Bytes::new())))
            .collect();
        blamed(resource_type, message, &sent)
    }

    fn of(first: Option<&str>, named: &[&str]) -> Blamed {
        Blamed {
            first: first.map(ResourceName::new),
            named: named.iter().map(ResourceName::new).collect(),
        }
    }

    #[test]
    fn resources_are_blamed_where_envoy_names_them() {
        let sent = [A, AB, C];
        let lists = [
            (
                format!("Error adding/updating cluster(s) {AB}: no such extension"),
                of(Some(AB), &[AB]),
            ),
            (
                format!("Error adding/updating cluster(s) {C}: Protobuf: {AB} is bad, {A}: why"),
                of(Some(C), &[A, C]),
            ),
            (
                format!("Error adding/updating cluster(s) x: why, {A}: why"),
                of(None, &[A]),
            ),
            (
                format!("Error adding/updating cluster {C} - {C}: like {A}: why"),
                of(Some(C), &[C]),
            ),
        ];

        // The only one that is certain is the invalid resource itself.
        let invalid = [
            (
                format!(
                    "Proto constraint validation failed (ClusterValidationError.X: [\"{A}: \"]): \
                     name: \"{AB}\"\nalt_stat_name: \"{C}\""
                ),
                of(Some(AB), &[AB]),
            ),
            (
                format!(
                    "Proto constraint validation failed (field: \"x\", reason: is required): \
                     goo.gle/debugonly  name: \"{C}\" type: EDS"
                ),
                of(Some(C), &[C]),
            ),
            (
                format!("Proto constraint validation failed (X): config {{ name: \"{C}\" }}"),
                Blamed::default(),
            ),
            (
                format!(
                    "Proto constraint validation failed (X): alt_stat_name: \"x\" name: \"{C}\""
                ),
                Blamed::default(),
            ),
        ];

        let others = [
            (format!("Unable to parse: {A}: why"), Blamed::default()),
            (String::new(), Blamed::default()),
        ];

        for (message, expected) in lists.into_iter().chain(invalid).chain(others) {
            assert_eq!(blamed_of(Cluster, &sent, &message), expected, "{message}");
        }
    }

    #[test]
    fn resources_of_other_types_and_clients_are_blamed_in_their_forms() {
        let listeners = "Error adding/updating listener(s) virtualInbound: no\n0.0.0.0_80: no\n";
        let sent = ["0.0.0.0_80", "virtualInbound"];
        let expected = of(Some("virtualInbound"), &sent);
        assert_eq!(blamed_of(Listener, &sent, listeners), expected);

        let sent = ["net//Pod/shop/a", "net//Pod/shop/b"];
        let message = "net//Pod/shop/b: no such address; net//Pod/shop/x: no";
        let expected = of(Some("net//Pod/shop/b"), &["net//Pod/shop/b"]);
        assert_eq!(blamed_of(Address, &sent, message), expected);

        // An EnvoyFilter may add a cluster whose name has a space.
        let sent = ["cluster", "my cluster", "my"];
        let message = "Error adding/updating cluster(s) my cluster: no such extension";
        let expected = of(Some("my cluster"), &["cluster", "my cluster"]);
        assert_eq!(blamed_of(Cluster, &sent, message), expected);
        let sent = ["cluster", "my"];
        assert_eq!(blamed_of(Cluster, &sent, message), of(None, &["cluster"]));

        // A number is the name of routes, but no message blames routes by it.
        let message = "Only unique values for domains are permitted in 80: a";
        assert_eq!(blamed_of(Route, &["80", "81"], message), Blamed::default());
        assert_eq!(blamed_of(Route, &["81"], message), of(Some("81"), &["81"]));
        assert_eq!(blamed_of(Route, &[], message), Blamed::default());
    }
}
