//! `v1/Namespace`.

use k8s_openapi::api::core::v1 as wire;

use crate::field_error::FieldError;
use crate::object::Object;

/// A namespace. Only its labels and annotations are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespace {}

impl TryFrom<wire::Namespace> for Object<Namespace> {
    type Error = FieldError;

    fn try_from(object: wire::Namespace) -> Result<Self, FieldError> {
        Ok(Self {
            meta: object.metadata.try_into()?,
            spec: Namespace {},
        })
    }
}
