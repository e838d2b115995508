//! Navarch refuses what istiod refuses, for the same fields, and warns of what it warns of.
//!
//! `parity/validation.json` holds objects with istiod's answers. Every line of an answer must have its counterpart among
//! the problems found here, and every problem found here its line there. What differs on purpose is in [`DIFFERENCES`].

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot read its cases has failed")]

use std::sync::Arc;

use navarch::api::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig, RequestAuthentication,
    ServiceEntry, Sidecar, Telemetry, TrafficExtension, VirtualService, WasmPlugin, WorkloadEntry,
};
use navarch::api::names::Namespace;
use navarch::api::object::{Object, ObjectMeta};
use navarch::api::typed::Typed;
use navarch::api::validation::{Problem, Validate, Verdict, validate};
use regex::Regex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An object and what istiod says of it.
#[derive(Deserialize)]
struct Case {
    /// The object.
    object: Value,
    /// Whether it is let in.
    allowed: bool,
    /// Why not.
    message: String,
    /// What is doubtful.
    warnings: Vec<String>,
    /// Where a valid object was altered to make this one.
    #[serde(default)]
    change: String,
}

/// Cases by kind, name and change in which Navarch differs on purpose, with the reason. One that no longer differs fails the
/// test.
const DIFFERENCES: [(&str, &str, &str, &str); 0] = [];

/// What istiod says, and the field that Navarch must name for it.
const FAULTS: [(&str, &str); 81] = [
    (r"^EnvoyFilter exposes internal", r"^spec$"),
    (r"^Envoy filter: missing applyTo", r"applyTo$"),
    (r"^Envoy filter: missing patch value", r"patch.value$"),
    (r"^Envoy filter: missing patch$", r"patch$"),
    (r"^Envoy filter: missing patch operation", r"patch.operation$"),
    (r"^(referenced type unknown|Envoy filter: (bad|invalid|unknown))", r"patch.value$"),
    (r"^concurrency must be", r"spec.concurrency$"),
    (r"^(domain name .*|empty domain name not allowed)$", r"(hosts?|sniHosts|gateways|address)(\[\d+\])?$"),
    (r"^invalid host \*$", r"hosts\[\d+\]$"),
    (r"^hosts must be FQDN ", r"hosts\[\d+\]$"),
    (r"^duplicate hosts in virtual service", r"hosts\[\d+\]$"),
    (r"^host must be of form namespace/dnsName$", r"hosts\[\d+\]$"),
    (r"^(short names|partial wildcard|invalid namespace value) ", r"hosts\[\d+\]$"),
    (r"must (have|contain) at least one host$", r"hosts$"),
    (r"^delegate virtual service must have no gateways", r"spec.gateways$"),
    (r"^delegate virtual service must have no tcp", r"spec.tcp$"),
    (r"^http, tcp or tls must be provided", r"^spec$"),
    (r"^HTTP route, redirect or direct_response is required", r"http\[\d+\]$"),
    (r"^TCP route is required", r"tcp\[\d+\].route$"),
    (r"^destination is required", r"route\[\d+\].destination$"),
    (r"^HTTP status \d+ is not in range", r"directResponse.status$"),
    (r#"^"uri": "#, r"match\[\d+\].uri.regex$"),
    (r"^subset name ", r"(subsets\[\d+\].name|destination.subset)$"),
    (r"^duplicate subset names", r"subsets\[\d+\].name$"),
    (r"^only \.,\*, or a valid DNS|^duplicate entries in exportTo", r"exportTo\[\d+\]$"),
    (r"^port number \d+ must be in the range", r"(port.number|ports\[\d+\].number|ports\.[\w-]+)$"),
    (r"^port name must be set", r"port.name$"),
    (r"^port is required", r"servers\[\d+\].port$"),
    (r"^invalid port name", r"(port|ports\[\d+\]).name$"),
    (r"^(invalid|unsupported) protocol", r"(port|ports\[\d+\]).protocol$"),
    (r"^service entry port name .* already defined", r"ports\[\d+\].name$"),
    (r"^service entry port \d+ already defined", r"ports\[\d+\].number$"),
    (r"^only HTTP, TLS, GRPC, and HTTP2 protocols", r"ports\[\d+\].protocol$"),
    (r"^multiple hosts provided with non-HTTP", r"spec.hosts$"),
    (r"^no endpoints should be provided", r"spec.endpoints$"),
    (r"^endpoint port \d+ is not defined", r"ports\.[\w-]+$"),
    (r"^endpoint address|^address is required", r"address$"),
    (r"^invalid tag value", r"labels\.[\w.-]+$"),
    (r"^wildcard is not supported in selector", r"workloadSelector.labels\.\w+$"),
    (r"^gateway must have at least one server", r"spec.servers$"),
    (r"^server cannot have TLS settings for non", r"\.tls$"),
    (r"is not a valid IP$", r"bind$"),
    (r"^sidecar: the egress listener with empty port", r"egress\[\d+\].port$"),
    (r"^sidecar: empty configuration", r"^spec$"),
    (r"^sidecar: ports with 0 value", r"egress\[\d+\].port.number$"),
    (r"^sidecar: workload selector specified without labels", r"workloadSelector.labels$"),
    (r"peer authentication cannot have port level mTLS", r"portLevelMtls$"),
    (r"^port level mTLS, if defined", r"portLevelMtls$"),
    (r"^name required for HttpCookie", r"httpCookie.name$"),
    (r"^connection pool must have at least one field", r"connectionPool$"),
    (r"^traffic policy must have at least one field", r"trafficPolicy$"),
    (r"^locality lb failover only specify region", r"failover\[\d+\].(from|to)$"),
    (r"failover settings must specify different regions", r"failover\[\d+\].to$"),
    (r"^locality weight must be in range", r"distribute\[\d+\].to\."),
    (r"^outlier detection policy must be provided", r"failover(Priority)?$"),
    (r"mode does not use certificates", r"tls\.\w+$"),
    (r"^virtualService rule .* match .* is not used", r"match\[\d+\]$"),
    (r"^virtualService rule .* not used ", r"http\[\d+\]$"),
    (r"`from.source` must not be nil", r"from\[\d+\].source$"),
    (r"`from.source` must not be empty", r"from\[\d+\].source$"),
    (r"`to.operation` must not be nil", r"to\[\d+\].operation$"),
    (r"`to.operation` must not be empty", r"to\[\d+\].operation$"),
    (r"`provider` must not be with non CUSTOM", r"^spec.provider$"),
    (r"action without `rules` is meaningless", r"^spec.rules$"),
    (r"at least one of `values` or `notValues`", r"when\[\d+\].values$"),
    (r"`key` must not be empty", r"when\[\d+\].key$"),
    (r"invalid `(v|notV)alue` for `key` .*unknown attribute", r"when\[\d+\].key$"),
    (r"^bad port", r"(values|notValues|ports|notPorts)\[\d+\]$"),
    (r"^configured AuthorizationPolicy will deny all traffic", r"rules\[\d+\]$"),
    (r"targetRef must be to one of", r"targetRefs?(\[\d+\])?$"),
    (r"^targetRef name must be set", r"targetRefs?(\[\d+\])?.name$"),
    (r"^(workload selector specified without labels|wildcard is not supported)", r"selector.matchLabels(\.\w+)?$"),
    (r"^issuer or jwksUri must be", r"jwtRules\[\d+\].issuer$"),
    (r"^jwks parse error", r"jwks$"),
    (r"^location header name must", r"fromHeaders\[\d+\].name$"),
    (r"^outputClaimToHeaders header and claim", r"outputClaimToHeaders\[\d+\]$"),
    (r"^providers.name may not be empty", r"providers\[\d+\].name$"),
    (r"^multiple (providers|tracing) is not", r"(providers|tracing)$"),
    (r"^failed to parse url", r"url$"),
    (r"^spec.vmConfig.env invalid", r"env\[\d+\]$"),
    (r"^pluginName field must", r"pluginName$"),
];

/// The lines of istiod's answer.
fn lines(message: &str) -> Vec<&str> {
    let message = message.trim_start_matches("configuration is invalid: ");
    if !message.contains(" occurred:\n") {
        return vec![message];
    }
    message.lines().filter_map(|line| line.strip_prefix("\t* ")).collect()
}

/// The metadata of an object.
fn meta(object: &Value) -> ObjectMeta {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let map = |field: &str| {
        let entries = object["metadata"][field].as_object().into_iter().flatten();
        entries.map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str().unwrap()))).collect()
    };
    ObjectMeta {
        name: Arc::from(text("name")),
        namespace: Namespace::new(text("namespace")),
        labels: map("labels"),
        annotations: map("annotations"),
        ..ObjectMeta::default()
    }
}

/// Reads and judges an object; one that cannot be read is refused for the field that does not fit.
fn judge<T: DeserializeOwned + Validate>(object: &Value) -> Verdict {
    match Typed::<T>::from_proto_json(&object["spec"]) {
        Ok(typed) => validate(&Object { meta: meta(object), spec: typed.value }),
        Err(error) => Verdict {
            errors: vec![Problem { field: format!("spec.{}", error.path), message: error.reason }],
            warnings: Vec::new(),
        },
    }
}

/// Judges an object of any of the kinds; `None` for other kinds.
fn judge_any(object: &Value) -> Option<Verdict> {
    Some(match object["kind"].as_str().unwrap() {
        "VirtualService" => judge::<VirtualService>(object),
        "DestinationRule" => judge::<DestinationRule>(object),
        "Gateway" => judge::<Gateway>(object),
        "ServiceEntry" => judge::<ServiceEntry>(object),
        "WorkloadEntry" => judge::<WorkloadEntry>(object),
        "Sidecar" => judge::<Sidecar>(object),
        "PeerAuthentication" => judge::<PeerAuthentication>(object),
        "EnvoyFilter" => judge::<EnvoyFilter>(object),
        "ProxyConfig" => judge::<ProxyConfig>(object),
        "AuthorizationPolicy" => judge::<AuthorizationPolicy>(object),
        "RequestAuthentication" => judge::<RequestAuthentication>(object),
        "Telemetry" => judge::<Telemetry>(object),
        "WasmPlugin" => judge::<WasmPlugin>(object),
        "TrafficExtension" => judge::<TrafficExtension>(object),
        _ => return None,
    })
}

/// Pairs istiod's lines with problems by [`FAULTS`]; returns what is left over on both sides.
fn unpaired(lines: &[&str], problems: &[Problem], faults: &[(Regex, Regex)]) -> Vec<String> {
    let pairs = |line: &str, problem: &Problem| {
        faults.iter().any(|(said, field)| said.is_match(line) && field.is_match(&problem.field))
    };
    let silent = lines.iter().filter(|line| !problems.iter().any(|problem| pairs(line, problem)));
    let excess = problems.iter().filter(|problem| !lines.iter().any(|line| pairs(line, problem)));
    silent
        .map(|line| format!("not found: {line}"))
        .chain(excess.map(|problem| format!("too much: {problem}")))
        .collect()
}

/// What differs between istiod's answer and ours.
fn differences(case: &Case, verdict: &Verdict, faults: &[(Regex, Regex)]) -> Vec<String> {
    if case.allowed != verdict.is_valid() {
        let found: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
        return vec![format!("istiod: {} {:?}; here: {found:?}", case.allowed, case.message)];
    }
    if case.allowed {
        let warnings: Vec<&str> = case.warnings.iter().map(String::as_str).collect();
        return unpaired(&warnings, &verdict.warnings, faults);
    }
    if !case.message.starts_with("error decoding configuration: ") {
        return unpaired(&lines(&case.message), &verdict.errors, faults);
    }
    let dotted = |field: &str| field.replace('[', ".").replace(']', "");
    match verdict.errors.as_slice() {
        [one] if dotted(&one.field) == format!("spec.{}", case.change) => Vec::new(),
        other => vec![format!("{} at {}: {other:?}", case.message, case.change)],
    }
}

#[test]
fn every_object_is_judged_as_istiod_judges_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity/validation.json");
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let faults: Vec<(Regex, Regex)> =
        FAULTS.iter().map(|(said, field)| (Regex::new(said).unwrap(), Regex::new(field).unwrap())).collect();
    let mut judged = 0;
    let mut wrong = Vec::new();
    for case in &cases {
        let Some(verdict) = judge_any(&case.object) else { continue };
        judged += 1;
        let (kind, name) = (case.object["kind"].as_str().unwrap(), case.object["metadata"]["name"].as_str().unwrap());
        let found = differences(case, &verdict, &faults);
        let meant = DIFFERENCES.iter().any(|(k, n, change, _)| (*k, *n, *change) == (kind, name, case.change.as_str()));
        match (meant, found.is_empty()) {
            (true, true) => wrong.push(format!("{kind} {name} ({}): equal now, strike it off the list", case.change)),
            (false, false) => wrong.push(format!("{kind} {name} ({}): {found:#?}", case.change)),
            (true, false) | (false, true) => {}
        }
    }
    assert_eq!(judged, 413, "cases of the kinds judged here");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
