//! That the page is complete and true.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use navarch_agent::iptables::Options;
use navarch_agent::mesh_metrics::MeshMetrics;
use navarch_agent::own_metrics::OwnMetrics;
use regex::Regex;

use super::super::environment::Variables;
use super::super::istiod_variables::{ISTIOD, OF_KUBERNETES, REMOVED_VARIABLES};
use super::super::{Arguments, Command};
use super::table::{Default as Value, Variable};
use super::{agent, all, control_plane, is_istiods, operations, page, repeated};
use crate::server::Config;
use crate::server::every_metric::{REGISTERING, exposition};

/// How the page is written.
const REWRITE: &str = "REWRITE=1 cargo test -p navarch --lib reference";

/// What the control plane is configured to by these flags and variables, and the names of all
/// variables that it asked for.
fn configured(
    flags: &[&str],
    values: &[(&str, &str)],
) -> anyhow::Result<(Config, BTreeSet<String>)> {
    let variables = Variables::new(
        values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    );
    let arguments = [&["navarch", "discovery"], flags].concat();
    let Command::Discovery(discovery) = Arguments::parse_from(arguments).command else {
        panic!("another command")
    };
    let log_scopes = crate::admin::LogScopes::new(&[], String::new(), |_| Ok(()));
    let mut config = discovery.config(&variables, log_scopes)?;
    // All variables as they are, for templates and headers that name them.
    config.settings.environment = navarch_api::settings::Environment::default();
    config.injection.environment.clear();
    Ok((config, variables.read_names()))
}

/// The variables that the control plane reads: some only in ambient mode, one only with files.
fn read_by_control_plane() -> BTreeSet<String> {
    let (_, with_files) = configured(&["--config-dir", "."], &[]).unwrap();
    let (_, in_ambient) = configured(&[], &[("PILOT_ENABLE_AMBIENT", "true")]).unwrap();
    with_files.into_iter().chain(in_ambient).collect()
}

/// All source files in a folder, without their tests.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut folders = vec![folder.to_owned()];
    let mut found = Vec::new();

    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = std::fs::read_to_string(&path).unwrap();
                found.push((
                    path,
                    source
                        .split("#[cfg(test)]\nmod tests {")
                        .next()
                        .unwrap()
                        .to_owned(),
                ));
            }
        }
    }

    found
}

/// The agent's sources as one text.
fn sources_of_agent() -> String {
    let files = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/agent/src"));
    files.into_iter().map(|(_, source)| source).collect()
}

/// The variables that the agent reads by a name in its sources, each with the default beside it, if
/// there is one.
fn read_by_agent(sources: &str) -> Vec<(String, Option<String>)> {
    let reads = r#"(?:variables\s*\.(?:get|text|text_or|flag|duration|number)|[^.\w](?:text|port))\(\s*"([A-Z][A-Z0-9_]+)"(?:,\s*([^;\n]*?)\))?"#;
    let reads = Regex::new(reads).unwrap();
    let of = |found: regex::Captures<'_>| {
        (
            found[1].to_owned(),
            found.get(2).map(|default| default.as_str().to_owned()),
        )
    };
    reads.captures_iter(sources).map(of).collect()
}

/// Compares a file of `docs` with what it should be; writes it first if whoever runs the test asks
/// for that.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment decides whether the test writes"
)]
fn check(file: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(file);
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = committed
        .lines()
        .zip(expected.lines())
        .find(|(committed, expected)| committed != expected);
    assert!(
        committed == expected,
        "docs/{file} is out of date, first at {differs:#?}\nrun: {REWRITE}"
    );
}

#[test]
fn the_committed_configuration_page_is_up_to_date() {
    let read = read_by_control_plane();
    check("configuration.md", &page(|name| read.contains(name)));
}

// Metrics of the runtime's tasks need a runtime.
#[tokio::test]
async fn the_committed_ports_and_metrics_are_up_to_date() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md"))
        .unwrap();
    let (config, _) = configured(&[], &[]).unwrap();
    let (text, debugged) = exposition(&config).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let registering: Vec<_> = REGISTERING
        .iter()
        .map(|file| std::fs::read_to_string(root.join(file)).unwrap())
        .collect();

    let mut of_control_plane = operations::parse_exposition(&text);
    of_control_plane.extend(operations::empty(&debugged, &text, &registering));
    let of_agent = OwnMetrics::default();
    of_agent
        .rejections()
        .count("status", "too_many_connections", "10.0.0.1");
    let text = of_agent.scrape();
    let debugged = format!("{of_agent:?}");

    let registering = sources(&root.join("crates/agent/src"))
        .into_iter()
        .map(|(_, source)| source);
    let mut of_agent = operations::parse_exposition(&text);
    of_agent.extend(operations::empty(
        &debugged,
        &text,
        &registering.collect::<Vec<_>>(),
    ));

    of_agent.extend(operations::parse_exposition(&MeshMetrics::heads()));
    let parts = [
        ("ports of a proxy", operations::ports()),
        (
            "metrics of the control plane",
            operations::metrics(of_control_plane),
        ),
        ("metrics of the agent", operations::metrics(of_agent)),
    ];

    let made = parts.iter().try_fold(page, |page, (name, part)| {
        operations::with_part(&page, name, part).ok_or(name)
    });
    check(
        "operations.md",
        &made.expect("the part stands between its two comments"),
    );
}

#[test]
fn every_metric_of_the_control_plane_is_listed_in_one_of_these_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let registers =
        Regex::new(r"fn register\(\s*registry: &mut Registry|\.register_collector\(").unwrap();
    let crates = std::fs::read_dir(root.join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("src"));
    let mut found: Vec<_> = crates
        .chain([root.join("src")])
        .flat_map(|folder| sources(&folder))
        .filter(|(_, source)| registers.is_match(source))
        .map(|(path, _)| path.strip_prefix(root).unwrap().display().to_string())
        .collect();
    found.sort();
    assert_eq!(
        found, REGISTERING,
        "src/server/every_metric.rs must call what makes metrics known"
    );
}

#[test]
fn every_variable_of_the_control_plane_has_a_line_and_no_other_has() {
    let lines: BTreeSet<_> = all(control_plane::SECTIONS)
        .map(|variable| variable.name)
        .collect();
    let read = read_by_control_plane();
    let known = read.iter().map(String::as_str).chain(
        ISTIOD
            .iter()
            .chain(REMOVED_VARIABLES)
            .map(|(name, _)| *name),
    );

    let missing: Vec<_> = known.filter(|name| !lines.contains(name)).collect();
    assert_eq!(
        missing,
        Vec::<&str>::new(),
        "src/cli/control_plane_variables.rs has no line for them"
    );
    let is_known =
        |name: &&&str| read.contains(**name) || is_istiods(name) || OF_KUBERNETES.contains(*name);
    let unknown: Vec<_> = lines.iter().filter(|name| !is_known(name)).collect();
    assert_eq!(unknown, Vec::<&&str>::new(), "neither read nor istiod's");

    assert_eq!(repeated(all(control_plane::SECTIONS)), Vec::<&str>::new());

    for section in control_plane::SECTIONS.iter().chain(agent::SECTIONS) {
        assert!(
            section
                .variables()
                .is_sorted_by_key(|variable| variable.name.replace('*', "")),
            "{}",
            section.title
        );
    }
}

#[test]
fn a_default_of_the_control_plane_is_the_value_that_changes_nothing() {
    let ambient = ("PILOT_ENABLE_AMBIENT", "true");
    let read = read_by_control_plane();
    let text =
        |values: &[(&str, &str)]| configured(&[], values).map(|(config, _)| format!("{config:?}"));
    let usual = text(&[]).unwrap();
    let in_ambient = text(&[ambient]).unwrap();
    let mut without_effect = Vec::new();
    for Variable { name, default, .. } in
        all(control_plane::SECTIONS).filter(|variable| read.contains(variable.name))
    {
        let Value::Value(value) = default else {
            continue;
        };
        let actual =
            text(&[(name, value)]).unwrap_or_else(|error| panic!("{name}={value}: {error:#}"));
        assert_eq!(actual, usual, "{name}={value} is no default");
        if name != ambient.0 {
            assert_eq!(
                text(&[ambient, (name, value)]).unwrap(),
                in_ambient,
                "{name}={value} is no default in ambient mode"
            );
        }

        let other = match value {
            "true" => "false",
            "false" => "true",
            _ => continue,
        };

        // It has an effect beside the other two alone.
        let beside = [
            ("ENABLE_MCS_SERVICE_DISCOVERY", "true"),
            ("ENABLE_MCS_HOST", "true"),
        ];
        if name == "ENABLE_MCS_CLUSTER_LOCAL" {
            let with = [&beside[..], &[(name, other)]].concat();
            assert_ne!(text(&with).unwrap(), text(&beside).unwrap());
            continue;
        }

        if text(&[(name, other)]).unwrap() == usual
            && text(&[ambient, (name, other)]).unwrap() == in_ambient
        {
            without_effect.push(name);
        }
    }

    assert_eq!(
        without_effect,
        Vec::<&str>::new(),
        "switches that change nothing"
    );
}

#[test]
fn a_variable_that_cannot_be_read_stops_the_start_only_if_strict() {
    // Any other text is a valid value of these, or has no effect.
    const TEXTS: [&str; 2] = ["PILOT_JWT_ENABLE_REMOTE_JWKS", "PILOT_PUSH_THROTTLE"];
    let ambient = ("PILOT_ENABLE_AMBIENT", "true");
    let read = read_by_control_plane();
    let text =
        |values: &[(&str, &str)]| configured(&[], values).map(|(config, _)| format!("{config:?}"));
    let is_typed = |value: &str| {
        let is_duration = navarch_api::duration::Duration::parse(value).is_ok();
        is_duration || value.parse::<f64>().is_ok() || ["true", "false"].contains(&value)
    };
    let mut tried = 0;

    for Variable { name, default, .. } in
        all(control_plane::SECTIONS).filter(|variable| read.contains(variable.name))
    {
        let is_other = TEXTS.contains(&name) || name.starts_with("OTEL_");
        if is_other || !matches!(default, Value::Value(value) if is_typed(value)) {
            continue;
        }

        // Some are read in ambient mode alone.
        let mut values = Vec::from_iter((name != ambient.0).then_some(ambient));
        let usual = text(&values).unwrap();
        values.push((name, "no such value"));
        let lenient = text(&values).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert_eq!(lenient, usual, "{name} has not its default");

        values.push(("NAVARCH_STRICT_ENVIRONMENT", "true"));
        let error = text(&values).expect_err(name);
        assert!(format!("{error:#}").contains(name), "{name}: {error:#}");
        tried += 1;
    }

    assert!(tried > 60, "{tried}");
}

#[test]
fn paths_set_to_nothing_are_unset() {
    let config = |flags: &[&str]| format!("{:?}", configured(flags, &[]).unwrap().0);
    let usual = config(&[]);
    for flags in [
        &["--kubeconfig="][..],
        &["--kubeconfig", ""],
        &["--configDir="],
        &["--meshConfig="],
        &["--networksConfig="],
        &["--caCertFile="],
        &["--tlsCertFile="],
        &["--tlsKeyFile="],
        &["--tlsCertFile=", "--tlsKeyFile="],
    ] {
        assert_eq!(config(flags), usual, "{flags:?}");
    }

    assert_ne!(config(&["--meshConfig=mesh"]), usual);
    for alone in ["--tlsCertFile=tls.crt", "--tlsKeyFile=tls.key"] {
        assert!(configured(&[alone], &[]).is_err(), "{alone}");
    }
}

#[test]
fn every_variable_of_the_agent_has_a_line_and_no_other_has() {
    let sources = sources_of_agent();
    let lines: BTreeSet<_> = all(agent::SECTIONS).map(|variable| variable.name).collect();
    let read = read_by_agent(&sources);
    assert!(read.len() > 60, "{read:?}");
    let of_flags: BTreeSet<_> = Options::FLAGS
        .iter()
        .flat_map(|flag| Options::variables_of(flag.name))
        .collect();

    let names = read.iter().map(|(name, _)| name.as_str());
    let missing: BTreeSet<_> = names.filter(|name| !lines.contains(name)).collect();
    assert_eq!(
        missing,
        BTreeSet::new(),
        "src/cli/reference/agent.rs has no line for them"
    );

    let is_known = |name: &&&str| {
        let text = format!("\"{}\"", name.trim_end_matches('*'));
        read.iter().any(|(read, _)| read == *name)
            || (name.ends_with('*') && sources.contains(&text))
    };

    let unknown: Vec<_> = lines.iter().filter(|name| !is_known(name)).collect();
    assert_eq!(unknown, Vec::<&&str>::new(), "the agent does not read them");
    assert_eq!(repeated(all(agent::SECTIONS)), Vec::<&str>::new());

    // What sets a flag stands beside the flag; what the agent reads as well stands in its tables,
    // too.
    assert!(of_flags.contains("ISTIO_INBOUND_PORTS") && !lines.contains("ISTIO_INBOUND_PORTS"));
}

#[test]
fn a_default_of_the_agent_is_the_one_in_its_sources() {
    let read = read_by_agent(&sources_of_agent());
    let mut compared = 0;

    for Variable { name, default, .. } in all(agent::SECTIONS) {
        for source in read
            .iter()
            .filter(|(read, _)| read == name)
            .filter_map(|(_, default)| default.as_deref())
        {
            let Some(value) = literal(source) else {
                continue;
            };
            let documented = match default {
                Value::Unset => "",
                Value::Value(value) => value,
                // Prose describes defaults that are no literal.
                Value::Words(_) => continue,
            };

            assert_eq!(
                documented, value,
                "{name}, whose default in the sources is {source}"
            );
            compared += 1;
        }
    }

    assert!(compared > 35, "{compared}");
}

/// The value of a literal as it would be set; `None` for an expression.
fn literal(source: &str) -> Option<String> {
    let seconds = |count: u64, unit: u64| match count * unit {
        span if span % 3600 == 0 => format!("{}h", span / 3600),
        span => format!("{span}s"),
    };
    let source = source.trim();
    if let Some(millis) = source.strip_prefix("Duration::from_millis(") {
        return Some(format!("{}ms", millis.trim_end_matches(')')));
    }

    if let Some(count) = source.strip_prefix("Duration::from_secs(") {
        let (count, unit) = count
            .trim_end_matches(')')
            .split_once(" * ")
            .unwrap_or((count.trim_end_matches(')'), "1"));
        return Some(seconds(count.parse().ok()?, unit.parse().ok()?));
    }

    let is_plain = source == "true" || source == "false" || source.parse::<f64>().is_ok();
    let quoted = source
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    is_plain.then_some(source).or(quoted).map(str::to_owned)
}
