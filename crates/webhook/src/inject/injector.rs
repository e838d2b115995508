//! The injector: rules that can be swapped, and the door for requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;

use super::error::{ConfigError, InjectError};
use super::request::{InjectRequest, Injection};
use super::rules::Rules;
use super::settings::InjectorInputs;
use super::workload::Workload;

/// Injects pods by the rules that hold when a request comes.
///
/// Asking it costs no lock; an update replaces the rules whole, and requests under way end with those they began with.
#[derive(Debug)]
pub struct Injector {
    /// The rules in force.
    rules: ArcSwap<Rules>,
}

impl Injector {
    /// An injector with rules read from these inputs.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn new(inputs: &InjectorInputs) -> Result<Self, ConfigError> {
        Ok(Self { rules: ArcSwap::from_pointee(Rules::read(inputs)?) })
    }

    /// Reads the rules anew.
    ///
    /// # Errors
    /// When the inputs cannot be read; the rules in force then stay.
    pub fn update(&self, inputs: &InjectorInputs) -> Result<(), ConfigError> {
        self.rules.store(Arc::new(Rules::read(inputs)?));
        Ok(())
    }

    /// The templates of the configuration in force, by name, as they are written there. Those that are part of Navarch are not
    /// among them.
    #[must_use]
    pub fn raw_templates(&self) -> BTreeMap<String, String> {
        self.rules.load().raw_templates().clone()
    }

    /// The rules in force.
    pub(super) fn rules(&self) -> arc_swap::Guard<Arc<Rules>> {
        self.rules.load()
    }

    /// What becomes of a pod.
    ///
    /// # Errors
    /// When the pod must be refused: it asks for what there is not, or says what makes no sense.
    pub fn inject(&self, request: &InjectRequest<'_>) -> Result<Injection, InjectError> {
        Ok(self.inject_as(request, None)?.0)
    }

    /// What becomes of the pod of a workload that is known, and the pod itself where it is injected.
    ///
    /// # Errors
    /// As [`Injector::inject`].
    pub fn inject_as(
        &self,
        request: &InjectRequest<'_>,
        workload: Option<&Workload>,
    ) -> Result<(Injection, Option<Value>), InjectError> {
        self.rules.load().inject(request, workload)
    }
}
