//! What policies and routes tell requests apart by: methods, paths, headers and tokens.

use std::collections::{BTreeMap, BTreeSet};

use navarch_walk::token::Claims;
use serde_json::{Map, Value};

use super::objects::{
    AUTHENTICATION, AUTHORIZATION, ObjectName, Objects, items, members, text, texts,
};
use super::routes::{ServiceHost, destination_namespaces, routes_of_parent, virtual_services};

/// Headers of a request, names in lower case.
pub(crate) type Headers = BTreeMap<String, String>;

/// Methods; the first that no object names stands for all others.
const METHODS: [&str; 8] = [
    "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE",
];
/// A path that stands for those that no object names.
const OTHER_PATH: &str = "/some-other-path";
/// The part of a path or value that stands for `*`.
const ANY: &str = "any";
/// The subject of tokens whose policies name none.
const SUBJECT: &str = "some-subject";

/// The requests to a service that policies and routes tell apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) methods: BTreeSet<String>,
    pub(crate) paths: BTreeSet<String>,
    /// Sets of headers that are sent together.
    pub(crate) headers: BTreeSet<Headers>,
    /// The claims of tokens; a request without a token is not among them.
    pub(crate) tokens: Vec<Claims>,
    /// The namespaces whose policies may judge the requests: that of the service, those of the
    /// destinations of its routes, and the root namespace.
    pub(crate) namespaces: BTreeSet<String>,
    /// What no example was found for, with the object that names it.
    pub(crate) without_example: BTreeSet<(ObjectName, String)>,
}

impl Attributes {
    /// Those of a service. `root` is the root namespace.
    pub(crate) fn of_service(objects: &Objects, host: &ServiceHost<'_>, root: &str) -> Self {
        let routes = || virtual_services(objects, host).chain(routes_of_parent(objects, host));
        let mut namespaces = destination_namespaces(routes());
        namespaces.insert(host.namespace.to_owned());
        namespaces.insert(root.to_owned());
        Self::of(objects, namespaces, routes())
    }

    /// Those of routes, and of the policies of some namespaces.
    pub(crate) fn of<'a>(
        objects: &Objects,
        namespaces: BTreeSet<String>,
        routes: impl Iterator<Item = (&'a ObjectName, &'a Value)>,
    ) -> Self {
        let mut attributes = Self::default();
        for namespace in &namespaces {
            for (name, policy) in objects.within(AUTHORIZATION, namespace) {
                attributes.add_policy(name, policy);
            }
            for (_, policy) in objects.within(AUTHENTICATION, namespace) {
                for rule in items(policy, "/spec/jwtRules") {
                    attributes.add_token(text(rule, "/issuer"), None);
                }
            }
        }
        attributes.add_routes(routes);
        attributes.add_others();
        attributes.namespaces = namespaces;
        attributes
    }

    /// Adds requests with values that no object names.
    fn add_others(&mut self) {
        let other = METHODS
            .into_iter()
            .find(|method| !self.methods.contains(*method));
        self.methods.extend(other.map(str::to_owned));
        self.paths.insert(OTHER_PATH.to_owned());
        self.headers.insert(Headers::new());
    }

    fn add_policy(&mut self, name: &ObjectName, policy: &Value) {
        for rule in items(policy, "/spec/rules") {
            for to in items(rule, "/to") {
                for field in ["methods", "notMethods"] {
                    let methods = texts(to, &format!("/operation/{field}"));
                    self.methods.extend(methods.map(example));
                }
                for field in ["paths", "notPaths"] {
                    let paths = texts(to, &format!("/operation/{field}"));
                    self.paths.extend(paths.map(path_example));
                }
                for field in ["hosts", "notHosts"] {
                    if texts(to, &format!("/operation/{field}")).next().is_some() {
                        self.note(name, "it matches hosts, and clients may use other names");
                    }
                }
            }

            for from in items(rule, "/from") {
                for field in ["requestPrincipals", "notRequestPrincipals"] {
                    for principal in texts(from, &format!("/source/{field}")) {
                        // Issuers are URLs.
                        let (issuer, subject) =
                            principal.rsplit_once('/').unwrap_or((principal, "*"));
                        let subject = example(subject);
                        self.add_token(&example(issuer), Some(("sub", subject.as_str())));
                    }
                }
            }

            self.add_conditions(name, rule);
        }
    }

    /// Adds the conditions of a rule: each alone, and those about headers together.
    fn add_conditions(&mut self, name: &ObjectName, rule: &Value) {
        let mut together = Headers::new();
        for when in items(rule, "/when") {
            let key = text(when, "/key");
            let values = texts(when, "/values").chain(texts(when, "/notValues"));
            let argument = |prefix: &str| key.strip_prefix(prefix)?.strip_suffix(']');
            if let Some(header) = argument("request.headers[") {
                let header = header.to_ascii_lowercase();
                for value in values {
                    let value = example(value);
                    self.headers
                        .insert(Headers::from([(header.clone(), value.clone())]));
                    together.entry(header.clone()).or_insert(value);
                }
            } else if let Some(claim) = argument("request.auth.claims[") {
                for value in values {
                    self.add_token("", Some((claim, example(value).as_str())));
                }
            } else if key.starts_with("request.auth.") {
                self.note(name, "it matches attributes of tokens other than claims");
            }
        }
        self.headers.insert(together);
    }

    /// Adds a token. A claim may be nested, as in `realm][roles`; an empty issuer is that of the
    /// first token with one.
    fn add_token(&mut self, issuer: &str, claim: Option<(&str, &str)>) {
        let known = || {
            let of = |token: &Claims| token.get("iss").and_then(Value::as_str).map(str::to_owned);
            self.tokens.iter().find_map(of)
        };
        let issuer = match issuer {
            "" => known().unwrap_or_else(|| ANY.to_owned()),
            issuer => issuer.to_owned(),
        };

        let mut token = Map::new();
        token.insert("iss".to_owned(), Value::from(issuer));
        token.insert("sub".to_owned(), Value::from(SUBJECT));
        if let Some((path, value)) = claim {
            let mut parts = path.split("][");
            let first = parts.next().unwrap_or_default().to_owned();
            let inner: Vec<&str> = parts.collect();
            let nested = inner
                .into_iter()
                .rev()
                .fold(Value::from(value), |inner, key| {
                    Value::Object(Map::from_iter([(key.to_owned(), inner)]))
                });
            token.insert(first, nested);
        }
        if !self.tokens.contains(&token) {
            self.tokens.push(token);
        }
    }

    fn add_routes<'a>(&mut self, routes: impl Iterator<Item = (&'a ObjectName, &'a Value)>) {
        for (name, route) in routes {
            for matched in items(route, "/spec/http").flat_map(|http| items(http, "/match")) {
                self.add_match_of_virtual_service(name, matched);
            }
            for matched in items(route, "/spec/rules").flat_map(|rule| items(rule, "/matches")) {
                self.add_match_of_gateway_api(name, matched);
            }
        }
    }

    fn add_match_of_virtual_service(&mut self, name: &ObjectName, matched: &Value) {
        let mut path = self.string(name, matched.get("uri"));
        if let Some(method) = self.string(name, matched.get("method")) {
            self.methods.insert(method);
        }

        let mut together = Headers::new();
        for field in ["/headers", "/withoutHeaders"] {
            for (header, wanted) in members(matched, field) {
                let value = if wanted.as_object().is_none_or(Map::is_empty) {
                    Some(ANY.to_owned())
                } else {
                    self.string(name, Some(wanted))
                };
                if let Some(value) = value {
                    together.insert(header.to_ascii_lowercase(), value);
                }
            }
        }

        for (parameter, wanted) in members(matched, "/queryParams") {
            if let Some(value) = self.string(name, Some(wanted)) {
                add_parameter(&mut path, parameter, &value);
            }
        }
        for field in ["authority", "scheme", "sourceLabels", "sourceNamespace"] {
            if matched.get(field).is_some() {
                self.note(name, &format!("it matches {field}"));
            }
        }
        self.paths.extend(path);
        self.add_headers(together);
    }

    fn add_match_of_gateway_api(&mut self, name: &ObjectName, matched: &Value) {
        let is_expression = |value: &Value| text(value, "/type") == "RegularExpression";
        let mut path = None;
        if let Some(wanted) = matched.get("path") {
            if is_expression(wanted) {
                self.note(name, "it matches a regular expression");
            } else {
                path = Some(text(wanted, "/value").to_owned());
            }
        }

        // GRPCRoutes have a service and a method in place of a method.
        match matched.get("method") {
            Some(Value::String(method)) => _ = self.methods.insert(method.clone()),
            Some(method) if is_expression(method) => {
                self.note(name, "it matches a regular expression");
            }
            Some(method) => {
                let part = |field| match text(method, field) {
                    "" => ANY,
                    part => part,
                };
                path = Some(format!("/{}/{}", part("/service"), part("/method")));
                self.methods.insert("POST".to_owned());
            }
            None => {}
        }

        let mut together = Headers::new();
        for header in items(matched, "/headers") {
            if is_expression(header) {
                self.note(name, "it matches a regular expression");
            } else {
                together.insert(
                    text(header, "/name").to_ascii_lowercase(),
                    text(header, "/value").to_owned(),
                );
            }
        }
        for parameter in items(matched, "/queryParams") {
            add_parameter(
                &mut path,
                text(parameter, "/name"),
                text(parameter, "/value"),
            );
        }
        self.paths.extend(path);
        self.add_headers(together);
    }

    /// Adds headers: each alone, and all together.
    fn add_headers(&mut self, together: Headers) {
        let each = together
            .iter()
            .map(|(name, value)| Headers::from([(name.clone(), value.clone())]));
        self.headers.extend(each);
        self.headers.insert(together);
    }

    /// An example of a StringMatch.
    fn string(&mut self, name: &ObjectName, wanted: Option<&Value>) -> Option<String> {
        let wanted = wanted?;
        if let Some(exact) = wanted.get("exact").and_then(Value::as_str) {
            return Some(exact.to_owned());
        }
        if let Some(prefix) = wanted.get("prefix").and_then(Value::as_str) {
            return Some(format!("{prefix}{ANY}"));
        }
        self.note(name, "it matches a regular expression");
        None
    }

    fn note(&mut self, name: &ObjectName, what: &str) {
        self.without_example.insert((name.clone(), what.to_owned()));
    }
}

/// Adds a parameter to the query of a path.
fn add_parameter(path: &mut Option<String>, name: &str, value: &str) {
    let path = path.get_or_insert_with(|| OTHER_PATH.to_owned());
    let separator = if path.contains('?') { '&' } else { '?' };
    path.push(separator);
    path.push_str(&format!("{name}={value}"));
}

/// A text that fits a pattern with `*` at one end.
fn example(pattern: &str) -> String {
    pattern.replacen('*', ANY, 1)
}

/// A path that fits the pattern of a policy.
fn path_example(pattern: &str) -> String {
    let path = pattern.replace("{**}", "any/any").replace("{*}", ANY);
    let path = example(&path);
    if path.starts_with('/') {
        path
    } else {
        format!("/{path}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn examples_are_of_each_pattern_and_of_what_no_pattern_names() {
        let mut objects = Objects::default();
        objects.add(json!({
            "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
            "metadata": { "name": "p", "namespace": "shop" },
            "spec": { "rules": [{
                "to": [{ "operation": { "methods": ["GET", "POST"], "notPaths": ["/admin/*", "/a/{*}/b", "*.php"] } }],
                "from": [{ "source": { "requestPrincipals": ["https://issuer/*"] } }],
                "when": [
                    { "key": "request.headers[X-Tier]", "values": ["gold*"] },
                    { "key": "request.auth.claims[realm][roles]", "values": ["staff"] },
                ],
            }] },
        }));
        objects.add(json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
            "metadata": { "name": "v", "namespace": "shop" },
            "spec": { "hosts": ["web"], "http": [
                { "match": [{ "uri": { "prefix": "/v2/" }, "headers": { "a": { "exact": "1" }, "b": {} } }] },
                { "match": [{ "uri": { "regex": ".*" } }] },
            ] },
        }));
        let service = json!({ "metadata": { "name": "web", "namespace": "shop" } });
        let host = ServiceHost::of(&service, "cluster.local");
        let found = Attributes::of_service(&objects, &host, "istio-system");

        assert_eq!(
            found.methods,
            ["GET", "POST", "PUT"].map(str::to_owned).into()
        );
        assert_eq!(
            found.paths,
            ["/a/any/b", "/admin/any", "/any.php", "/v2/any", OTHER_PATH]
                .map(str::to_owned)
                .into()
        );
        let headers = |pairs: &[(&str, &str)]| -> Headers {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        assert_eq!(
            found.headers,
            [
                headers(&[]),
                headers(&[("a", "1")]),
                headers(&[("a", "1"), ("b", "any")]),
                headers(&[("b", "any")]),
                headers(&[("x-tier", "goldany")]),
            ]
            .into()
        );
        let tokens = Value::from(
            found
                .tokens
                .into_iter()
                .map(Value::Object)
                .collect::<Vec<_>>(),
        );
        assert_eq!(
            tokens,
            json!([
                { "iss": "https://issuer", "sub": "any" },
                { "iss": "https://issuer", "sub": SUBJECT, "realm": { "roles": "staff" } },
            ])
        );
        assert_eq!(found.without_example.len(), 1, "the regular expression");
    }
}
