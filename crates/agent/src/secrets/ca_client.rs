//! The client of the CA: `istio.v1.auth.IstioCertificateService`, as istiod and Navarch serve it.

use std::collections::BTreeMap;
use std::time::Duration;

use navarch_proto::istio::v1::auth::IstioCertificateRequest;
use navarch_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tonic::{Request, Status};

use crate::upstream::{Upstream, UpstreamError};

/// How long the CA may take to answer.
const SIGN_TIMEOUT: Duration = Duration::from_secs(10);
/// Metadata of a request: who of several is to sign (`ISTIO_META_CERT_SIGNER`).
const SIGNER: &str = "CertSigner";

/// Asks the CA.
#[derive(Clone, Debug)]
pub struct CaClient {
    /// The way to it.
    upstream: Upstream,
    /// Who of several is to sign; empty is the default.
    signer: String,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The CA cannot be reached or called.
    #[error("failed to connect to the CA")]
    Upstream(#[from] UpstreamError),
    /// The CA refuses.
    #[error("the CA rejected the request")]
    Refused(#[source] Box<Status>),
    /// Its answer holds no chain.
    #[error("the CA's response has no certificate chain with a root")]
    Empty,
}

impl CaClient {
    /// A client; nothing is connected yet.
    #[must_use]
    pub fn new(upstream: Upstream, signer: String) -> Self {
        Self { upstream, signer }
    }

    /// Has a request signed: the chain in PEM, leaf first, the root last. A connection is made for every request, by the
    /// roots and the proof of that moment: they are hours apart.
    ///
    /// # Errors
    /// When the CA cannot be reached, refuses, or answers without a chain.
    pub async fn sign(&self, csr: String, lifetime: Duration) -> Result<Vec<String>, CaError> {
        let channel = self.upstream.connect().await?;
        let signer = Value { kind: Some(Kind::StringValue(self.signer.clone())) };
        let metadata = Struct { fields: BTreeMap::from([(SIGNER.to_owned(), signer)]) };
        let mut request = Request::new(IstioCertificateRequest {
            csr,
            validity_duration: i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX),
            metadata: Some(metadata),
        });
        request.set_timeout(SIGN_TIMEOUT);
        self.upstream.sign(request.metadata_mut()).await?;
        let mut client = IstioCertificateServiceClient::new(channel);
        let answer = client.create_certificate(request).await.map_err(|status| CaError::Refused(Box::new(status)))?;
        let chain = answer.into_inner().cert_chain;
        if chain.len() < 2 { Err(CaError::Empty) } else { Ok(chain) }
    }
}
