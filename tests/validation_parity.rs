//! Navarch rejects the same objects as istiod, for the same fields, and warns about the same
//! problems.
//!
//! `parity/validation.json` contains objects with istiod's responses. Every line of a response must
//! correspond to a problem found here, and vice versa: the problem names the field that the line is
//! about, and the values that the line quotes. Deliberate differences are in [`DIFFERENCES`].
//!
//! `NAVARCH_VALIDATION_PARITY` names another file to use; `NAVARCH_VALIDATION_PARITY_REPORT` a file
//! for a report by index.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot read its cases must fail"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use navarch::api::validation::{Problem, Verdict};
use navarch::webhook::verdict::{UNKNOWN, validate};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

/// An object and istiod's response.
#[derive(Deserialize)]
struct Case {
    object: Value,
    /// Whether it is admitted.
    allowed: bool,
    /// The errors.
    message: String,
    warnings: Vec<String>,
    /// The field at which a valid object was altered.
    #[serde(default)]
    change: String,
}

/// Deliberate differences by kind, name and change, with the reason. An entry that no longer
/// differs fails the test.
const DIFFERENCES: [(&str, &str, &str, &str); 0] = [];

/// istiod's errors, and the field that Navarch must name for each.
const FAULTS: [(&str, &str); 84] = [
    (r"^EnvoyFilter exposes internal", r"^spec$"),
    (r"^using deprecated filter name", r"filter.name$"),
    (
        r"^Envoy filter: (json|can't unmarshal|Any JSON|bad Duration)",
        r"patch.value$",
    ),
    (
        r"^addresses are required for ports serving TCP",
        r"ports\[\d+\].protocol$",
    ),
    (r"^Envoy filter: missing applyTo", r"applyTo$"),
    (r"^Envoy filter: missing patch value", r"patch.value$"),
    (r"^Envoy filter: missing patch$", r"patch$"),
    (
        r"^Envoy filter: missing patch operation",
        r"patch.operation$",
    ),
    (
        r"^(referenced type unknown|Envoy filter: (bad|invalid|unknown))",
        r"patch.value$",
    ),
    (r"^concurrency must be", r"spec.concurrency$"),
    (
        r"^(domain name .*|empty domain name not allowed)$",
        r"(hosts?|sniHosts|gateways|address)(\[\d+\])?$",
    ),
    (r"^invalid host \*$", r"hosts\[\d+\]$"),
    (r"^hosts must be FQDN ", r"hosts\[\d+\]$"),
    (r"^duplicate hosts in virtual service", r"hosts\[\d+\]$"),
    (
        r"^host must be of form namespace/dnsName$",
        r"hosts\[\d+\]$",
    ),
    (
        r"^(short names|partial wildcard|invalid namespace value) ",
        r"hosts\[\d+\]$",
    ),
    (r"must (have|contain) at least one host$", r"hosts$"),
    (
        r"^delegate virtual service must have no gateways",
        r"spec.gateways$",
    ),
    (r"^delegate virtual service must have no tcp", r"spec.tcp$"),
    (r"^http, tcp or tls must be provided", r"^spec$"),
    (
        r"^HTTP route, redirect or direct_response is required",
        r"http\[\d+\]$",
    ),
    (r"^TCP route is required", r"tcp\[\d+\].route$"),
    (r"^destination is required", r"route\[\d+\].destination$"),
    (
        r"^HTTP status \d+ is not in range",
        r"directResponse.status$",
    ),
    (r#"^"uri": "#, r"match\[\d+\].uri.regex$"),
    (
        r"^subset name ",
        r"(subsets\[\d+\].name|destination.subset)$",
    ),
    (r"^duplicate subset names", r"subsets\[\d+\].name$"),
    (
        r"^only \.,\*, or a valid DNS|^duplicate entries in exportTo",
        r"exportTo\[\d+\]$",
    ),
    (
        r"^port number \d+ must be in the range",
        r"(port.number|ports\[\d+\].number|ports\.[\w-]+)$",
    ),
    (r"^port name must be set", r"port.name$"),
    (r"^port is required", r"servers\[\d+\].port$"),
    (r"^invalid port name", r"(port|ports\[\d+\]).name$"),
    (
        r"^(invalid|unsupported) protocol",
        r"(port|ports\[\d+\]).protocol$",
    ),
    (
        r"^service entry port name .* already defined",
        r"ports\[\d+\].name$",
    ),
    (
        r"^service entry port \d+ already defined",
        r"ports\[\d+\].number$",
    ),
    (
        r"^only HTTP, TLS, GRPC, and HTTP2 protocols",
        r"ports\[\d+\].protocol$",
    ),
    (r"^multiple hosts provided with non-HTTP", r"spec.hosts$"),
    (r"^no endpoints should be provided", r"spec.endpoints$"),
    (r"^endpoint port \d+ is not defined", r"ports\.[\w-]+$"),
    (r"^endpoint address|^address is required", r"address$"),
    (r"^invalid tag value", r"labels\.[\w.-]+$"),
    (
        r"^wildcard is not supported in selector",
        r"workloadSelector.labels\.\w+$",
    ),
    (r"^gateway must have at least one server", r"spec.servers$"),
    (r"^server cannot have TLS settings for non", r"\.tls$"),
    (r"is not a valid IP$", r"bind$"),
    (
        r"^sidecar: the egress listener with empty port",
        r"egress\[\d+\].port$",
    ),
    (r"^sidecar: empty configuration", r"^spec$"),
    (
        r"^sidecar: ports with 0 value",
        r"egress\[\d+\].port.number$",
    ),
    (
        r"^sidecar: workload selector specified without labels",
        r"workloadSelector.labels$",
    ),
    (
        r"peer authentication cannot have port level mTLS",
        r"portLevelMtls$",
    ),
    (r"^port level mTLS, if defined", r"portLevelMtls$"),
    (r"^name required for HttpCookie", r"httpCookie.name$"),
    (
        r"^connection pool must have at least one field",
        r"connectionPool$",
    ),
    (
        r"^traffic policy must have at least one field",
        r"trafficPolicy$",
    ),
    (
        r"^locality lb failover only specify region",
        r"failover\[\d+\].(from|to)$",
    ),
    (
        r"failover settings must specify different regions",
        r"failover\[\d+\].to$",
    ),
    (
        r"^locality weight must be in range",
        r"distribute\[\d+\].to\.",
    ),
    (
        r"^outlier detection policy must be provided",
        r"failover(Priority)?$",
    ),
    (r"mode does not use certificates", r"tls\.\w+$"),
    (
        r"^virtualService rule .* match .* is not used",
        r"match\[\d+\]$",
    ),
    (r"^virtualService rule .* not used ", r"http\[\d+\]$"),
    (r"`from.source` must not be nil", r"from\[\d+\].source$"),
    (r"`from.source` must not be empty", r"from\[\d+\].source$"),
    (r"`to.operation` must not be nil", r"to\[\d+\].operation$"),
    (r"`to.operation` must not be empty", r"to\[\d+\].operation$"),
    (
        r"`provider` must not be with non CUSTOM",
        r"^spec.provider$",
    ),
    (r"action without `rules` is meaningless", r"^spec.rules$"),
    (
        r"at least one of `values` or `notValues`",
        r"when\[\d+\].values$",
    ),
    (r"`key` must not be empty", r"when\[\d+\].key$"),
    (
        r"invalid `(v|notV)alue` for `key` .*unknown attribute",
        r"when\[\d+\].key$",
    ),
    (r"^bad port", r"(values|notValues|ports|notPorts)\[\d+\]$"),
    (
        r"^configured AuthorizationPolicy will deny all traffic",
        r"rules\[\d+\]$",
    ),
    (r"targetRef must be to one of", r"targetRefs?(\[\d+\])?$"),
    (
        r"^targetRef name must be set",
        r"targetRefs?(\[\d+\])?.name$",
    ),
    (
        r"^(workload selector specified without labels|wildcard is not supported)",
        r"selector.matchLabels(\.\w+)?$",
    ),
    (r"^issuer or jwksUri must be", r"jwtRules\[\d+\].issuer$"),
    (r"^jwks parse error", r"jwks$"),
    (r"^location header name must", r"fromHeaders\[\d+\].name$"),
    (
        r"^outputClaimToHeaders header and claim",
        r"outputClaimToHeaders\[\d+\]$",
    ),
    (
        r"^providers.name may not be empty",
        r"providers\[\d+\].name$",
    ),
    (
        r"^multiple (providers|tracing) is not",
        r"(providers|tracing)$",
    ),
    (r"^failed to parse url", r"url$"),
    (r"^spec.vmConfig.env invalid", r"env\[\d+\]$"),
    (r"^pluginName field must", r"pluginName$"),
];

/// The quoted parts of a response: values, and names of fields.
const QUOTED: &str = r#""((?:[^"\\]|\\.)*)"|`([^`]*)`|\b(\d+)\b"#;

/// The compiled expressions.
struct Reader {
    /// [`FAULTS`].
    faults: Vec<(Regex, Regex)>,
    /// [`QUOTED`].
    quoted: Regex,
}

impl Reader {
    /// Compiles the expressions.
    fn new() -> Self {
        let regex = |text: &str| Regex::new(text).unwrap();
        Self {
            faults: FAULTS
                .iter()
                .map(|(message, field)| (regex(message), regex(field)))
                .collect(),
            quoted: regex(QUOTED),
        }
    }

    /// Whether a problem corresponds to a line of istiod's response, for an object that was altered
    /// at `change`.
    fn pairs(&self, line: &str, problem: &Problem, case: &Case) -> bool {
        let change = &case.change;
        let object = squeezed(&case.object.to_string());
        let mut known = self
            .faults
            .iter()
            .filter(|(message, _)| message.is_match(line));
        if known.any(|(_, field)| field.is_match(&problem.field)) {
            return true;
        }

        // A line that [`FAULTS`] does not list: the problem must be about the altered field, and
        // quote the values of the object that the line quotes.
        let ours = squeezed(&problem.to_string());
        let is_named = |found: regex::Captures<'_>| {
            let value = found
                .iter()
                .skip(1)
                .flatten()
                .next()
                .map(|value| squeezed(value.as_str()))
                .unwrap_or_default();
            ours.contains(&value) || !object.contains(&value)
        };

        is_near(&dotted(&problem.field), change) && self.quoted.captures_iter(line).all(is_named)
    }

    /// Pairs istiod's lines with problems; returns the unpaired ones of both sides.
    fn unpaired(&self, lines: &[&str], problems: &[Problem], case: &Case) -> Vec<String> {
        let silent = lines.iter().filter(|line| {
            !problems
                .iter()
                .any(|problem| self.pairs(line, problem, case))
        });
        let excess = problems
            .iter()
            .filter(|problem| !lines.iter().any(|line| self.pairs(line, problem, case)));
        silent
            .map(|line| format!("not found: {line}"))
            .chain(excess.map(|problem| format!("too much: {problem}")))
            .collect()
    }
}

/// A text without differences of notation.
fn squeezed(text: &str) -> String {
    text.chars()
        .filter(|letter| !matches!(letter, '_' | '\\' | '"' | '`'))
        .collect::<String>()
        .to_lowercase()
}

/// A field in the notation of `change`.
fn dotted(field: &str) -> String {
    let field = field.replace('[', ".").replace(']', "");
    field.strip_prefix("spec.").unwrap_or(&field).to_owned()
}

/// Whether one field contains the other, or both are in one message.
fn is_near(a: &str, b: &str) -> bool {
    let within = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            || outer.is_empty()
    };
    let parent = |field: &str| {
        field
            .rsplit_once('.')
            .map(|(parent, _)| parent.to_owned())
            .unwrap_or_default()
    };
    a == "spec" || within(a, b) || within(b, a) || within(a, &parent(b)) || within(b, &parent(a))
}

/// The lines of istiod's response.
fn lines(message: &str) -> Vec<&str> {
    let message = message.trim_start_matches("configuration is invalid: ");
    if !message.contains(" occurred:\n") {
        return vec![message];
    }
    message
        .lines()
        .filter_map(|line| line.strip_prefix("\t* "))
        .collect()
}

/// The differences between istiod's response and Navarch's.
fn differences(case: &Case, verdict: &Verdict, reader: &Reader) -> Vec<String> {
    if case.allowed != verdict.is_valid() {
        let found: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
        return vec![format!(
            "istiod: {} {:?}; here: {found:?}",
            case.allowed, case.message
        )];
    }

    if case.allowed {
        // istiod does not report unknown fields.
        let warned = verdict
            .warnings
            .iter()
            .filter(|problem| problem.message != UNKNOWN)
            .cloned()
            .collect::<Vec<_>>();
        let warnings: Vec<&str> = case.warnings.iter().map(String::as_str).collect();
        return reader.unpaired(&warnings, &warned, case);
    }

    if !case.message.starts_with("error decoding configuration: ") {
        return reader.unpaired(&lines(&case.message), &verdict.errors, case);
    }

    // istiod does not name the field; it must be the altered field, or a part of it.
    match verdict.errors.as_slice() {
        [one]
            if dotted(&one.field) == case.change
                || dotted(&one.field).starts_with(&format!("{}.", case.change)) =>
        {
            Vec::new()
        }
        other => vec![format!("{} at {}: {other:?}", case.message, case.change)],
    }
}

/// The file that an environment variable names.
#[allow(
    clippy::disallowed_methods,
    reason = "the arguments of the test contain what it checks"
)]
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
}

#[test]
fn every_object_gets_istiods_verdict() {
    let own = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/parity/validation.json"
    ));
    let other = named("NAVARCH_VALIDATION_PARITY");
    let path = other.as_ref().unwrap_or(&own);
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let reader = Reader::new();

    let mut report = BTreeMap::new();
    let mut wrong = Vec::new();

    for (index, case) in cases.iter().enumerate() {
        let kind = case.object["kind"].as_str().unwrap();
        let name = case.object["metadata"]["name"].as_str().unwrap();
        let found = differences(case, &validate(&case.object).verdict, &reader);
        report.insert(
            index.to_string(),
            json!({ "equal": found.is_empty(), "differences": found }),
        );
        let meant = DIFFERENCES
            .iter()
            .any(|(k, n, change, _)| (*k, *n, *change) == (kind, name, case.change.as_str()));

        match (meant, found.is_empty()) {
            (true, true) => wrong.push(format!(
                "{kind} {name} ({}): equal now, remove it from the list",
                case.change
            )),
            (false, false) => wrong.push(format!(
                "{index}: {kind} {name} ({}): {found:#?}",
                case.change
            )),
            (true, false) | (false, true) => {}
        }
    }

    println!(
        "{} of {} objects get istiod's verdict",
        cases.len() - wrong.len(),
        cases.len()
    );
    if let Some(path) = named("NAVARCH_VALIDATION_PARITY_REPORT") {
        std::fs::write(path, serde_json::to_string_pretty(&report).unwrap()).unwrap();
    }

    assert!(other.is_some() || cases.len() == 413, "cases are missing");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
