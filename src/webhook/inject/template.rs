//! Templates by name: those of the config, and Navarch's own.

use std::collections::BTreeMap;

use serde_json::Value;

use super::context::Context;
use super::error::{ConfigError, InjectError};
use super::overlay::Builtin;
use super::settings::InjectorInputs;

/// All templates.
#[derive(Debug)]
pub(super) struct Templates {}

impl Templates {
    /// Reads the templates of the config.
    ///
    /// # Errors
    /// At the first that is no template.
    pub(super) fn read(
        texts: &BTreeMap<String, String>,
        values: &Value,
        inputs: &InjectorInputs,
    ) -> Result<Self, ConfigError> {
        let _ = (texts, values, inputs);
        Ok(Self {})
    }

    /// What a template lays over a pod.
    ///
    /// # Errors
    /// When there is no such template, or it fails.
    pub(super) fn overlay(&self, name: &str, context: &Context<'_>) -> Result<Value, InjectError> {
        match Builtin::of(name) {
            Some(builtin) => builtin.build(context),
            None => {
                let known = Builtin::ALL.into_iter().map(|builtin| builtin.name().to_owned()).collect();
                Err(InjectError::UnknownTemplate { name: name.to_owned(), known })
            }
        }
    }
}
