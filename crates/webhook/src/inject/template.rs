//! Templates by name: from the config, and Navarch's built-in ones.
//!
//! A template from the config is rendered like a Go template, with istiod's data and functions;
//! without one, the built-in template of the same name applies. The operator controls templates and
//! users control data, so parsing rejects templates that may not terminate, and rendering limits
//! the output.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the values and errors of templates are enums of the crate that renders them"
)]

mod data;
mod functions;
mod gateway;
mod output;
mod tree;
mod user;
mod value;

use std::collections::BTreeMap;

use serde_json::Value;

use super::context::Context;
use super::error::{ConfigError, InjectError};
use super::gateway::Proxies;
use super::overlay::Builtin;
use super::settings::InjectorInputs;
use super::values::Values;
use data::Fixed;
use user::UserTemplate;

#[derive(Debug)]
pub(super) struct Templates {
    of_config: BTreeMap<String, UserTemplate>,
    /// The data that is the same for all pods.
    fixed: Fixed,
    /// The data for all Gateways, whose templates may rely on all defaults of the chart.
    for_gateways: Fixed,
}

/// The chart's templates for Gateways.
const FOR_GATEWAYS: [(&str, &str); 2] = [
    (
        "kube-gateway",
        include_str!("../../../../deploy/charts/navarch/files/kube-gateway.yaml"),
    ),
    (
        "waypoint",
        include_str!("../../../../deploy/charts/navarch/files/waypoint.yaml"),
    ),
];

impl Templates {
    /// Parses the templates of the config.
    ///
    /// # Errors
    /// At the first template that is invalid, calls an unknown function or template, or may not
    /// terminate.
    pub(super) fn read(
        texts: &BTreeMap<String, String>,
        values: &Value,
        inputs: &InjectorInputs,
    ) -> Result<Self, ConfigError> {
        let functions = functions::all(&inputs.environment);
        let own = FOR_GATEWAYS
            .into_iter()
            .filter(|(name, _)| !texts.contains_key(*name));
        let texts = texts
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .chain(own);
        let parsed = texts.map(|(name, text)| {
            let parsed = UserTemplate::parse(text, &functions);
            let fault = |reason| ConfigError::Template {
                name: name.to_owned(),
                reason,
            };
            Ok((name.to_owned(), parsed.map_err(fault)?))
        });

        let of_config = parsed.collect::<Result<_, ConfigError>>()?;
        let fixed = Fixed::new(values, &inputs.mesh);
        let for_gateways = Fixed::new(&Values::over_defaults(values), &inputs.mesh);
        Ok(Self {
            of_config,
            fixed,
            for_gateways,
        })
    }

    /// Renders the objects of a Gateway.
    ///
    /// # Errors
    /// When the template is unknown or fails.
    pub(super) fn objects(
        &self,
        name: &str,
        proxies: &Proxies<'_>,
    ) -> Result<Vec<Value>, InjectError> {
        let data = gateway::data(&self.for_gateways, proxies);
        let fault = |reason| InjectError::Template {
            name: name.to_owned(),
            reason,
        };
        self.of_config
            .get(name)
            .ok_or_else(|| fault("there is none".to_owned()))?
            .objects(&data)
            .map_err(fault)
    }

    /// Renders the overlay of a template for a pod.
    ///
    /// # Errors
    /// When the template is unknown or fails.
    pub(super) fn overlay(&self, name: &str, context: &Context<'_>) -> Result<Value, InjectError> {
        if let Some(template) = self.of_config.get(name) {
            let data = data::data(&self.fixed, context);
            let fault = |reason| InjectError::Template {
                name: name.to_owned(),
                reason,
            };
            return template.render(&data).map_err(fault);
        }

        if let Some(builtin) = Builtin::of(name) {
            return builtin.build(context);
        }

        let builtin = Builtin::ALL
            .into_iter()
            .map(|builtin| builtin.name().to_owned());
        let mut known: Vec<_> = builtin.chain(self.of_config.keys().cloned()).collect();
        known.sort();
        known.dedup();

        Err(InjectError::UnknownTemplate {
            name: name.to_owned(),
            known,
        })
    }
}
