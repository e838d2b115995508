//! Differences between collections of resources, and unified diffs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use navarch_api::envoy_json::codec;
use navarch_api::names::ResourceName;
use navarch_push::resource::{Collection, Resource, ResourceType};
use navarch_tables::hash::KeyedSet;
use prost::encoding::{WireType, decode_key, decode_varint};
use serde_json::Value;
use similar::TextDiff;

use super::proposal::Action;

/// Maximum size in bytes of a resource for a diff.
const MAX_SHOWN: usize = 1 << 20;
/// The number of `RouteConfiguration.virtual_hosts`.
const VIRTUAL_HOSTS: u32 = 2;
/// Bytes per resource on the wire in addition to its body: version and field tags.
const RESOURCE_OVERHEAD: usize = 48;

/// A resource before and after; at least one of the two is present.
pub type Pair = [Option<Arc<Resource>>; 2];

/// The difference between two collections of one type.
#[derive(Debug, Default)]
pub struct CollectionDiff {
    /// Resources before and after; at least one of the two is present.
    pub resources: BTreeMap<ResourceName, Pair>,
    /// Approximate size in bytes over delta xDS.
    pub delta_bytes: usize,
    /// Approximate size in bytes over state-of-the-world xDS.
    pub state_bytes: usize,
}

impl CollectionDiff {
    /// Compares two collections. The cost is proportional to the difference.
    #[must_use]
    pub fn between(before: Option<&Collection>, after: Option<&Collection>) -> Self {
        let Some(resource_type) = before.or(after).map(|collection| collection.resource_type)
        else {
            return Self::default();
        };

        let empty = Collection::new(resource_type, Default::default());
        let before = before.unwrap_or(&empty);
        let after = after.unwrap_or(&empty);
        let mut step = Self::default();
        let [old, new] = before.resources.apart(&after.resources);
        for resource in old {
            step.resources.entry(resource.name.clone()).or_default()[0] = Some(resource.clone());
        }

        for resource in new {
            step.resources.entry(resource.name.clone()).or_default()[1] = Some(resource.clone());
        }

        step.resources.retain(|_, [old, new]| old != new);
        let sent = |resource: &Resource| {
            resource.body.len()
                + resource.name.as_str().len()
                + resource_type.resource_url().len()
                + RESOURCE_OVERHEAD
        };

        for (name, [_, new]) in &step.resources {
            step.delta_bytes += new.as_ref().map_or(name.as_str().len(), |new| sent(new));
        }

        step.state_bytes = if step.resources.is_empty() {
            0
        } else if resource_type.is_wildcard_by_default() {
            after.resources.iter().map(|resource| sent(resource)).sum()
        } else {
            step.delta_bytes
        };

        step
    }

    /// The action of each resource, by name.
    pub fn actions(&self) -> impl Iterator<Item = (&ResourceName, Action)> {
        self.resources
            .iter()
            .map(|(name, [old, new])| (name, action(old.as_ref(), new.as_ref())))
    }

    /// The added and changed resources.
    pub fn new_resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values().filter_map(|[_, new]| new.as_ref())
    }
}

/// `Added` without an old version, `Removed` without a new one, else `Changed`: equal versions are
/// not passed.
#[must_use]
pub fn action(old: Option<&Arc<Resource>>, new: Option<&Arc<Resource>>) -> Action {
    match (old, new) {
        (None, _) => Action::Added,
        (Some(_), None) => Action::Removed,
        (Some(_), Some(_)) => Action::Changed,
    }
}

/// The bodies of two resources; route configurations without the virtual hosts that both have,
/// which are most of them.
#[must_use]
pub fn distinct(resource_type: ResourceType, pair: &Pair) -> [Bytes; 2] {
    let bodies = pair.each_ref().map(|side| {
        side.as_ref()
            .map(|resource| resource.body.clone())
            .unwrap_or_default()
    });
    if resource_type != ResourceType::Route {
        return bodies;
    }

    let [Some(old), Some(new)] = bodies.each_ref().map(|body| fields(body)) else {
        return bodies;
    };

    let [old_at, new_at] = apart(&old, &new);
    let known = among(&old, &old_at);
    let kept = among(&new, &new_at);

    // An empty body means an absent resource, which has no fields.
    [
        without(&old, &old_at, &kept),
        without(&new, &new_at, &known),
    ]
}

fn among<'a>(fields: &[Field<'a>], at: &Range<usize>) -> KeyedSet<Field<'a>> {
    fields
        .get(at.clone())
        .expect("`apart` returns ranges of the lists")
        .iter()
        .copied()
        .collect()
}

/// The differing ranges of two lists: most changes are in one place.
fn apart(old: &[Field<'_>], new: &[Field<'_>]) -> [Range<usize>; 2] {
    let head = old
        .iter()
        .zip(new)
        .take_while(|(old, new)| old == new)
        .count();
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(|(old, new)| old == new)
        .count();
    let tail = tail.min(old.len().min(new.len()) - head);
    [head..old.len() - tail, head..new.len() - tail]
}

/// A route configuration with only those of its virtual hosts that are in the range `at` and not in
/// `other`.
fn without(fields: &[Field<'_>], at: &Range<usize>, other: &KeyedSet<Field<'_>>) -> Bytes {
    let differs = |place: usize, field: &Field<'_>| at.contains(&place) && !other.contains(field);
    let kept = (0..)
        .zip(fields)
        .filter(|(place, field)| field.0 != VIRTUAL_HOSTS || differs(*place, field));
    kept.map(|(_, field)| field.1)
        .collect::<Vec<_>>()
        .concat()
        .into()
}

/// A field of a message: its number, and its bytes with the number.
type Field<'a> = (u32, &'a [u8]);

/// The fields of a message; `None` if the message is malformed or has groups.
fn fields(message: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut rest = message;
    let mut fields = Vec::new();

    while rest.has_remaining() {
        let from = rest;
        let (number, wire_type) = decode_key(&mut rest).ok()?;
        let length = match wire_type {
            WireType::Varint => decode_varint(&mut rest).map(|_| 0).ok()?,
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut rest).ok()?).ok()?,
            WireType::ThirtyTwoBit => 4,
            WireType::StartGroup | WireType::EndGroup => return None,
        };

        if rest.remaining() < length {
            return None;
        }

        rest.advance(length);
        fields.push((number, from.get(..from.len() - rest.len())?));
    }

    Some(fields)
}

/// The difference between the [`distinct`] bodies of two resources as a unified diff of YAML, of at
/// most `lines` lines. Secrets are not shown.
#[must_use]
pub fn unified(resource_type: ResourceType, [old, new]: &[Bytes; 2], lines: usize) -> String {
    if resource_type == ResourceType::Secret {
        return String::new();
    }

    if old.len().max(new.len()) > MAX_SHOWN {
        return format!(
            "{} bytes change to {}: too long to show\n",
            old.len(),
            new.len()
        );
    }

    let text = |body: &[u8]| {
        if body.is_empty() {
            return String::new();
        }
        match codec().to_json(resource_type.resource_url(), body) {
            Ok(value) => yaml(&value),
            Err(error) => format!("{error}\n"),
        }
    };

    let old = text(old);
    let new = text(new);
    if old.len().max(new.len()) > 4 * MAX_SHOWN {
        return format!(
            "{} bytes of YAML change to {}: too long to show\n",
            old.len(),
            new.len()
        );
    }

    let whole = text_diff(&old, &new, None);
    let shown: Vec<&str> = whole.lines().take(lines).collect();
    let more = whole.lines().count() - shown.len();
    let more = if more > 0 {
        format!("… {more} more lines\n")
    } else {
        String::new()
    };

    shown
        .iter()
        .map(|line| format!("{line}\n"))
        .chain([more])
        .collect()
}

/// A unified diff of two texts with three lines of context, below the titles of both if there are
/// any. All diffs are made here: each crate that calls the library compiles all of it again.
#[must_use]
pub fn text_diff(old: &str, new: &str, titles: Option<[&str; 2]>) -> String {
    let diff = TextDiff::from_lines(old, new);
    let mut shown = diff.unified_diff();
    shown.context_radius(3);
    if let Some([old, new]) = titles {
        shown.header(old, new);
    }
    shown.to_string()
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|error| format!("{error}\n"))
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
    use prost::Message;

    use super::*;

    fn routes(hosts: &[(&str, &str)]) -> Arc<Resource> {
        let host = |(name, domain): &(&str, &str)| VirtualHost {
            name: (*name).to_owned(),
            domains: vec![(*domain).to_owned()],
            ..VirtualHost::default()
        };
        let virtual_hosts = hosts.iter().map(host).collect();
        let routes = RouteConfiguration {
            name: "80".to_owned(),
            virtual_hosts,
            ..RouteConfiguration::default()
        };
        Arc::new(Resource::new(
            ResourceType::Route,
            ResourceName::new("80"),
            routes.encode_to_vec().into(),
        ))
    }

    #[test]
    fn of_tables_the_hosts_that_differ_are_left() {
        let old = routes(&[("a", "a"), ("b", "b"), ("c", "c")]);
        let new = routes(&[("a", "a"), ("b", "x"), ("d", "d")]);
        let expected = [
            routes(&[("b", "b"), ("c", "c")]),
            routes(&[("b", "x"), ("d", "d")]),
        ];
        let left = distinct(ResourceType::Route, &[Some(old.clone()), Some(new)]);
        assert_eq!(left, expected.map(|resource| resource.body.clone()));

        let gone = distinct(ResourceType::Route, &[Some(old.clone()), None]);
        assert_eq!(gone, [old.body.clone(), Bytes::new()]);
        let same = distinct(ResourceType::Route, &[Some(old.clone()), Some(old.clone())]);
        assert_eq!(same, [(); 2].map(|()| routes(&[]).body.clone()));
        let moved = [
            routes(&[("a", "a"), ("b", "b")]),
            routes(&[("c", "c"), ("b", "b"), ("a", "a")]),
        ];
        let left = distinct(ResourceType::Route, &moved.map(Some));

        assert_eq!(
            left,
            [routes(&[]), routes(&[("c", "c")])].map(|resource| resource.body.clone())
        );
        let longer = routes(&[("a", "a"), ("b", "b"), ("b", "b"), ("c", "c")]);
        let left = distinct(ResourceType::Route, &[Some(old), Some(longer)]);
        assert_eq!(
            left,
            [routes(&[]), routes(&[("b", "b")])].map(|resource| resource.body.clone())
        );
    }

    #[test]
    fn bytes_that_are_not_a_message_have_no_fields() {
        for broken in [&[0x12, 5, 1][..], &[0x0b], &[0xff; 11], &[0x0d, 1, 2]] {
            assert_eq!(fields(broken), None, "{broken:?}");
        }
    }
}
