//! Requests for a token (RFC 8693, section 2.1), and the codes of errors (section 2.2.2).

use navarch_base::digest::sha256_hex;

use super::form;
use super::secret::Secret;

/// The only grant type of the service.
pub(super) const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// The type of JSON Web Tokens, such as those of Kubernetes.
pub(super) const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
/// The type of OAuth access tokens.
pub(super) const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Maximum number of bytes of a parameter that is not a token.
const MAX_BYTES: usize = 2048;
/// Maximum number of audiences, and of resources.
const MAX_TARGETS: usize = 8;

/// A valid request for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenRequest {
    pub(super) subject_token: Secret,
    pub(super) subject_token_type: String,
    /// The party that acts for the subject, if it is another.
    pub(super) actor: Option<Actor>,
    /// Logical names of the services that the token is for.
    pub(super) audiences: Vec<String>,
    /// The URIs of `resource`, for which the token is.
    pub(super) resources: Vec<String>,
    /// Scopes with spaces between them.
    pub(super) scope: Option<String>,
    pub(super) requested_token_type: Option<String>,
}

/// The token of an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Actor {
    pub(super) token: Secret,
    pub(super) token_type: String,
}

/// The codes of errors that clients receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    /// The request or one of its tokens is invalid or unacceptable.
    InvalidRequest,
    /// There is no token for the target.
    InvalidTarget,
    /// A scope is unknown or not allowed.
    InvalidScope,
    /// The grant type is not that of a token exchange.
    UnsupportedGrantType,
}

/// Errors of a request. None quotes it: it contains tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the method must be POST")]
    Method,
    #[error("the content type must be application/x-www-form-urlencoded")]
    ContentType,
    #[error("the body is incomplete or too large")]
    Body,
    #[error("the body is not a valid form, or has too many parameters")]
    Form,
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{0} is repeated too often")]
    Repeated(&'static str),
    #[error("{0} is too long")]
    TooLong(&'static str),
    #[error("grant_type must be {GRANT_TYPE}")]
    GrantType,
    #[error("resource must be an absolute URI without a fragment")]
    Resource,
    #[error("actor_token and actor_token_type require each other")]
    Actor,
    #[error("subject_token_type must be {JWT}")]
    SubjectTokenType,
}

impl ErrorCode {
    /// The code as clients receive it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidTarget => "invalid_target",
            Self::InvalidScope => "invalid_scope",
            Self::UnsupportedGrantType => "unsupported_grant_type",
        }
    }

    /// The code for an error of the token server. Errors about the agent's own credentials become
    /// one that no client could correct.
    pub(super) fn of_server(code: &str) -> Self {
        match code {
            "invalid_request" | "invalid_grant" => Self::InvalidRequest,
            "invalid_scope" => Self::InvalidScope,
            _ => Self::InvalidTarget,
        }
    }
}

impl RequestError {
    /// The code for the client.
    pub(super) fn code(self) -> ErrorCode {
        match self {
            Self::GrantType => ErrorCode::UnsupportedGrantType,
            Self::Method
            | Self::ContentType
            | Self::Body
            | Self::Form
            | Self::Missing(_)
            | Self::Repeated(_)
            | Self::TooLong(_)
            | Self::Resource
            | Self::Actor
            | Self::SubjectTokenType => ErrorCode::InvalidRequest,
        }
    }
}

impl TokenRequest {
    /// Parses the body of a request. Parameters that are empty count as omitted, and unknown ones
    /// are ignored (RFC 6749, section 3.2).
    pub(super) fn parse(body: &[u8]) -> Result<Self, RequestError> {
        let mut parameters = Parameters(form::parse(body).ok_or(RequestError::Form)?);

        let grant_type = parameters.required("grant_type")?;
        if grant_type != GRANT_TYPE {
            return Err(RequestError::GrantType);
        }

        let subject_token = Secret::new(parameters.required("subject_token")?);
        let subject_token_type = parameters.short("subject_token_type")?;
        let actor = match (
            parameters.one("actor_token")?,
            parameters.short("actor_token_type")?,
        ) {
            (Some(token), Some(token_type)) => Some(Actor {
                token: Secret::new(token),
                token_type,
            }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(RequestError::Actor),
        };

        let resources = parameters.several("resource")?;
        if !resources.iter().all(|resource| is_absolute_uri(resource)) {
            return Err(RequestError::Resource);
        }

        Ok(Self {
            subject_token,
            subject_token_type: subject_token_type
                .ok_or(RequestError::Missing("subject_token_type"))?,
            actor,
            audiences: parameters.several("audience")?,
            resources,
            scope: parameters.short("scope")?,
            requested_token_type: parameters.short("requested_token_type")?,
        })
    }

    /// The target in words: audiences and resources.
    pub(super) fn target(&self) -> String {
        let all = self.audiences.iter().chain(&self.resources);
        all.map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// A digest of all parameters. Requests with the same digest can share a token; it includes the
    /// subject token, so that no client gets what another's token was exchanged for.
    pub(super) fn digest(&self) -> String {
        let actor = self.actor.as_ref();
        let parts = [
            Some(self.subject_token.expose()),
            Some(self.subject_token_type.as_str()),
            actor.map(|actor| actor.token.expose()),
            actor.map(|actor| actor.token_type.as_str()),
            self.scope.as_deref(),
            self.requested_token_type.as_deref(),
        ];
        let parts = parts.map(Option::unwrap_or_default);
        let audiences = self
            .audiences
            .iter()
            .map(|text| ("audience", text.as_str()));
        let resources = self
            .resources
            .iter()
            .map(|text| ("resource", text.as_str()));
        let all = parts.into_iter().map(|text| ("", text));
        sha256_hex(form::encode(all.chain(audiences).chain(resources)))
    }
}

/// The parameters of a form that were not taken yet.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Takes all values of a parameter that are not empty.
    fn take(&mut self, name: &str) -> Vec<String> {
        self.0
            .extract_if(.., |(other, _)| other.as_str() == name)
            .map(|(_, value)| value)
            .filter(|value| !value.is_empty())
            .collect()
    }

    /// The value of a parameter that may occur once.
    fn one(&mut self, name: &'static str) -> Result<Option<String>, RequestError> {
        let mut values = self.take(name);
        let value = values.pop();
        if values.is_empty() {
            Ok(value)
        } else {
            Err(RequestError::Repeated(name))
        }
    }

    fn required(&mut self, name: &'static str) -> Result<String, RequestError> {
        self.one(name)?.ok_or(RequestError::Missing(name))
    }

    /// As [`one`](Self::one), for a parameter that is not a token.
    fn short(&mut self, name: &'static str) -> Result<Option<String>, RequestError> {
        let value = self.one(name)?;
        if value.as_ref().is_some_and(|value| value.len() > MAX_BYTES) {
            return Err(RequestError::TooLong(name));
        }
        Ok(value)
    }

    /// The values of a parameter that may be repeated.
    fn several(&mut self, name: &'static str) -> Result<Vec<String>, RequestError> {
        let values = self.take(name);
        if values.len() > MAX_TARGETS {
            Err(RequestError::Repeated(name))
        } else if values.iter().any(|value| value.len() > MAX_BYTES) {
            Err(RequestError::TooLong(name))
        } else {
            Ok(values)
        }
    }
}

/// Whether a text is an absolute URI (RFC 3986, section 4.3).
fn is_absolute_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && !rest.is_empty()
        && rest
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
}
