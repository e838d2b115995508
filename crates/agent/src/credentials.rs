//! Tokens that authenticate the workload to the CA and the control plane.
//!
//! ```text
//! CREDENTIAL_FETCHER_TYPE ─▶ file, or metadata server of the cloud ─▶ CA
//! XDS_AUTH_PROVIDER       ─▶ the same, unless it names another ─────▶ control plane
//! ```
//!
//! A file is read again for every call. A token of a metadata server is kept until shortly before
//! it expires.

mod azure;
mod cached;
mod google;
mod identity_token;
mod metadata_server;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::StatusCode;

use crate::Clock;
use crate::local_http::HttpError;
use crate::variables::Variables;
use azure::Azure;
use google::Google;
use metadata_server::MetadataServer;
use navarch_base::regular_file;

pub use cached::MetadataTokens;

/// Maximum size of a token file and of a response with a token. Tokens have about 1 KiB.
const MAX_TOKEN_BYTES: u32 = 16 << 10;

/// The file of the workload's token, which the kubelet issues for the audience of the control plane.
const TOKEN_FILE: &str = "./var/run/secrets/tokens/istio-token";
/// The file of the token for the API server that every pod has (`JWT_POLICY=first-party-jwt`).
const FIRST_PARTY_FILE: &str = "./var/run/secrets/kubernetes.io/serviceaccount/token";

/// The `JWT_POLICY` of tokens in [`TOKEN_FILE`].
const THIRD_PARTY: &str = "third-party-jwt";
/// The `JWT_POLICY` of tokens in [`FIRST_PARTY_FILE`].
const FIRST_PARTY: &str = "first-party-jwt";
/// The `JWT_POLICY` of workloads that authenticate by certificates alone.
const NO_TOKEN: &str = "none";

/// The type of the token in a file.
const JWT: &str = "JWT";
/// The type of an identity token of Google's metadata server.
const GOOGLE: &str = "GoogleComputeEngine";
/// The type of an access token of Azure's metadata server.
const AZURE: &str = "AzureVirtualMachine";
/// The type that would be a token of AWS, which has none.
const AWS: &str = "AmazonEC2";
/// The `XDS_AUTH_PROVIDER` of pilot-agent for Google's tokens.
const GCP: &str = "gcp";

/// Where tokens come from.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// No token is sent.
    None,
    /// A file. If it is missing or empty, no token is sent.
    File(PathBuf),
    /// The metadata server of a cloud. Without a token, the call fails.
    Metadata(MetadataTokens),
}

/// The token sources of both servers.
#[derive(Clone, Debug)]
pub struct TokenSources {
    /// Authenticates requests to the CA.
    pub ca: TokenSource,
    /// Authenticates streams to the control plane.
    pub control_plane: TokenSource,
}

/// Errors of the settings.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The variable names no type of token.
    #[error("{variable}={value:?} is unknown: set it to {JWT}, {GOOGLE} or {AZURE}, or unset it")]
    Unknown {
        /// The variable with the type.
        variable: &'static str,
        /// What it is set to.
        value: String,
    },
    /// `JWT_POLICY` has another value.
    #[error(
        "JWT_POLICY={0:?} is unknown: set it to {THIRD_PARTY}, {FIRST_PARTY} or {NO_TOKEN}, or unset it"
    )]
    Policy(String),
    /// AWS issues no token that a control plane can verify.
    #[error(
        "{variable}={AWS} is not supported, because the identity document of an EC2 instance is \
         not a JWT: unset it, and keep a JWT of an OIDC issuer in {TOKEN_FILE}, or certificates \
         in PROV_CERT"
    )]
    Aws {
        /// The variable that names AWS.
        variable: &'static str,
    },
    /// The address of a metadata server is invalid.
    #[error("{variable}={value:?} is not the address of an HTTP server")]
    Address {
        /// The variable with the address.
        variable: &'static str,
        /// What it is set to.
        value: String,
    },
}

/// Errors of obtaining a token from a metadata server. The texts do not contain the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// There is no complete response, or it is too large.
    #[error("the request to the metadata server at {server} failed")]
    Request {
        /// Its `host:port`.
        server: String,
        /// The error of the request.
        source: HttpError,
    },
    /// The server has no token, as for a machine without a service account.
    #[error("the metadata server at {server} answered with HTTP status {status}")]
    Status {
        /// Its `host:port`.
        server: String,
        /// The status, which may be a redirect: none is followed.
        status: StatusCode,
    },
    /// The response is something else.
    #[error("the response of the metadata server is not a JWT with an expiry time")]
    NoJwt,
    /// The token cannot be used any more.
    #[error("the metadata server returned an expired token")]
    Expired,
    /// After a failure, the server is not asked again at once.
    #[error("the last request to the metadata server failed; it is asked again in {0:?}")]
    Waiting(Duration),
}

/// The type of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenType {
    File,
    Google,
    Azure,
}

/// A metadata server with the request for a token.
#[derive(Clone, Debug)]
enum Cloud {
    Google(Google),
    Azure(Azure),
}

impl TokenSource {
    /// The current token, if there is one. A rebooted machine may have lost that of a file, and
    /// then uses its certificate only.
    ///
    /// # Errors
    /// If the metadata server has no token.
    pub async fn token(&self) -> Result<Option<String>, TokenError> {
        match self {
            Self::None => Ok(None),
            Self::File(path) => Ok(token_in_file(path).await),
            Self::Metadata(tokens) => tokens.token().await.map(Some),
        }
    }
}

/// Where the token of a pod is, by `JWT_POLICY`.
fn source_of_policy(policy: &str) -> Result<TokenSource, CredentialError> {
    match policy {
        "" | THIRD_PARTY => Ok(TokenSource::File(TOKEN_FILE.into())),
        FIRST_PARTY => Ok(TokenSource::File(FIRST_PARTY_FILE.into())),
        NO_TOKEN => Ok(TokenSource::None),
        other => Err(CredentialError::Policy(other.to_owned())),
    }
}

/// The token in a file, if there is one.
async fn token_in_file(path: &Path) -> Option<String> {
    let read = regular_file::read_async(path, MAX_TOKEN_BYTES.into()).await;
    let read = read.inspect_err(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!(path = %path.display(), %error, "failed to read the token");
        }
    });
    let token = String::from_utf8(read.ok()?)
        .inspect_err(|_| tracing::warn!(path = %path.display(), "the token is not UTF-8 text"))
        .ok()?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}

impl TokenSources {
    /// The sources that the variables select.
    ///
    /// # Errors
    /// If a type or policy is unknown or not supported, or the address of a metadata server is invalid.
    pub fn from_variables(variables: &Variables, clock: Clock) -> Result<Self, CredentialError> {
        let fetcher = variables.text("CREDENTIAL_FETCHER_TYPE");
        let of_ca = TokenType::parse("CREDENTIAL_FETCHER_TYPE", fetcher)?;
        let of_control_plane = match variables.text("XDS_AUTH_PROVIDER") {
            "" => of_ca,
            GCP => TokenType::Google,
            other => TokenType::parse("XDS_AUTH_PROVIDER", other)?,
        };

        // Both share the tokens of one source.
        let ca = of_ca.source(variables, clock)?;
        let control_plane = if of_control_plane == of_ca {
            ca.clone()
        } else {
            of_control_plane.source(variables, clock)?
        };

        Ok(Self { ca, control_plane })
    }
}

impl TokenType {
    /// Parses the value of a variable.
    fn parse(variable: &'static str, value: &str) -> Result<Self, CredentialError> {
        match value {
            "" | JWT => Ok(Self::File),
            GOOGLE => Ok(Self::Google),
            AZURE => Ok(Self::Azure),
            AWS => Err(CredentialError::Aws { variable }),
            other => Err(CredentialError::Unknown {
                variable,
                value: other.to_owned(),
            }),
        }
    }

    /// The source of such tokens.
    fn source(self, variables: &Variables, clock: Clock) -> Result<TokenSource, CredentialError> {
        let audience = Some(variables.text("NAVARCH_CREDENTIAL_AUDIENCE"))
            .filter(|audience| !audience.is_empty())
            .map_or_else(
                || variables.text_or("TRUST_DOMAIN", "cluster.local"),
                str::to_owned,
            );

        let cloud = match self {
            Self::File => return source_of_policy(variables.text("JWT_POLICY")),
            Self::Google => Cloud::Google(Google {
                server: server("GCE_METADATA_HOST", variables.text("GCE_METADATA_HOST"))?,
                audience,
            }),
            Self::Azure => Cloud::Azure(Azure {
                server: server(
                    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
                    variables.text("AZURE_POD_IDENTITY_AUTHORITY_HOST"),
                )?,
                resource: audience,
                client: variables.text("AZURE_CLIENT_ID").to_owned(),
            }),
        };

        Ok(TokenSource::Metadata(MetadataTokens::new(cloud, clock)))
    }
}

/// The metadata server at the address in a variable; the clouds' own if it is empty.
fn server(variable: &'static str, value: &str) -> Result<MetadataServer, CredentialError> {
    if value.is_empty() {
        return Ok(MetadataServer::standard());
    }
    MetadataServer::parse(value).ok_or_else(|| CredentialError::Address {
        variable,
        value: value.to_owned(),
    })
}

impl Cloud {
    /// Requests a token.
    async fn fetch(&self) -> Result<String, TokenError> {
        match self {
            Self::Google(google) => google.fetch().await,
            Self::Azure(azure) => azure.fetch().await,
        }
    }
}

#[cfg(test)]
mod tests;
