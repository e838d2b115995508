//! `v1/ServiceAccount`.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;

use super::metadata::optional_text;
use crate::field_error::FieldError;
use crate::object::Object;

/// The identity of pods; only the names of its Secrets are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAccount {
    /// The names in `imagePullSecrets`.
    pub image_pull_secrets: Vec<Arc<str>>,
    /// The names in `secrets`.
    pub secrets: Vec<Arc<str>>,
}

impl TryFrom<wire::ServiceAccount> for Object<ServiceAccount> {
    type Error = FieldError;

    fn try_from(object: wire::ServiceAccount) -> Result<Self, FieldError> {
        let pull = object.image_pull_secrets.into_iter().flatten();
        let secrets = object.secrets.into_iter().flatten();
        let spec = ServiceAccount {
            image_pull_secrets: pull
                .filter_map(|secret| optional_text(Some(secret.name)))
                .collect(),
            secrets: secrets
                .filter_map(|secret| optional_text(secret.name))
                .collect(),
        };
        Ok(Self {
            meta: object.metadata.try_into()?,
            spec,
        })
    }
}
