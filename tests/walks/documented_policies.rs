//! What AuthorizationPolicies mean: an evaluator that was written from Istio's documentation alone.

use std::net::IpAddr;

use serde_json::Value;

use crate::rbac::{Request, TestRequest};

/// The trust domains of the mesh, which are equivalent.
const OWN_DOMAINS: [&str; 2] = ["cluster.local", "old.local"];

/// An AuthorizationPolicy.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) namespace: &'static str,
    /// The label `app` of the selected workloads; empty selects all.
    pub(crate) app: &'static str,
    /// Whether it is a dry run.
    pub(crate) is_dry_run: bool,
    pub(crate) action: &'static str,
    pub(crate) rules: Vec<Value>,
}

/// Exact, `prefix*`, `*suffix`, and `*` for anything but the empty text.
fn fits(pattern: &str, text: &str) -> bool {
    if pattern == "*" {
        return !text.is_empty();
    }
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => text.ends_with(end),
        (_, Some(start)) => text.starts_with(start),
        _ => pattern == text,
    }
}

/// Whether a path matches a string or a template.
fn path_fits(pattern: &str, path: &str) -> bool {
    if !pattern.contains("{*") {
        return fits(pattern, path);
    }
    let mut segments = path.split('/');
    let mut wanted = pattern.split('/');
    loop {
        match (wanted.next(), segments.next()) {
            (None, None) => return true,
            (Some("{**}"), Some(_)) => return true,
            (Some("{*}"), Some(segment)) if !segment.is_empty() => {}
            (Some(wanted), Some(segment)) if wanted == segment => {}
            _ => return false,
        }
    }
}

fn ip_fits(block: &str, address: IpAddr) -> bool {
    let Some((base, length)) = block.split_once('/') else {
        return block.parse::<IpAddr>().unwrap() == address;
    };
    let length: usize = length.parse().unwrap();
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => format!("{:032b}", address.to_bits()),
        IpAddr::V6(address) => format!("{:0128b}", address.to_bits()),
    };
    let base = bits(base.parse().unwrap());
    let address = bits(address);
    base.len() == address.len() && base[..length] == address[..length]
}

/// The trust domain, namespace and service account of an identity.
fn parts(identity: &str) -> [&str; 3] {
    let mut parts = identity.strip_prefix("spiffe://").unwrap().split('/');
    let (domain, _, namespace, _) = (
        parts.next().unwrap(),
        parts.next(),
        parts.next().unwrap(),
        parts.next(),
    );
    [domain, namespace, parts.next().unwrap()]
}

/// Whether a principal matches; the mesh's trust domains are equivalent in complete principals.
fn principal_fits(pattern: &str, identity: &str) -> bool {
    let [domain, namespace, account] = parts(identity);
    let mut names = vec![format!("{domain}/ns/{namespace}/sa/{account}")];
    let is_whole = pattern.split('/').count() == 5;
    if is_whole && OWN_DOMAINS.contains(&domain) {
        names = OWN_DOMAINS
            .map(|domain| format!("{domain}/ns/{namespace}/sa/{account}"))
            .to_vec();
    }
    names.iter().any(|name| fits(pattern, name))
}

/// A request or connection to evaluate.
struct Matter<'a> {
    policy: &'a Policy,
    test_request: &'a TestRequest,
}

impl Matter<'_> {
    /// Whether a value of an attribute matches; `None` if a connection has no such attribute.
    fn one(&self, attribute: &str, value: &str) -> Option<bool> {
        let test_request = self.test_request;
        let peer = |fits: &dyn Fn([&str; 3]) -> bool| {
            test_request
                .identity
                .as_deref()
                .is_some_and(|peer| fits(parts(peer)))
        };

        let http = || test_request.http.as_ref();
        let claim = |request: &Request, name: &str| {
            let claim = request
                .claims
                .as_ref()
                .and_then(|claims| claims.get(name))
                .cloned()
                .unwrap_or_default();
            let list = claim.as_array().cloned().unwrap_or_else(|| vec![claim]);
            list.iter()
                .any(|text| text.as_str().is_some_and(|text| fits(value, text)))
        };

        Some(match attribute {
            "principals" | "source.principal" => test_request
                .identity
                .as_deref()
                .is_some_and(|peer| principal_fits(value, peer)),
            "namespaces" | "source.namespace" => peer(&|[_, namespace, _]| fits(value, namespace)),
            "serviceAccounts" | "source.serviceAccount" => peer(&|[_, namespace, account]| {
                let (wanted, name) = value
                    .split_once('/')
                    .unwrap_or((self.policy.namespace, value));
                (wanted, name) == (namespace, account)
            }),
            "trustDomains" | "source.trustDomain" => peer(&|[domain, ..]| {
                fits(value, domain) || OWN_DOMAINS.contains(&value) && OWN_DOMAINS.contains(&domain)
            }),
            "ipBlocks" | "source.ip" => ip_fits(value, test_request.source),
            "remoteIpBlocks" | "remote.ip" => ip_fits(value, test_request.remote),
            "ports" | "destination.port" => test_request.port.to_string() == value,
            "destination.ip" => ip_fits(value, test_request.destination),
            "connection.sni" => fits(value, &test_request.sni),
            "requestPrincipals" | "request.auth.principal" => {
                let claims = http()?.claims.clone().unwrap_or_default();
                let issuer = claims["iss"].as_str();
                let subject = claims["sub"].as_str();
                let whole = issuer
                    .zip(subject)
                    .map(|(issuer, subject)| format!("{issuer}/{subject}"));
                whole.is_some_and(|whole| fits(value, &whole))
            }
            "hosts" => fits(&value.to_lowercase(), &http()?.host.to_lowercase()),
            "methods" => fits(value, &http()?.method),
            "paths" => path_fits(value, &http()?.path),
            // For headers `*` means that the header exists: istiod's filters also accept an empty
            // one.
            "request.headers[x-tier]" => http()?
                .headers
                .get("x-tier")
                .is_some_and(|header| value == "*" || fits(value, header)),
            "request.auth.claims[group]" => claim(http()?, "group"),
            "request.auth.audiences" => claim(http()?, "aud"),
            "request.auth.presenter" => claim(http()?, "azp"),
            other => panic!("{other} is not supported"),
        })
    }

    /// Whether one of the values matches, or none of the forbidden ones. On a connection,
    /// conditions on requests never match in ALLOW policies, and always match in DENY policies.
    fn clause(
        &self,
        attribute: &str,
        values: &Value,
        wanted: bool,
    ) -> Result<bool, NotOfConnections> {
        let mut found = false;
        for value in values.as_array().into_iter().flatten() {
            match self.one(attribute, value.as_str().unwrap()) {
                Some(fits) => found |= fits,
                None if self.policy.action == "ALLOW" => return Err(NotOfConnections),
                None => return Ok(true),
            }
        }
        Ok(found == wanted)
    }

    /// Whether all fields of a source or an operation match.
    fn fields(&self, fields: &Value) -> Result<bool, NotOfConnections> {
        let mut all = true;
        for (field, values) in fields.as_object().unwrap() {
            let (attribute, wanted) = match field.strip_prefix("not") {
                Some(rest) => (format!("{}{}", rest[..1].to_lowercase(), &rest[1..]), false),
                None => (field.clone(), true),
            };
            all &= self.clause(&attribute, values, wanted)?;
        }
        Ok(all)
    }

    /// Whether a rule matches.
    fn rule(&self, rule: &Value) -> Result<bool, NotOfConnections> {
        let mut all = true;

        for (list, field) in [("from", "source"), ("to", "operation")] {
            if let Some(items) = rule[list].as_array() {
                let mut any = false;
                for item in items {
                    any |= self.fields(&item[field])?;
                }
                all &= any;
            }
        }

        for when in rule["when"].as_array().into_iter().flatten() {
            let key = when["key"].as_str().unwrap();
            for (field, wanted) in [("values", true), ("notValues", false)] {
                if when[field].is_array() {
                    all &= self.clause(key, &when[field], wanted)?;
                }
            }
        }

        Ok(all)
    }
}

/// A rule of an ALLOW policy has a condition on requests, and this is a connection.
struct NotOfConnections;

/// Whether policies allow a request to the workload `web` of `shop`.
pub(crate) fn documented_verdict(policies: &[Policy], test_request: &TestRequest) -> bool {
    let holds = |policy: &&Policy| {
        !policy.is_dry_run
            && matches!(policy.namespace, "shop" | "istio-system")
            && matches!(policy.app, "" | "web")
    };

    let of = |action: &'static str| {
        policies
            .iter()
            .filter(holds)
            .filter(move |policy| policy.action == action)
    };

    let matches = |policy: &Policy| {
        let matter = Matter {
            policy,
            test_request,
        };
        policy
            .rules
            .iter()
            .any(|rule| matter.rule(rule).unwrap_or(false))
    };

    !of("DENY").any(matches) && (of("ALLOW").next().is_none() || of("ALLOW").any(matches))
}
