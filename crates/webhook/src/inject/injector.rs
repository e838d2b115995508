//! The injector: handles requests with replaceable rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;

use super::error::{ConfigError, InjectError};
use super::request::{InjectRequest, Injection};
use super::rules::Rules;
use super::settings::InjectorInputs;
use super::workload::Workload;

/// Injects pods by the rules that are active when a request arrives.
///
/// Requests take no lock; an update replaces all rules at once, and running requests keep the old
/// rules.
#[derive(Debug)]
pub struct Injector {
    /// The active rules.
    rules: ArcSwap<Rules>,
}

impl Injector {
    /// Creates an injector with rules from these inputs.
    ///
    /// # Errors
    /// When the inputs are invalid.
    pub fn new(inputs: &InjectorInputs) -> Result<Self, ConfigError> {
        Ok(Self {
            rules: ArcSwap::from_pointee(Rules::read(inputs)?),
        })
    }

    /// Replaces the rules.
    ///
    /// # Errors
    /// When the inputs are invalid; the active rules remain.
    pub fn update(&self, inputs: &InjectorInputs) -> Result<(), ConfigError> {
        self.rules.store(Arc::new(Rules::read(inputs)?));
        Ok(())
    }

    /// The templates of the active configuration by name, unrendered. Navarch's built-in templates
    /// are not included.
    #[must_use]
    pub fn raw_templates(&self) -> BTreeMap<String, String> {
        self.rules.load().raw_templates().clone()
    }

    /// The active rules.
    pub(super) fn rules(&self) -> arc_swap::Guard<Arc<Rules>> {
        self.rules.load()
    }

    /// Injects a pod, unless labels, annotations or selectors exclude the pod.
    ///
    /// # Errors
    /// When the pod must be rejected: it names an unknown template, or an annotation is invalid.
    pub fn inject(&self, request: &InjectRequest<'_>) -> Result<Injection, InjectError> {
        Ok(self.inject_as(request, None)?.0)
    }

    /// Injects a pod of a known workload; the second value is the injected pod.
    ///
    /// # Errors
    /// See [`Injector::inject`].
    pub fn inject_as(
        &self,
        request: &InjectRequest<'_>,
        workload: Option<&Workload>,
    ) -> Result<(Injection, Option<Value>), InjectError> {
        self.rules.load().inject(request, workload)
    }
}
