//! Azure: the access token of the machine's managed identity.

use serde::Deserialize;

use super::TokenError;
use super::metadata_server::{MetadataServer, RequiredHeader, query_value};

/// The path of the token, with the version of the API.
const PATH: &str = "/metadata/identity/oauth2/token?api-version=2018-02-01";
const HEADER: RequiredHeader = RequiredHeader {
    name: "metadata",
    value: "true",
};

/// Access tokens for a resource.
#[derive(Clone, Debug)]
pub(super) struct Azure {
    pub(super) server: MetadataServer,
    /// The audience of the tokens: the URI or the id of an application that is registered in Entra.
    pub(super) resource: String,
    /// The client id of a user-assigned identity; empty is the machine's own.
    pub(super) client: String,
}

/// The fields that are read of a metadata server's response.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
}

impl Azure {
    /// Requests a token.
    pub(super) async fn fetch(&self) -> Result<String, TokenError> {
        let mut path = format!("{PATH}&resource={}", query_value(&self.resource));
        if !self.client.is_empty() {
            path.push_str("&client_id=");
            path.push_str(&query_value(&self.client));
        }

        let body = self.server.get(&path, HEADER).await?;
        let response: TokenResponse =
            serde_json::from_slice(&body).map_err(|_| TokenError::NoJwt)?;
        Ok(response.access_token)
    }
}
