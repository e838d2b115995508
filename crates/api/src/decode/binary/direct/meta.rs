//! `metav1.ObjectMeta`, with the field numbers of `binary/metadata.rs`.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::fields::{Fields, UnexpectedField, set_once, texts as texts_of};
use crate::decode::stored::LAST_APPLIED;
use crate::names::Namespace;
use crate::object::{ControllerRef, NamespacedName, ObjectMeta};
use crate::shared_texts::SharedTexts;
use crate::uid::Uid;

/// Decoded metadata.
pub(super) struct Meta {
    /// The metadata without the version.
    pub(super) kept: ObjectMeta,
    /// `resourceVersion`.
    pub(super) version: String,
    /// Whether `generateName` is set.
    pub(super) is_generated: bool,
}

/// Reads metadata.
pub(super) fn read(bytes: &[u8], texts: &mut SharedTexts) -> Result<Meta, UnexpectedField> {
    let mut name = "";
    let mut namespace = "";
    let mut version = "";
    let mut uid = "";
    let mut generate_name = "";
    let mut generation = 0;
    let mut created = None;
    let mut deleted = None;
    let mut controller = None;
    let mut labels = Vec::new();
    let mut annotations = Vec::new();

    for field in Fields(bytes) {
        match field? {
            (1, content) => name = content.text()?,
            (2, content) => generate_name = content.text()?,
            (3, content) => namespace = content.text()?,
            (5, content) => uid = content.text()?,
            (6, content) => version = content.text()?,
            (7, content) => generation = content.signed()?,
            (8, content) => set_once(&mut created, content.bytes()?)?,
            (9, content) => set_once(&mut deleted, content.bytes()?)?,
            (11, content) => labels.push(entry(content.bytes()?)?),
            (12, content) => annotations.push(entry(content.bytes()?)?),
            (13, content) => controller = controller.or(read_owner(content.bytes()?, texts)?),
            _ => {}
        }
    }

    if name.is_empty() {
        return Err(UnexpectedField);
    }

    annotations.retain(|(key, _)| *key != LAST_APPLIED);
    let kept = ObjectMeta {
        key: NamespacedName::of(Namespace::from(texts.text(namespace)), name.into()),
        labels: texts.map(labels),
        annotations: texts.map(annotations),
        created: created.map(moment).transpose()?.flatten(),
        resource_version: Arc::default(),
        generation,
        uid: Uid::new(uid),
        controller,
        deleting: deleted.map(moment).transpose()?.flatten().is_some(),
    };

    Ok(Meta {
        kept,
        version: version.to_owned(),
        is_generated: !generate_name.is_empty(),
    })
}

/// An entry of a map of texts.
pub(super) fn entry(bytes: &[u8]) -> Result<(&str, &str), UnexpectedField> {
    texts_of(bytes, [1, 2]).map(|[key, value]| (key, value))
}

/// `metav1.Time`.
fn moment(bytes: &[u8]) -> Result<Option<Timestamp>, UnexpectedField> {
    let mut seconds = 0;
    for field in Fields(bytes) {
        if let (1, content) = field? {
            seconds = content.signed()?;
        }
    }
    Ok(Timestamp::from_second(seconds).ok())
}

/// Reads a `metav1.OwnerReference` if it is of a controller.
fn read_owner(
    bytes: &[u8],
    texts: &mut SharedTexts,
) -> Result<Option<Arc<ControllerRef>>, UnexpectedField> {
    let mut kind = "";
    let mut name = "";
    let mut controls = false;
    for field in Fields(bytes) {
        match field? {
            (1, content) => kind = content.text()?,
            (3, content) => name = content.text()?,
            (6, content) => controls = content.to_bool()?,
            _ => {}
        }
    }
    Ok(controls.then(|| texts.controller(kind, name)))
}
