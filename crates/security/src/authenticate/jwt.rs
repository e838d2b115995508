//! Callers with a token that is checked by the issuer's keys (`JWT_RULE`), where no API server is to be asked.

use std::fmt;

use jiff::SignedDuration;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;

use super::MeshSnapshot;
use super::jwks::KeySource;
use navarch_api::identity::{Caller, Identity};

/// How far clocks may be apart, in seconds.
const LEEWAY: u64 = 10;
/// What the subject of a service account's token starts with.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// `JWT_RULE`: a `JWTRule` of Istio's in JSON, as far as it counts here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JwtRule {
    /// Who makes the tokens.
    pub issuer: String,
    /// Whom they must be for; one of these.
    pub audiences: Vec<String>,
    /// Where the keys are; empty asks the issuer's `.well-known/openid-configuration`.
    #[serde(alias = "jwks_uri")]
    pub jwks_uri: String,
    /// The keys themselves.
    pub jwks: String,
}

/// Checks tokens of one issuer.
pub struct JwtAuthenticator {
    /// Who makes them.
    issuer: String,
    /// Whom they must be for.
    audiences: Vec<String>,
    keys: KeySource,
}

/// What is read of a token once its signature holds. Everything may be missing or of another type in the token.
#[derive(Debug, Deserialize)]
struct Claims {
    /// Whom it is about.
    sub: String,
    /// When it expires.
    #[serde(default)]
    exp: Option<serde_json::Value>,
    /// What Kubernetes says of the pod.
    #[serde(rename = "kubernetes.io", default)]
    kubernetes: Option<serde_json::Value>,
}

impl JwtAuthenticator {
    /// For the tokens of a rule.
    ///
    /// # Errors
    /// When the rule lacks issuer or audiences, or its keys cannot be read.
    pub fn new(rule: JwtRule) -> Result<Self, String> {
        if rule.issuer.is_empty() || rule.audiences.is_empty() {
            return Err("JWT_RULE must name an issuer and audiences".to_owned());
        }
        let keys = KeySource::new(&rule)?;
        Ok(Self { issuer: rule.issuer, audiences: rule.audiences, keys })
    }

    /// The service account that a token is for.
    ///
    /// # Errors
    /// Says what is wrong with the token; nothing of the token itself.
    pub async fn caller(&self, token: &str, snapshot: &MeshSnapshot) -> Result<Caller, String> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| "it is no JWT")?;
        let key = self.keys.find(header.kid.as_deref()).await?;
        let algorithms = algorithms(&key);
        if !algorithms.contains(&header.alg) {
            return Err(format!("algorithm {:?} does not fit the issuer's key", header.alg));
        }
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&self.audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let key = DecodingKey::from_jwk(&key).map_err(|_| "the issuer's key cannot be used")?;
        let token = jsonwebtoken::decode::<Claims>(token, &key, &validation).map_err(|error| describe(&error))?;
        caller_of(&token.claims, snapshot)
    }
}

/// The service account that claims are about.
fn caller_of(claims: &Claims, snapshot: &MeshSnapshot) -> Result<Caller, String> {
    let account = claims.sub.strip_prefix(SERVICE_ACCOUNT).and_then(|account| account.split_once(':'));
    let Some((namespace, name)) = account else { return Err("its subject is no service account".to_owned()) };
    let text = format!("spiffe://{}/ns/{namespace}/sa/{name}", snapshot.trust_domain);
    let identity = Identity::parse(&text).map_err(|_| "its subject is no service account")?;
    let pod = claims.kubernetes.as_ref().and_then(|claims| claims.get("pod"));
    let expires = claims.exp.as_ref().and_then(super::token_review::expiry_of_claims);
    let expires = expires.and_then(|expires| expires.checked_add(SignedDuration::from_secs(LEEWAY.cast_signed())).ok());
    Ok(Caller { identities: vec![identity], pod: pod.and_then(super::token_review::pod_of_claims), expires })
}

/// The algorithms that a key may be used with. Keys that both sides would have to know are never taken.
fn algorithms(key: &Jwk) -> &'static [Algorithm] {
    use jsonwebtoken::jwk::EllipticCurve;
    match &key.algorithm {
        AlgorithmParameters::RSA(_) => &[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            EllipticCurve::P521 | EllipticCurve::Ed25519 | _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(_) => &[Algorithm::EdDSA],
        AlgorithmParameters::OctetKey(_) | AlgorithmParameters::Other(_) | _ => &[],
    }
}

/// An error of the token's in words.
fn describe(error: &jsonwebtoken::errors::Error) -> String {
    use jsonwebtoken::errors::ErrorKind;
    let known = [
        (ErrorKind::ExpiredSignature, "it has expired"),
        (ErrorKind::ImmatureSignature, "it is not valid yet"),
        (ErrorKind::InvalidAudience, "it is for another audience"),
        (ErrorKind::InvalidIssuer, "it is from another issuer"),
        (ErrorKind::InvalidSignature, "its signature is wrong"),
    ];
    if let ErrorKind::MissingRequiredClaim(claim) = error.kind() {
        return format!("it has no claim {claim}");
    }
    let same = |kind: &ErrorKind| std::mem::discriminant(kind) == std::mem::discriminant(error.kind());
    let found = known.iter().find(|(kind, _)| same(kind));
    found.map_or("it cannot be read", |(_, words)| words).to_owned()
}

impl fmt::Debug for JwtAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtAuthenticator").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}
