//! Objects whose previous version is served, and the previous versions that could be.

use std::collections::VecDeque;
use std::sync::Arc;

use navarch_api::any_object::AnyObject;
use navarch_api::object::ObjectRef;
use navarch_api::uid::Uid;

/// The previous versions of recently changed objects, the latest last; `None` if the object was
/// new. The list is short enough to be copied on change while another copy exists.
pub type Before = Arc<VecDeque<(ObjectRef, Option<AnyObject>)>>;

/// A quarantined object.
#[derive(Clone, Debug, PartialEq)]
pub struct Quarantined {
    /// As it was written, and as no proxy sees it.
    pub rejected: AnyObject,
    /// `metadata.generation` of the rejected version.
    pub generation: i64,
    /// The generation that is served instead; `None` if there is none.
    pub served: Option<i64>,
    /// Who rejected it, with an excerpt of a proxy's error message.
    pub message: Arc<str>,
}

/// A quarantine that another replica, or this one before it started again, has decided.
#[derive(Clone, Debug)]
pub struct RestoredQuarantine {
    /// `metadata.generation` of the rejected version.
    pub generation: i64,
    /// `metadata.uid` of the object.
    pub uid: Uid,
    /// The version that is served instead; `None` if there is none.
    pub before: Option<AnyObject>,
    /// Who rejected it, with an excerpt of a proxy's error message.
    pub message: Arc<str>,
}

impl RestoredQuarantine {
    /// Whether an object is the rejected version.
    #[must_use]
    pub fn is_of(&self, object: &AnyObject) -> bool {
        let meta = object.meta();
        meta.generation == self.generation && meta.uid == self.uid
    }
}
