//! istiod's flags and variables, read as `navarch discovery` reads them.

use clap::Parser as _;
use navarch_analysis::preflight::{Outcome, Process, Row};

use super::super::control_plane_variables::effect_of;
use super::super::environment::{STRICT, VariableError, Variables};
use super::super::istiod_variables::{ISTIOD, REMOVED_VARIABLES};
use super::super::{Arguments, Command, DISCOVERY, without_unknown};
use crate::admin::LogScopes;

/// Where all variables without effect are listed.
const NOT_READ: &str = "remove it, or leave it: docs/configuration.md#not-read";

/// The rows about the command line and the environment of an istiod, which `object` names.
pub(super) fn rows(object: &str, process: &Process) -> Vec<Row> {
    let words = ["navarch", DISCOVERY].map(str::to_owned).into_iter();
    let words = words.chain(process.flags.iter().cloned()).collect();
    let (arguments, unknown) = without_unknown(words);
    let row = |outcome, reason: String, field: String| Row::new(outcome, object, reason).at(field);

    let mut rows: Vec<_> = unknown
        .into_iter()
        .map(|flag| row(Outcome::NoEffect, "is an unknown flag".to_owned(), flag))
        .collect();

    let parsed = match Arguments::try_parse_from(&arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = error.to_string();
            let reason = error.lines().next().unwrap_or_default().to_owned();
            let row = row(Outcome::DoFirst, reason, "args".to_owned());
            rows.push(row.then("correct the flag, which Navarch does not start with"));
            return rows;
        }
    };
    if let Command::Discovery(discovery) = parsed.command {
        rows.extend(discovery.flags_without_effect().into_iter().map(|flag| {
            let reason = "is a flag of pilot-discovery without effect".to_owned();
            row(Outcome::NoEffect, reason, flag)
        }));
    }

    rows.extend(variable_rows(object, process, &arguments));
    if rows.is_empty() {
        let reason = "all flags and variables have the effect that they have in istiod";
        rows.push(row(Outcome::Same, reason.to_owned(), String::new()));
    }
    rows
}

/// The rows about variables: those that cannot be read, and those that are not read.
fn variable_rows(object: &str, process: &Process, arguments: &[String]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut values = process.variables.clone();
    // Each invalid value is then an error, which names its variable.
    values.insert(STRICT.to_owned(), "true".to_owned());

    loop {
        let variables = Variables::new(values.clone());
        let Err(error) = read(arguments, &variables) else {
            rows.extend(
                variables
                    .ignored()
                    .into_iter()
                    .map(|name| ignored(object, name)),
            );
            return rows;
        };

        match error.downcast_ref::<VariableError>() {
            Some(invalid) if values.remove(&invalid.name).is_some() => {
                let reason = format!("is not a valid {}: its default applies", invalid.expected);
                let row = Row::new(Outcome::NoEffect, object, reason).at(&invalid.name);
                rows.push(row.then("correct or remove it"));
            }
            Some(_) | None => {
                let reason = format!("Navarch does not start with it: {error:#}");
                let row = Row::new(Outcome::DoFirst, object, reason).at("env");
                rows.push(row.then("correct the flag or variable"));
                return rows;
            }
        }
    }
}

/// Reads flags and variables as the control plane does at its start.
fn read(arguments: &[String], variables: &Variables) -> anyhow::Result<()> {
    if let Command::Discovery(discovery) = Arguments::try_parse_from(arguments)?.command {
        let log_scopes = LogScopes::new(&[], String::new(), |_| Ok(()));
        discovery.config(variables, log_scopes)?;
    }
    Ok(())
}

/// A variable of istiod that is not read.
fn ignored(object: &str, name: &str) -> Row {
    let usual = ISTIOD
        .iter()
        .chain(REMOVED_VARIABLES)
        .find(|(known, _)| *known == name)
        .and_then(|(_, usual)| *usual);
    let described = effect_of(name);
    let here = match (usual, described.and_then(|described| described.instead)) {
        (Some(value), _) => format!("Navarch behaves as with {value}"),
        (None, Some(instead)) => format!("in Navarch: {instead}"),
        (None, None) => "Navarch does not read it".to_owned(),
    };

    let effect = described.map(|described| described.effect);
    let reason = format!("{}; {here}", effect.unwrap_or("a variable of istiod"));
    Row::new(Outcome::NoEffect, object, reason)
        .at(name)
        .then(NOT_READ)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The outcomes and fields of the rows about a process.
    fn found(flags: &[&str], variables: &[(&str, &str)]) -> Vec<(Outcome, String, String)> {
        let variables: BTreeMap<_, _> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let flags = flags.iter().map(ToString::to_string).collect();
        let process = Process::new(flags, variables);
        rows("Deployment istio-system/istiod", &process)
            .into_iter()
            .map(|row| (row.outcome, row.field, row.reason))
            .collect()
    }

    #[test]
    fn what_istios_chart_sets_is_the_same() {
        let flags = ["--monitoringAddr=:15014", "--domain", "cluster.local"];
        let rows = found(&flags, &[("PILOT_ENABLE_ANALYSIS", "false")]);
        let [(Outcome::Same, _, reason)] = rows.as_slice() else {
            panic!("{rows:?}")
        };
        assert!(reason.starts_with("all flags and variables"), "{reason}");
    }

    #[test]
    fn flags_and_variables_without_effect_have_their_reason() {
        let rows = found(
            &["--vklog=9", "--colour=red"],
            &[
                ("CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE", "4096"),
                ("PILOT_ENABLE_AGENTGATEWAY", "true"),
                ("PILOT_DEBOUNCE_AFTER", "soon"),
            ],
        );

        let reason = |field: &str| {
            let row = rows.iter().find(|(_, name, _)| name == field);
            let (outcome, _, reason) = row.unwrap_or_else(|| panic!("{field}: {rows:?}"));
            assert_eq!(*outcome, Outcome::NoEffect, "{field}");
            reason.as_str()
        };
        assert!(reason("--colour").contains("unknown"));
        assert!(reason("--vklog").contains("without effect"));
        assert!(reason("CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE").contains("NAVARCH_CA_KEY_TYPE"));
        assert!(reason("PILOT_ENABLE_AGENTGATEWAY").contains("as with false"));

        // Its value may be anything, and is not shown.
        let invalid = reason("PILOT_DEBOUNCE_AFTER");
        assert!(invalid.contains("default applies") && !invalid.contains("soon"));
        assert_eq!(rows.len(), 5, "{rows:?}");
    }

    #[test]
    fn what_navarch_does_not_start_with_must_be_corrected_first() {
        let rows = found(&[], &[("BLOCKED_CIDRS_IN_JWKS_URIS", "everywhere")]);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0].0, Outcome::DoFirst, "{rows:?}");

        let rows = found(&["--tls-max-version=2"], &[]);
        assert_eq!(
            rows[0].0,
            Outcome::NoEffect,
            "an unknown flag is ignored: {rows:?}"
        );
    }
}
