//! Unreachable routes of VirtualServices, as reported by istiod.
//!
//! Of matches by prefix istiod compares method, authority and headers the other way round than what
//! is reached asks for. The findings are istioctl's, so they are compared that way here, too; what
//! admission warns of is compared the right way.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_api::istio::{HttpMatchRequest, StringMatch, VirtualService};
use serde::Serialize;

use crate::analyzer::Report;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Resource;
use navarch_base::go_text::quoted;

/// How many matches by prefix the others are compared with: a long list must not cost the square of
/// its length.
const COMPARED: usize = 1024;

/// Tells of routes that are not reached.
pub(super) fn report(resource: &Arc<Resource>, service: &VirtualService, report: &mut Report) {
    let mut findings = Findings { resource, report };
    let routes: Vec<_> = service
        .http
        .iter()
        .map(|route| (name(&route.name), route.matches.as_slice()))
        .collect();

    let nameless = |request: &HttpMatchRequest| {
        serde_json::to_string(&HttpMatchRequest {
            name: String::new(),
            ..request.clone()
        })
        .unwrap_or_default()
    };

    findings.repeated(&routes, nameless, |request| name(&request.name));
    findings.covered(service);
    let routes: Vec<_> = service
        .tcp
        .iter()
        .map(|route| (None, route.matches.as_slice()))
        .collect();
    findings.repeated(&routes, text, |_| None);

    let routes: Vec<_> = service
        .tls
        .iter()
        .map(|route| (None, route.matches.as_slice()))
        .collect();
    findings.repeated(&routes, text, |_| None);
}

/// A match as text, to compare it with others.
fn text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A name in quotes, if there is one.
fn name(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| quoted(name))
}

/// The name of a route or match, or its index.
fn called(name: Option<String>, index: usize) -> String {
    name.unwrap_or_else(|| format!("#{index}"))
}

/// A match by prefix, with what istiod compares of it.
struct Prefix<'a> {
    route: String,
    request: String,
    prefix: &'a str,
    port: u32,
    /// The method and the authority.
    texts: [String; 2],
    /// Headers, parameters of the query and headers that must not be there.
    maps: [BTreeMap<&'a str, String>; 3],
}

/// Receives findings.
struct Findings<'a> {
    /// The VirtualService.
    resource: &'a Arc<Resource>,
    report: &'a mut Report,
}

impl Findings<'_> {
    /// Tells of a route that is not reached.
    fn unreachable(&mut self, route: &str, reason: &str) {
        let parameters = parameters![route, reason];
        self.report.add(Message::new(
            &messages::VIRTUAL_SERVICE_UNREACHABLE_RULE,
            self.resource,
            parameters,
        ));
    }

    /// Tells of a match that another one has before it.
    fn ineffective(&mut self, route: &str, request: &str, other: &str) {
        let parameters = parameters![route, request, other];
        self.report.add(Message::new(
            &messages::VIRTUAL_SERVICE_INEFFECTIVE_MATCH,
            self.resource,
            parameters,
        ));
    }

    /// Finds routes after one without matches, and matches that were there before.
    fn repeated<M>(
        &mut self,
        routes: &[(Option<String>, &[M])],
        text: impl Fn(&M) -> String,
        name: impl Fn(&M) -> Option<String>,
    ) {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        let mut has_catch_all = false;

        for (index, (route, matches)) in routes.iter().enumerate() {
            let route = called(route.clone(), index);

            if matches.is_empty() {
                if has_catch_all {
                    self.unreachable(&route, "only the last rule can have no matches");
                }
                has_catch_all = true;
                continue;
            }

            if has_catch_all {
                self.unreachable(&route, "route without matches defined before");
                continue;
            }

            let mut repeats = 0;

            for (place, request) in matches.iter().enumerate() {
                let key = text(request);
                if let Some(before) = seen.get(&key) {
                    self.ineffective(&route, &called(name(request), place), &before.clone());
                    repeats += 1;
                } else {
                    seen.insert(key, route.clone());
                }
            }

            if repeats == matches.len() {
                self.unreachable(&route, "all matches used by prior rules");
            }
        }
    }

    /// Finds matches by prefix under a shorter prefix before them.
    fn covered(&mut self, service: &VirtualService) {
        let mut prefixes: Vec<Prefix<'_>> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();

        for (index, route) in service.http.iter().enumerate() {
            if route.matches.is_empty() {
                break;
            }

            for (place, request) in route.matches.iter().enumerate() {
                let Some(StringMatch::Prefix(prefix)) = &request.uri else {
                    continue;
                };

                let key = text(&HttpMatchRequest {
                    name: String::new(),
                    ..request.clone()
                });
                if !seen.insert(key) || prefix.is_empty() {
                    continue;
                }

                let method = compared(request.method.as_ref());
                let method = if method.is_empty() {
                    "exact:GET".to_owned()
                } else {
                    method
                };

                let found = Prefix {
                    route: called(name(&route.name), index),
                    request: called(name(&request.name), place),
                    prefix,
                    port: request.port,
                    texts: [method, compared(request.authority.as_ref())],
                    maps: [
                        &request.headers,
                        &request.query_params,
                        &request.without_headers,
                    ]
                    .map(|map| {
                        map.iter()
                            .map(|(key, value)| (key.as_str(), compared(Some(value))))
                            .collect()
                    }),
                };

                for before in prefixes.iter().filter(|before| before.covers(&found)) {
                    let request = format!("{} of prefix {}", found.request, found.prefix);
                    let other = format!(
                        "{} of prefix {} on {}",
                        before.request, before.prefix, before.route
                    );
                    self.ineffective(&found.route, &request, &other);
                }

                if prefixes.len() < COMPARED {
                    prefixes.push(found);
                }
            }
        }
    }
}

impl Prefix<'_> {
    /// Whether istiod takes a later match to be under this one.
    fn covers(&self, later: &Self) -> bool {
        later.prefix != self.prefix
            && later.prefix.starts_with(self.prefix)
            && later.port == self.port
            && self
                .texts
                .iter()
                .zip(&later.texts)
                .all(|(own, other)| own.starts_with(other.as_str()))
            && self.maps.iter().zip(&later.maps).all(|(own, other)| {
                let is_met = |(key, value): (&&str, &String)| {
                    other
                        .get(*key)
                        .is_some_and(|other| value.starts_with(other.as_str()))
                };
                own.len() == other.len() && own.iter().all(is_met)
            })
    }
}

/// The comparison key of a string match: type and text; `None` for regular expressions.
fn compared(value: Option<&StringMatch>) -> String {
    match value {
        Some(StringMatch::Exact(text)) if !text.is_empty() => format!("exact:{text}"),
        Some(StringMatch::Prefix(text)) if !text.is_empty() => format!("prefix:{text}"),
        Some(_) | None => String::new(),
    }
}
