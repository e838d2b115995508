//! Evaluation of a request by the filters of a chain: first its token, then policies.

use std::net::{IpAddr, SocketAddr};

use navarch_proto::envoy::config::listener::v3::FilterChain;
use navarch_walk::HttpRequest;
use navarch_walk::policy::{Peer, TokenClaims, Verdict, Visitor, verdict};
use navarch_walk::token::{Admission, Claims, admission};

use super::why::WhyNot;

/// The unknown condition that applies to every token.
pub const ASSUMED_VALID_TOKEN: &str = "whether signature, validity and location of the token meet the requirements of the JWT provider";

/// A request or connection at a filter chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit<'a> {
    pub(super) peer: Peer<'a>,
    /// The peer address, if known.
    pub(super) source: Option<IpAddr>,
    /// The original client address, if known.
    pub(super) remote: Option<IpAddr>,
    pub(super) destination: SocketAddr,
    pub(super) http: Option<&'a HttpRequest>,
}

/// The result of the evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evaluation {
    /// Denied; the answer contains the reason.
    Denied,
    /// Allowed.
    LetIn {
        /// Whether the token is forwarded to the next proxy.
        with_token: bool,
    },
}

/// The input of policies, with the token as they see it.
pub(super) fn visitor<'a>(visit: &Visit<'a>, claims: TokenClaims<'a>) -> Visitor<'a> {
    let Visit {
        peer,
        source,
        remote,
        destination,
        http,
    } = *visit;
    Visitor {
        peer,
        source,
        remote,
        claims,
        destination: (destination.ip(), destination.port()),
        http,
    }
}

/// Evaluates the filters of a chain of a proxy. The reason of a denial is added to the answer.
pub(super) fn evaluate(
    name: &str,
    chain: &FilterChain,
    visit: &Visit<'_>,
    answer: &mut WhyNot,
) -> Evaluation {
    let admission = visit
        .http
        .map_or(Admission::Unchecked, |request| admission(chain, request));
    let mut with_token = true;
    let claims = match (
        &admission,
        visit.http.and_then(|request| request.claims.as_ref()),
    ) {
        (
            Admission::Rejected {
                status,
                reason,
                issuers,
            },
            token,
        ) => {
            let what = if token.is_some() {
                "rejects the token"
            } else {
                "requires a token"
            };

            answer.reason = Some(format!("{name} {what}: {status}, {reason}"));
            answer.advice = Some(format!(
                "the issuers that it accepts: {}",
                issuers.join(", ")
            ));
            return Evaluation::Denied;
        }
        (
            Admission::Believed {
                issuer,
                claims,
                is_forwarded,
            },
            _,
        ) => {
            with_token = *is_forwarded;
            let goes = if with_token {
                ""
            } else {
                ", and removes it from the request (forwardOriginalToken is not set)"
            };

            answer.step_once(format!("{name} accepts the token of {issuer:?}{goes}"));
            answer.unknown_once(ASSUMED_VALID_TOKEN);
            TokenClaims::Believed(claims)
        }
        (Admission::Missing { issuers }, _) => {
            let issuers = issuers.join(", ");
            answer.step_once(format!(
                "{name} accepts tokens of {issuers}, and requests without one, such as this"
            ));
            TokenClaims::Absent
        }
        (Admission::Unchecked, Some(_)) => {
            answer.step_once(format!(
                "{name} does not check tokens: no RequestAuthentication applies to it"
            ));
            TokenClaims::Absent
        }
        (Admission::Unchecked, None) => TokenClaims::Absent,
    };

    let policy_verdict = verdict(chain, &visitor(visit, claims));

    // If another token could change the verdict, policies depend on the token.
    let by_token = || verdict(chain, &visitor(visit, TokenClaims::Unknown)) != policy_verdict;

    match denial(name, &policy_verdict, visit) {
        Some((reason, advice)) => {
            let asks_for_token = visit.http.is_some() && by_token();
            answer.reason = Some(reason);
            answer.advice = advice.map(|advice| {
                advice
                    + if asks_for_token {
                        token_advice(visit)
                    } else {
                        ""
                    }
            });
            Evaluation::Denied
        }
        None => {
            if policy_verdict == Verdict::Unknown {
                answer.unknown.push(format!(
                    "whether a policy of {name} allows the request: it depends on addresses or on data that only the proxy has"
                ));
            }
            Evaluation::LetIn { with_token }
        }
    }
}

/// The advice if policies depend on the token.
fn token_advice(visit: &Visit<'_>) -> &'static str {
    if visit.http.is_some_and(|request| request.claims.is_some()) {
        "; the policy depends on the claims of the token"
    } else {
        "; the policy depends on the claims of a token, and the request has none (--token-claims)"
    }
}

/// Why policies deny the request, and their names; `None` if they allow it, or if that is not
/// known.
fn denial(name: &str, verdict: &Verdict, visit: &Visit<'_>) -> Option<(String, Option<String>)> {
    let who = peer_name(visit.peer);
    let end = if visit.http.is_some() {
        "403"
    } else {
        "the connection is closed"
    };

    match verdict {
        Verdict::Passes | Verdict::Unknown => None,
        Verdict::Denied(rule) => {
            let advice = policy_of(rule).map(|policy| format!("it is {policy}"));
            Some((
                format!("{name} denies it to {who}: {end} by {rule}"),
                advice,
            ))
        }
        Verdict::NotAllowed(rules) => {
            let advice = format!(
                "policies with action ALLOW: {}; none of their rules matches",
                allowing(rules)
            );
            Some((
                format!("{name} allows it to others, not to {who}: {end}"),
                Some(advice),
            ))
        }
    }
}

/// The peer as text.
pub(super) fn peer_name(peer: Peer<'_>) -> &str {
    match peer {
        Peer::Proven(identity) => identity,
        Peer::Nobody => "a client without identity (plain text)",
        Peer::Somebody => "the client",
    }
}

/// The ALLOW policies, by the names of their rules.
pub(super) fn allowing(rules: &[String]) -> String {
    let mut policies: Vec<String> = rules.iter().filter_map(|rule| policy_of(rule)).collect();
    policies.dedup();
    if policies.is_empty() {
        "an AuthorizationPolicy that allows nothing".to_owned()
    } else {
        policies.join(", ")
    }
}

/// The policy behind the name of a rule, such as `ns[shop]-policy[p]-rule[0]`.
pub(super) fn policy_of(rule: &str) -> Option<String> {
    let (namespace, rest) = rule.split_once("ns[")?.1.split_once("]-policy[")?;
    let (name, _) = rest.split_once(']')?;
    Some(format!("AuthorizationPolicy {namespace}/{name}"))
}

/// The request for the next proxy: without a token that was removed.
pub(super) fn forwarded_request(request: &HttpRequest, judgement: Evaluation) -> HttpRequest {
    let keeps = judgement != Evaluation::LetIn { with_token: false };
    HttpRequest {
        claims: request.claims.clone().filter(|_: &Claims| keeps),
        ..request.clone()
    }
}
