//! Templates by name: those of the config, and Navarch's own.
//!
//! A template of the config is rendered as Go's templates are, on the data and with the functions that istiod offers; where
//! the config has none of a name, Navarch's own of that name is built. Templates are the installation's, the data is
//! the users': so a template that could run for ever is refused when it is read, and what it makes of hostile data is bounded.

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
    /// Those of the config.
    of_config: BTreeMap<String, UserTemplate>,
    /// The part of their data that is the same for all pods.
    fixed: Fixed,
    /// The same for the objects of Gateways, whose templates may rely on every default of the chart.
    for_gateways: Fixed,
}

/// Navarch's own templates of the objects of Gateways, those of the chart.
const FOR_GATEWAYS: [(&str, &str); 2] = [
    ("kube-gateway", include_str!("../../../../deploy/charts/navarch/files/kube-gateway.yaml")),
    ("waypoint", include_str!("../../../../deploy/charts/navarch/files/waypoint.yaml")),
];

impl Templates {
    /// Reads the templates of the config.
    ///
    /// # Errors
    /// At the first that is no template, calls what there is not, or could run for ever.
    pub(super) fn read(
        texts: &BTreeMap<String, String>,
        values: &Value,
        inputs: &InjectorInputs,
    ) -> Result<Self, ConfigError> {
        let functions = functions::all(&inputs.environment);
        let own = FOR_GATEWAYS.into_iter().filter(|(name, _)| !texts.contains_key(*name));
        let texts = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).chain(own);
        let parsed = texts.map(|(name, text)| {
            let parsed = UserTemplate::parse(text, &functions);
            let fault = |reason| ConfigError::Template { name: name.to_owned(), reason };
            Ok((name.to_owned(), parsed.map_err(fault)?))
        });
        let of_config = parsed.collect::<Result<_, ConfigError>>()?;
        let fixed = Fixed::new(values, &inputs.mesh);
        let for_gateways = Fixed::new(&Values::over_defaults(values), &inputs.mesh);
        Ok(Self { of_config, fixed, for_gateways })
    }

    /// The objects of a Gateway by a template.
    ///
    /// # Errors
    /// When there is no such template, or it fails.
    pub(super) fn objects(&self, name: &str, proxies: &Proxies<'_>) -> Result<Vec<Value>, InjectError> {
        let data = gateway::data(&self.for_gateways, proxies);
        let fault = |reason| InjectError::Template { name: name.to_owned(), reason };
        self.of_config.get(name).ok_or_else(|| fault("there is none".to_owned()))?.objects(&data).map_err(fault)
    }

    /// What a template lays over a pod.
    ///
    /// # Errors
    /// When there is no such template, or it fails.
    pub(super) fn overlay(&self, name: &str, context: &Context<'_>) -> Result<Value, InjectError> {
        if let Some(template) = self.of_config.get(name) {
            let data = data::data(&self.fixed, context);
            let fault = |reason| InjectError::Template { name: name.to_owned(), reason };
            return template.render(&data).map_err(fault);
        }
        if let Some(builtin) = Builtin::of(name) {
            return builtin.build(context);
        }
        let builtin = Builtin::ALL.into_iter().map(|builtin| builtin.name().to_owned());
        let mut known: Vec<_> = builtin.chain(self.of_config.keys().cloned()).collect();
        known.sort();
        known.dedup();
        Err(InjectError::UnknownTemplate { name: name.to_owned(), known })
    }
}
