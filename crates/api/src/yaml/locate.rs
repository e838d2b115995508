//! Finding the line of a field, for messages.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A node with its line.
struct Node {
    /// The line on which it starts, from 1.
    line: usize,
    children: Children,
}

/// The children of a node.
enum Children {
    /// A scalar without children.
    None,
    /// The items of a list.
    Items(Vec<Node>),
    /// The members of a map, in their order.
    Members(Vec<(Key, Node)>),
}

/// A key with its line.
struct Key {
    /// The line of the key, from 1.
    line: usize,
    name: String,
}

/// The line, from 1, of the field at `path` (such as `spec.http[0].route`), or of its last existing
/// ancestor. `None` if the text cannot be parsed.
///
/// Parses the text again, so it is for errors only.
#[must_use]
pub fn line_of(text: &str, path: &str) -> Option<usize> {
    let mut node: &Node =
        &super::deserialize::<Node>(text, super::reader_options(super::Schema::V1_2)).ok()?;
    let mut line = node.line;
    let mut rest = path;
    while !rest.is_empty() {
        let Some((found, child, after)) = step(node, rest) else {
            break;
        };
        line = found;
        node = child;
        rest = after;
    }
    Some(line)
}

/// The lines, from 1, of all scalars by their paths (such as `spec.hosts[0]`); empty if the text
/// cannot be parsed.
#[must_use]
pub fn scalar_lines(text: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    if let Ok(root) = super::deserialize::<Node>(text, super::reader_options(super::Schema::V1_2)) {
        note_scalars(&root, String::new(), &mut lines);
    }
    lines
}

/// Collects the lines of the scalars in a node.
fn note_scalars(node: &Node, path: String, lines: &mut BTreeMap<String, usize>) {
    match &node.children {
        Children::None => {
            lines.insert(path, node.line);
        }
        Children::Items(items) => {
            for (index, item) in items.iter().enumerate() {
                note_scalars(item, format!("{path}[{index}]"), lines);
            }
        }
        Children::Members(members) => {
            for (key, child) in members {
                let dot = if path.is_empty() { "" } else { "." };
                note_scalars(child, format!("{path}{dot}{}", key.name), lines);
            }
        }
    }
}

/// One step along a path: the line, the node, and the rest of the path.
fn step<'a, 'p>(node: &'a Node, path: &'p str) -> Option<(usize, &'a Node, &'p str)> {
    match &node.children {
        Children::None => None,
        Children::Items(items) => {
            let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
            let item = items.get(index.parse::<usize>().ok()?)?;
            Some((item.line, item, rest.strip_prefix('.').unwrap_or(rest)))
        }
        Children::Members(members) => {
            // Keys may contain dots (labels do), so the longest matching key is used.
            let fits = |(key, _): &&(Key, Node)| after_key(path, &key.name).is_some();
            let (key, child) = members
                .iter()
                .filter(fits)
                .max_by_key(|(key, _)| key.name.len())?;
            Some((key.line, child, after_key(path, &key.name)?))
        }
    }
}

/// The rest of the path after a key, if the path starts with it.
fn after_key<'p>(path: &'p str, key: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(key)?;
    match rest.strip_prefix('.') {
        Some(rest) => Some(rest),
        None => (rest.is_empty() || rest.starts_with('[')).then_some(rest),
    }
}

/// The line that a spanned value starts on.
fn line<T>(spanned: &Spanned<T>) -> usize {
    usize::try_from(spanned.referenced.line()).unwrap_or_default()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Children>::deserialize(deserializer)?;
        Ok(Self {
            line: line(&spanned),
            children: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Children {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChildrenVisitor)
    }
}

/// Accepts any value.
struct ChildrenVisitor;

impl<'de> Visitor<'de> for ChildrenVisitor {
    type Value = Children;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_unit<E>(self) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Children, E> {
        Ok(Children::None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Children, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = items.next_element()? {
            nodes.push(node);
        }
        Ok(Children::Items(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Children, A::Error> {
        let mut nodes = Vec::new();
        while let Some(key) = members.next_key::<Spanned<String>>()? {
            nodes.push((
                Key {
                    line: line(&key),
                    name: key.value,
                },
                members.next_value()?,
            ));
        }
        Ok(Children::Members(nodes))
    }
}
