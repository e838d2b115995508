//! The rules of injection, read once from their inputs.

use std::collections::BTreeMap;

use serde_json::Value;

use super::config::InjectionConfig;
use super::error::{ConfigError, InjectError};
use super::request::{InjectRequest, Injection, Outcome};
use super::settings::InjectorInputs;
use super::{pod, selection};

/// What decides how pods are injected.
#[derive(Debug)]
pub(super) struct Rules {
    /// Policy, selectors and templates.
    config: InjectionConfig,
}

impl Rules {
    /// Reads the inputs.
    ///
    /// # Errors
    /// When values or config cannot be read.
    pub(super) fn read(inputs: &InjectorInputs) -> Result<Self, ConfigError> {
        let config = InjectionConfig::read(&inputs.config)?;
        Ok(Self { config })
    }

    /// What becomes of a pod.
    ///
    /// # Errors
    /// When the pod must be refused.
    pub(super) fn inject(&self, request: &InjectRequest<'_>) -> Result<Injection, InjectError> {
        pod::check(request.pod)?;
        let namespace = match pod::meta(request.pod, "namespace") {
            "" => request.namespace,
            namespace => namespace,
        };
        let outcome = match selection::skipped(&self.config, request.pod, namespace) {
            Some(reason) => Outcome::Skipped(reason),
            None => Outcome::Injected(Value::Array(Vec::new())),
        };
        Ok(Injection { outcome, warnings: Vec::new(), audit: BTreeMap::new() })
    }
}
