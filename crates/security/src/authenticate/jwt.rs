//! Authenticates callers by tokens that are verified with the issuer's keys (`JWT_RULE`), without
//! the API server.

use std::fmt;

use jiff::SignedDuration;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;

use super::MeshSnapshot;
use super::jwks::{KeyError, KeySetError, KeySource};
use navarch_api::identity::{Caller, Identity};
use navarch_base::shown_url::ShownUrl;

/// Maximum clock skew, in seconds.
const LEEWAY: u64 = 10;
/// Prefix of the subject in service account tokens.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// `JWT_RULE`: the supported fields of Istio's `JWTRule`, as JSON.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JwtRule {
    /// The issuer of the tokens.
    pub issuer: String,
    /// The accepted audiences; a token must have one of them.
    pub audiences: Vec<String>,
    /// The address of the keys; if empty, it is read from the issuer's
    /// `.well-known/openid-configuration`.
    #[serde(alias = "jwks_uri")]
    pub jwks_uri: String,
    /// The keys, as JSON.
    pub jwks: String,
}

impl fmt::Debug for JwtRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            issuer,
            audiences,
            jwks_uri,
            jwks,
        } = self;
        f.debug_struct("JwtRule")
            .field("issuer", &ShownUrl::new(issuer))
            .field("audiences", audiences)
            .field("jwks_uri", &ShownUrl::new(jwks_uri))
            .field("jwks", jwks)
            .finish()
    }
}

/// Why a [`JwtRule`] is invalid.
#[derive(Debug, thiserror::Error)]
pub enum JwtRuleError {
    /// It has no issuer or no audiences.
    #[error("JWT_RULE must have an issuer and audiences")]
    Incomplete,
    /// Its keys are invalid.
    #[error("JWT_RULE: jwks")]
    Keys(#[from] KeySetError),
}

/// Why a token was rejected. The text does not contain the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It is something else.
    #[error("it is not a JWT")]
    NoJwt,
    /// There is no key to verify it with.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The issuer's key is for other algorithms.
    #[error("algorithm {0:?} does not match the issuer's key")]
    Algorithm(Algorithm),
    /// The issuer's key cannot be used.
    #[error("the issuer's key is unsupported")]
    UnsupportedKey,
    /// Its signature or a claim is invalid.
    #[error("{}", describe(.0))]
    Invalid(#[source] jsonwebtoken::errors::Error),
    /// Its subject is somebody else.
    #[error("its subject is not a service account")]
    Subject,
}

impl TokenError {
    /// Whether another key could verify the token.
    fn is_of_the_key(&self) -> bool {
        match self {
            Self::Algorithm(_) | Self::UnsupportedKey => true,
            Self::Invalid(error) => matches!(error.kind(), ErrorKind::InvalidSignature),
            Self::NoJwt | Self::Key(_) | Self::Subject => false,
        }
    }
}

/// Verifies tokens of one issuer.
pub struct JwtAuthenticator {
    /// The issuer of the tokens.
    issuer: String,
    /// The accepted audiences.
    audiences: Vec<String>,
    keys: KeySource,
}

/// The claims that are read after the signature is verified. Any claim may be missing or have
/// another type in the token.
#[derive(Debug, Deserialize)]
struct Claims {
    sub: String,
    #[serde(default)]
    exp: Option<serde_json::Value>,
    /// The claims of Kubernetes, with the pod.
    #[serde(rename = "kubernetes.io", default)]
    kubernetes: Option<serde_json::Value>,
}

impl JwtAuthenticator {
    /// An authenticator for the tokens of a rule.
    ///
    /// # Errors
    /// If the rule has no issuer or no audiences, or its keys are invalid.
    pub fn new(rule: JwtRule) -> Result<Self, JwtRuleError> {
        if rule.issuer.is_empty() || rule.audiences.is_empty() {
            return Err(JwtRuleError::Incomplete);
        }
        let keys = KeySource::new(&rule)?;
        Ok(Self {
            issuer: rule.issuer,
            audiences: rule.audiences,
            keys,
        })
    }

    /// The caller of a token: its service account.
    ///
    /// # Errors
    /// If the token is invalid. The error does not contain the token.
    pub async fn caller(&self, token: &str, snapshot: &MeshSnapshot) -> Result<Caller, TokenError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenError::NoJwt)?;
        let id = header.kid.as_deref();
        let keys = self.keys.candidates(id).await?;

        let rejection = match self.claims(token, header.alg, &keys) {
            Ok(claims) => return caller_of(&claims, snapshot),
            Err(rejection) => rejection,
        };
        if !rejection.is_of_the_key() {
            return Err(rejection);
        }

        match self.keys.replacements(id, &keys).await {
            Some(keys) => caller_of(&self.claims(token, header.alg, &keys)?, snapshot),
            None => Err(rejection),
        }
    }

    /// The claims of a token that one of these keys verifies.
    fn claims(
        &self,
        token: &str,
        algorithm: Algorithm,
        keys: &[Jwk],
    ) -> Result<Claims, TokenError> {
        let validation = self.validation(algorithm);
        let mut rejection = TokenError::Algorithm(algorithm);

        for key in keys {
            if !algorithms(key).contains(&algorithm) {
                continue;
            }
            let Ok(key) = DecodingKey::from_jwk(key) else {
                rejection = TokenError::UnsupportedKey;
                continue;
            };

            match jsonwebtoken::decode::<Claims>(token, &key, &validation) {
                Ok(token) => return Ok(token.claims),
                Err(error) => {
                    rejection = TokenError::Invalid(error);
                    if !rejection.is_of_the_key() {
                        break;
                    }
                }
            }
        }

        Err(rejection)
    }

    /// What a token must have besides a valid signature.
    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&self.audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation
    }
}

/// The caller of verified claims.
fn caller_of(claims: &Claims, snapshot: &MeshSnapshot) -> Result<Caller, TokenError> {
    let account = claims
        .sub
        .strip_prefix(SERVICE_ACCOUNT)
        .and_then(|account| account.split_once(':'));
    let Some((namespace, name)) = account else {
        return Err(TokenError::Subject);
    };

    let text = format!(
        "spiffe://{}/ns/{namespace}/sa/{name}",
        snapshot.trust_domain
    );
    let identity = Identity::parse(&text).map_err(|_| TokenError::Subject)?;
    let pod = claims
        .kubernetes
        .as_ref()
        .and_then(|claims| claims.get("pod"));

    let expires = claims
        .exp
        .as_ref()
        .and_then(super::token_review::expiry_of_claims);
    let expires = expires.and_then(|expires| {
        expires
            .checked_add(SignedDuration::from_secs(LEEWAY.cast_signed()))
            .ok()
    });

    Ok(Caller {
        identities: vec![identity],
        pod: pod.and_then(super::token_review::pod_of_claims),
        expires,
    })
}

/// The algorithms of a key. Symmetric keys are never accepted.
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

/// The text of a token error.
fn describe(error: &jsonwebtoken::errors::Error) -> String {
    let known = [
        (ErrorKind::ExpiredSignature, "it has expired"),
        (ErrorKind::ImmatureSignature, "it is not valid yet"),
        (ErrorKind::InvalidAudience, "it is for another audience"),
        (ErrorKind::InvalidIssuer, "it is from another issuer"),
        (ErrorKind::InvalidSignature, "its signature is invalid"),
    ];
    if let ErrorKind::MissingRequiredClaim(claim) = error.kind() {
        return format!("it has no claim {claim}");
    }
    let same =
        |kind: &ErrorKind| std::mem::discriminant(kind) == std::mem::discriminant(error.kind());
    let found = known.iter().find(|(kind, _)| same(kind));
    found
        .map_or("it cannot be parsed", |(_, words)| words)
        .to_owned()
}

impl fmt::Debug for JwtAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtAuthenticator")
            .field("issuer", &ShownUrl::new(&self.issuer))
            .finish_non_exhaustive()
    }
}
