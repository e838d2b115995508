//! The generated parts of `docs/operations.md`: the ports of a proxy, and all metrics.

use std::collections::{BTreeMap, BTreeSet};

use navarch_agent::iptables::Options;
use navarch_api::mesh::ProxyConfig;
use regex::Regex;

use super::table::{Default, table};
use super::{agent, all};

/// Replaces the part of the page between two comments. `None` if the comments are missing.
pub(super) fn with_part(page: &str, name: &str, part: &str) -> Option<String> {
    let begin = format!("<!-- {name}: made from the code, as configuration.md -->\n");
    let end = format!("<!-- {name}: end -->\n");
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{part}{end}{after}"))
}

/// The ports of a proxy, with their settings.
pub(super) fn ports() -> String {
    let config = ProxyConfig::istio_defaults();
    let flag = |name: &str| {
        let flag = Options::FLAGS.iter().find(|flag| flag.name == name);
        (
            flag.map(|flag| flag.default.to_owned()).unwrap_or_default(),
            format!("`istio-iptables --{name}`"),
        )
    };

    let variable = |name: &str| {
        let variable = all(agent::SECTIONS).find(|variable| variable.name == name);
        let Some(Default::Value(value)) = variable.map(|variable| variable.default) else {
            panic!("{name} has no default")
        };
        (
            value.rsplit(':').next().unwrap_or_default().to_owned(),
            format!("`{name}`"),
        )
    };

    let field = |port: i32, name: &str| (port.to_string(), format!("proxy config `{name}`"));
    let rows = [
        (
            field(config.proxy_admin_port, "proxyAdminPort"),
            "Envoy: admin API, for the pod itself",
        ),
        (
            flag("envoy-port"),
            "Envoy: outbound connections that were captured",
        ),
        (
            variable("PROXY_XDS_DEBUG_VIA_AGENT_PORT"),
            "agent: the control plane's debug API, for the pod itself (`PROXY_XDS_DEBUG_VIA_AGENT`)",
        ),
        (
            flag("inbound-capture-port"),
            "Envoy: inbound connections that were captured",
        ),
        (flag("inbound-tunnel-port"), "Envoy: HBONE"),
        (
            field(config.status_port, "statusPort"),
            "agent: merged metrics, probes of the application, `/quitquitquit`",
        ),
        (
            variable("ENVOY_STATUS_PORT"),
            "Envoy: readiness (`/healthz/ready`), answered by the agent",
        ),
        (variable("DNS_PROXY_ADDR"), "agent: DNS, for the pod itself"),
        (variable("ENVOY_PROMETHEUS_PORT"), "Envoy: its own metrics"),
    ];

    let rows: Vec<_> = rows
        .map(|((port, setting), serves)| [port, setting, serves.to_owned()])
        .into();
    table(["port", "set by", "who serves it, and what"], &rows)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Metric {
    /// The name in the exposition.
    name: String,
    /// `counter`, `gauge` or `histogram`.
    kind: String,
    /// The help text.
    help: String,
}

/// The metrics in a text in Prometheus' format.
pub(super) fn parse_exposition(exposition: &str) -> Vec<Metric> {
    let named = |prefix| {
        let lines = exposition
            .lines()
            .filter_map(move |line: &str| line.strip_prefix(prefix)?.split_once(' '));
        lines.collect::<BTreeMap<_, _>>()
    };

    let kinds = named("# TYPE ");
    let helps = named("# HELP ");
    let lines: BTreeSet<_> = exposition
        .lines()
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let metric = |(name, kind): (&&str, &&str)| {
        let total = format!("{name}_total");
        let help = helps
            .get(name)
            .unwrap_or_else(|| panic!("{name} has no help"))
            .trim_end_matches('.')
            .to_owned();

        // A gauge may have the name of a counter without `_total`.
        let is_total = *kind == "counter" && lines.contains(total.as_str());
        let name = if is_total { total } else { (*name).to_owned() };
        Metric {
            name,
            kind: (*kind).to_owned(),
            help,
        }
    };

    kinds.iter().map(metric).collect()
}

/// A family as the debug output of a registry has it.
struct DebuggedFamily<'a> {
    /// With its underscore; empty if there is none.
    prefix: String,
    name: &'a str,
    help: &'a str,
}

/// The families of a registry without values yet, from its debug output, where a prefix precedes
/// all metrics with it. The labels of a family are in `sources`, the files that register them: the
/// field after the name, and its type.
pub(super) fn empty(debugged: &str, exposition: &str, sources: &[String]) -> Vec<Metric> {
    const FOUND: &str = r#"Registry \{ prefix: (None|Some\(Prefix\("(\w+)"\)\))|Descriptor \{ name: "([^"]+)", help: "([^"]+)", unit: "#;
    let has_lines = |name: &str| exposition.contains(&format!("# TYPE {name} "));
    let mut prefix = String::new();
    let mut found = Vec::new();

    for part in Regex::new(FOUND).unwrap().captures_iter(debugged) {
        match (part.get(3), part.get(4)) {
            (Some(name), Some(help)) => found.push(DebuggedFamily {
                prefix: prefix.clone(),
                name: name.as_str(),
                help: help.as_str(),
            }),
            _ => {
                prefix = part
                    .get(2)
                    .map_or(String::new(), |prefix| format!("{}_", prefix.as_str()))
            }
        }
    }

    let metric = |family: DebuggedFamily<'_>| {
        let DebuggedFamily { prefix, name, help } = family;
        let fields = Regex::new(&format!(
            r#""{name}"[\s\S]*?\b(?:m|metrics|handles)\.(\w+)"#
        ))
        .unwrap();
        let of_file = |source: &String| {
            let field = fields.captures(source)?[1].to_owned();
            let types = Regex::new(&format!(r"\b{field}: Family<\w+, (\w+)>")).unwrap();
            Some(types.captures(source)?[1].to_owned())
        };
        let counted = sources
            .iter()
            .find_map(of_file)
            .unwrap_or_else(|| panic!("no source says what {name} is"));
        let (total, kind) = match counted.as_str() {
            "Count" => ("", "counter"),
            "Counter" => ("_total", "counter"),
            "Gauge" => ("", "gauge"),
            "Histogram" => ("", "histogram"),
            other => panic!("{name} is a family of {other}"),
        };

        let help = help.trim_end_matches('.').to_owned();
        Metric {
            name: format!("{prefix}{name}{total}"),
            kind: kind.to_owned(),
            help,
        }
    };

    let is_empty =
        |family: &DebuggedFamily<'_>| !has_lines(&format!("{}{}", family.prefix, family.name));
    found.into_iter().filter(is_empty).map(metric).collect()
}

/// A table of metrics, ordered by name.
pub(super) fn metrics(mut metrics: Vec<Metric>) -> String {
    metrics.sort();
    let rows: Vec<_> = metrics
        .into_iter()
        .map(|Metric { name, kind, help }| [format!("`{name}`"), kind, help])
        .collect();
    table(["metric", "type", "what it tells"], &rows)
}

#[test]
fn a_generated_section_is_replaced_between_its_markers() {
    let page = "a\n<!-- x: made from the code, as configuration.md -->\nold\n<!-- x: end -->\nb\n";
    assert_eq!(
        with_part(page, "x", "new\n").unwrap(),
        page.replace("old", "new")
    );
    assert_eq!(with_part(page, "y", "new\n"), None);
}

#[test]
fn a_counter_has_the_name_of_its_lines() {
    let text = "# HELP a Things.\n# TYPE a counter\na_total{b=\"c\"} 1\n# HELP d More things.\n# TYPE d counter\n\
        # HELP e Now.\n# TYPE e gauge\ne 1\n# HELP e_total So far.\n# TYPE e_total unknown\ne_total 2\n# EOF\n";
    let rows = "| `a_total` | counter | Things |\n| `d` | counter | More things |\n\
        | `e` | gauge | Now |\n| `e_total` | unknown | So far |\n\n";
    assert_eq!(
        metrics(parse_exposition(text)),
        format!("| metric | type | what it tells |\n| --- | --- | --- |\n{rows}")
    );
}

#[test]
fn a_family_without_lines_is_found_by_its_source() {
    let debugged = r#"[(Descriptor { name: "a", help: "Things.", unit: None }, Family), (Descriptor { name: "b", help: "B.", unit: None }, 1)]"#;
    let source = "struct M { things: Family<Label, Counter> }\nregistry.register(\"a\", \"Things\", m.things.clone());";
    let expected = Metric {
        name: "a_total".to_owned(),
        kind: "counter".to_owned(),
        help: "Things".to_owned(),
    };
    let exposition = "# TYPE b gauge\nb 1\n";

    assert_eq!(
        empty(debugged, exposition, &[source.to_owned()]),
        std::slice::from_ref(&expected)
    );
    let debugged = format!(
        "Registry {{ prefix: None, metrics: [], sub_registries: [Registry {{ prefix: Some(Prefix(\"p\")), metrics: {debugged}"
    );
    let exposition = "# TYPE p_b gauge\np_b 1\n";

    let expected = Metric {
        name: "p_a_total".to_owned(),
        ..expected
    };
    assert_eq!(
        empty(&debugged, exposition, &[source.to_owned()]),
        [expected]
    );
}
