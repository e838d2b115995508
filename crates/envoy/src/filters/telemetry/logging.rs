//! Access log providers.

use std::collections::{BTreeMap, BTreeSet};

use super::{TelemetriesOf, is_for, names, side};
use crate::filters::class::ListenerClass;
use crate::policy::PolicyService;
use navarch_api::istio::{AccessLogging, TelemetryMode};
use navarch_push::query::Query;
use navarch_push::view::View;

/// The access log providers of the listeners of a class; `None` means mesh config decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::filters) struct LoggingOf {
    pub(in crate::filters) class: ListenerClass,
    /// The service of the listeners, at its waypoint.
    pub(in crate::filters) service: Option<PolicyService>,
}

/// One access log provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::filters) struct LoggingProvider {
    pub(in crate::filters) name: String,
    /// Whether it is listed, but disabled here.
    pub(in crate::filters) disabled: bool,
    /// The CEL expression that entries must match.
    pub(in crate::filters) expression: Option<String>,
}

impl Query for LoggingOf {
    type Value = Option<Vec<LoggingProvider>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let telemetries = view.get(&TelemetriesOf {
            service: self.service.clone(),
        });
        let levels: Vec<&[AccessLogging]> = telemetries
            .iter()
            .map(|object| object.spec.access_logging.as_slice())
            .filter(|level| !level.is_empty())
            .collect();

        let defaults: Vec<&str> = view
            .mesh()
            .config
            .default_providers
            .access_logging
            .iter()
            .map(String::as_str)
            .collect();

        (!levels.is_empty() || !defaults.is_empty())
            .then(|| merge(&levels, &defaults, side(self.class)))
    }
}

/// Merges the levels over the defaults. The last level with providers determines the list; settings
/// of wider levels for these still apply.
fn merge(
    levels: &[&[AccessLogging]],
    defaults: &[&str],
    side: TelemetryMode,
) -> Vec<LoggingProvider> {
    let mut in_force: BTreeSet<&str> = defaults.iter().copied().collect();

    if levels.is_empty() {
        return in_force
            .into_iter()
            .map(|name| provider(name, None))
            .collect();
    }

    let mut expressions: BTreeMap<&str, Option<&str>> = BTreeMap::new();

    for level in levels {
        let mut named: BTreeSet<&str> = BTreeSet::new();
        for entry in level
            .iter()
            .filter(|entry| is_for(entry.matches.as_ref(), side))
        {
            let expression = entry
                .filter
                .as_ref()
                .map(|filter| filter.expression.as_str());
            for name in names(&entry.providers) {
                named.insert(name);
                expressions.insert(name, expression);
            }
        }

        if !named.is_empty() {
            in_force = named;
        }
    }

    let mut found: BTreeMap<&str, LoggingProvider> = BTreeMap::new();
    let mut inherited: Vec<&str> = defaults.to_vec();

    for entry in levels.iter().copied().flatten() {
        let named = names(&entry.providers);
        if !named.is_empty() {
            inherited = named;
        }

        if !is_for(entry.matches.as_ref(), side) {
            continue;
        }

        for name in inherited
            .iter()
            .copied()
            .filter(|name| in_force.contains(name))
        {
            let merged = if entry.disabled == Some(true) {
                LoggingProvider {
                    disabled: true,
                    ..provider(name, None)
                }
            } else {
                provider(name, expressions.get(name).copied().flatten())
            };
            found.insert(name, merged);
        }
    }

    found.into_values().collect()
}

/// An enabled provider.
fn provider(name: &str, expression: Option<&str>) -> LoggingProvider {
    LoggingProvider {
        name: name.to_owned(),
        disabled: false,
        expression: expression.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::istio::{AccessLogFilter, ProviderRef, TelemetrySelector};

    fn entry(providers: &[&str], disabled: bool, mode: Option<TelemetryMode>) -> AccessLogging {
        AccessLogging {
            matches: mode.map(|mode| TelemetrySelector { mode }),
            providers: providers
                .iter()
                .map(|&name| ProviderRef {
                    name: name.to_owned(),
                })
                .collect(),
            disabled: disabled.then_some(true),
            filter: None,
        }
    }

    /// Names with whether they log.
    fn shown(merged: &[LoggingProvider]) -> Vec<(&str, bool)> {
        merged
            .iter()
            .map(|provider| (provider.name.as_str(), !provider.disabled))
            .collect()
    }

    #[test]
    fn the_narrowest_level_names_the_providers() {
        let mesh = [entry(&["a", "b"], false, None)];
        let namespace = [entry(&["b"], true, None)];
        assert_eq!(
            shown(&merge(&[&mesh], &["c"], TelemetryMode::Server)),
            [("a", true), ("b", true)]
        );
        assert_eq!(
            shown(&merge(&[&mesh, &namespace], &["c"], TelemetryMode::Server)),
            [("b", false)]
        );
        assert_eq!(
            shown(&merge(&[], &["c"], TelemetryMode::Server)),
            [("c", true)]
        );
    }

    #[test]
    fn an_entry_of_the_other_side_changes_nothing() {
        let level = [
            entry(&[], true, Some(TelemetryMode::Client)),
            entry(&[], false, Some(TelemetryMode::Server)),
        ];
        assert_eq!(
            shown(&merge(&[&level], &["c"], TelemetryMode::Server)),
            [("c", true)]
        );
        assert_eq!(
            shown(&merge(&[&level], &["c"], TelemetryMode::Client)),
            [("c", false)]
        );
    }

    #[test]
    fn the_last_filter_of_a_provider_counts() {
        let filtered = |expression: &str| AccessLogging {
            filter: Some(AccessLogFilter {
                expression: expression.to_owned(),
            }),
            ..entry(&["a"], false, None)
        };
        let level = [filtered("x"), filtered("y")];
        let merged = merge(&[&level], &[], TelemetryMode::Server);
        assert_eq!(
            merged
                .first()
                .and_then(|provider| provider.expression.as_deref()),
            Some("y")
        );
    }
}
