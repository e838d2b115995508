//! Google Compute Engine: the identity token of the instance's service account.

use super::TokenError;
use super::metadata_server::{MetadataServer, RequiredHeader, query_value};

/// The path of the token.
const PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/identity";
const HEADER: RequiredHeader = RequiredHeader {
    name: "metadata-flavor",
    value: "Google",
};

/// Identity tokens for an audience.
#[derive(Clone, Debug)]
pub(super) struct Google {
    pub(super) server: MetadataServer,
    /// The audience of the tokens: the trust domain for pilot-agent.
    pub(super) audience: String,
}

impl Google {
    /// Requests a token with the claims of the instance.
    pub(super) async fn fetch(&self) -> Result<String, TokenError> {
        let audience = query_value(&self.audience);
        let path = format!("{PATH}?audience={audience}&format=full");
        let body = self.server.get(&path, HEADER).await?;
        let token = std::str::from_utf8(&body).map_err(|_| TokenError::NoJwt)?;
        Ok(token.trim().to_owned())
    }
}
