//! Authenticates callers: by client certificate, by token, or by a trusted gateway's header. The
//! first success is used.
//!
//! Agrees with istiod's authenticators (`security/pkg/server/ca/authenticate`) in meaning and
//! order.

mod certificate;
pub mod jwks;
mod jwt;
pub mod token_review;
mod xfcc;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, header};
use imbl::OrdMap;
use rustls::pki_types::CertificateDer;

pub use certificate::certificate_expiry;
pub use jwt::{JwtAuthenticator, JwtRule, JwtRuleError, TokenError};
pub use token_review::TokenReviews;
pub use xfcc::TrustedNetworks;

use super::remote_servers::RemoteServers;
use navarch_api::identity::{Caller, Identity};
use navarch_api::names::{ClusterId, TrustDomain};
use navarch_store::Objects;

/// Maximum length of a token. Tokens of Kubernetes have about 1 KiB.
const MAX_TOKEN: usize = 16 << 10;
/// Maximum length of a header in an error.
const SHOWN: usize = 64;
/// Prefix of the authorization header.
const BEARER: &str = "bearer ";
/// The header with the cluster of a token's issuer.
const CLUSTER: &str = "clusterid";

/// A snapshot of the mesh for authentication.
#[derive(Clone, Debug)]
pub struct MeshSnapshot {
    /// All objects of the cluster that configures the mesh.
    pub objects: Objects,
    /// Objects by remote cluster, which include the pods of callers there.
    pub remotes: OrdMap<ClusterId, Objects>,
    /// The trust domain of this mesh.
    pub trust_domain: TrustDomain,
    /// `trustDomainAliases` of mesh config: identities of these domains count as identities of this
    /// mesh.
    pub aliases: Vec<TrustDomain>,
    /// The cluster that Navarch runs in.
    pub cluster: ClusterId,
}

/// Provides the current [`MeshSnapshot`].
pub trait SnapshotProvider: Send + Sync + 'static {
    /// The current snapshot. Costs a few reference counts.
    fn snapshot(&self) -> MeshSnapshot;
}

/// The credentials of a caller.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// The address of the caller.
    pub peer: Option<SocketAddr>,
    /// Its client certificates, verified against the roots; empty if there are none.
    pub certificates: &'a [CertificateDer<'static>],
    /// The headers of its request.
    pub headers: &'a HeaderMap,
}

/// Why an authenticator rejected a caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallerFault {
    /// The certificate has no identity of this mesh.
    #[error("certificate: {0}")]
    Certificate(String),
    /// The token is invalid.
    #[error("token: {0}")]
    Token(String),
    /// The forwarded certificate of a gateway is invalid.
    #[error("forwarded certificate: {0}")]
    Forwarded(String),
}

/// The reviewer of a cluster's tokens, and the ID of the cluster if it is remote.
type Reviewers = (Option<ClusterId>, Arc<TokenReviews>);

/// No authenticator accepted the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(pub Vec<CallerFault>);

/// Authenticates callers.
#[derive(Clone)]
pub struct Authenticator {
    snapshots: Arc<dyn SnapshotProvider>,
    /// Tokens that are verified by JWKS (`JWT_RULE`).
    jwt: Option<Arc<JwtAuthenticator>>,
    /// Tokens that the API server reviews.
    reviews: Option<Arc<TokenReviews>>,
    /// The API servers of remote clusters, which review their tokens.
    remotes: RemoteServers,
    /// Gateways whose forwarded certificates are trusted (`TRUSTED_GATEWAY_CIDR`).
    trusted: TrustedNetworks,
}

impl MeshSnapshot {
    /// Whether a trust domain is this mesh's or one of its aliases.
    #[must_use]
    pub fn trusts(&self, domain: &TrustDomain) -> bool {
        *domain == self.trust_domain || self.aliases.contains(domain)
    }

    /// The identities of this mesh among some URIs; the others are ignored.
    ///
    /// # Errors
    /// If there are none.
    fn identities<'u>(&self, uris: impl Iterator<Item = &'u str>) -> Result<Vec<Identity>, String> {
        let identities: Vec<Identity> = uris
            .filter_map(|uri| Identity::parse(uri).ok())
            .filter(|identity| self.trusts(&identity.trust_domain))
            .collect();

        if identities.is_empty() {
            return Err(format!(
                "it has no identity in trust domain {}",
                self.trust_domain
            ));
        }
        Ok(identities)
    }
}

impl Authenticator {
    /// An authenticator with these methods; client certificates are always accepted.
    #[must_use]
    pub fn new(
        snapshots: Arc<dyn SnapshotProvider>,
        jwt: Option<JwtAuthenticator>,
        reviews: Option<TokenReviews>,
        trusted: TrustedNetworks,
    ) -> Self {
        let remotes = RemoteServers::default();
        Self {
            snapshots,
            jwt: jwt.map(Arc::new),
            reviews: reviews.map(Arc::new),
            remotes,
            trusted,
        }
    }

    /// Sets the API servers for callers of remote clusters.
    #[must_use]
    pub fn with_remotes(self, remotes: RemoteServers) -> Self {
        Self { remotes, ..self }
    }

    /// Authenticates a caller.
    ///
    /// # Errors
    /// If no authenticator accepts the caller. The reasons may be shown to the caller.
    pub async fn admit(&self, shown: Credentials<'_>) -> Result<Caller, Unknown> {
        let snapshot = self.snapshots.snapshot();
        let mut faults = Vec::new();

        if !shown.certificates.is_empty() {
            match certificate::caller(shown.certificates, &snapshot, jiff::Timestamp::now()) {
                Ok(caller) => return Ok(caller),
                Err(reason) => faults.push(CallerFault::Certificate(reason)),
            }
        }

        if let Some(token) = bearer(shown.headers) {
            match token {
                Ok(token) => match self.by_token(token, shown, &snapshot).await {
                    Ok(caller) => return Ok(caller),
                    Err(reasons) => faults.extend(reasons.into_iter().map(CallerFault::Token)),
                },
                Err(reason) => faults.push(CallerFault::Token(reason.to_owned())),
            }
        }

        if !self.trusted.is_empty() && shown.headers.contains_key(xfcc::HEADER) {
            match xfcc::caller(shown, &self.trusted, &snapshot) {
                Ok(caller) => return Ok(caller),
                Err(reason) => faults.push(CallerFault::Forwarded(reason)),
            }
        }

        Err(Unknown(faults))
    }

    /// Authenticates a caller by its token.
    async fn by_token(
        &self,
        token: &str,
        shown: Credentials<'_>,
        snapshot: &MeshSnapshot,
    ) -> Result<Caller, Vec<String>> {
        let mut reasons = Vec::new();

        if let Some(jwt) = &self.jwt {
            match jwt.caller(token, snapshot).await {
                Ok(caller) => return Ok(caller),
                Err(error) => reasons.push(error.to_string()),
            }
        }

        let cluster = shown
            .headers
            .get(CLUSTER)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();

        match self.reviews_of(cluster, snapshot) {
            Ok(Some((cluster, reviews))) => match reviews.caller(token, shown.peer, snapshot).await
            {
                Ok(mut caller) => {
                    if let Some(pod) = &mut caller.pod {
                        pod.cluster = cluster;
                    }
                    return Ok(caller);
                }
                Err(reason) => reasons.push(reason),
            },
            Ok(None) => {}
            Err(reason) => reasons.push(reason),
        }

        if reasons.is_empty() {
            reasons.push(
                "tokens are not supported: there is no API server for TokenReviews, and JWT_RULE is not set".to_owned(),
            );
        }

        Err(reasons)
    }
}

impl Authenticator {
    /// The reviewer of the tokens of a cluster, and the cluster's ID if it is remote. `None` if
    /// there is no reviewer.
    fn reviews_of(
        &self,
        cluster: &str,
        snapshot: &MeshSnapshot,
    ) -> Result<Option<Reviewers>, String> {
        let cluster_id = self.remotes.resolve(cluster);
        if cluster.is_empty() || snapshot.cluster == *cluster || snapshot.cluster == cluster_id {
            return Ok(self.reviews.clone().map(|reviews| (None, reviews)));
        }
        let of = |cluster: ClusterId| {
            self.remotes
                .reviews(&cluster)
                .map(|reviews| (Some(cluster), reviews))
        };
        let reviews = of(ClusterId::new(cluster)).or_else(|| of(cluster_id));
        if reviews.is_none() && self.reviews.is_some() {
            let cluster: String = cluster.chars().take(SHOWN).collect();
            return Err(format!("unknown cluster {cluster:?}"));
        }
        Ok(reviews)
    }
}

/// The token of a request, if it has one.
fn bearer(headers: &HeaderMap) -> Option<Result<&str, &'static str>> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_at_checked(BEARER.len())?;
    if !scheme.eq_ignore_ascii_case(BEARER) {
        return None;
    }
    Some(if token.len() > MAX_TOKEN {
        Err("it is too long")
    } else {
        Ok(token.trim())
    })
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator")
            .field("jwt", &self.jwt.is_some())
            .field("reviews", &self.reviews.is_some())
            .field("trusted", &self.trusted)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the client presented neither a certificate nor a token");
        }
        let faults: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&faults.join("; "))
    }
}

impl std::error::Error for Unknown {}

#[cfg(test)]
mod tests;
