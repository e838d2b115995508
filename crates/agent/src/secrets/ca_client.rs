//! The client of the CA's `istio.v1.auth.IstioCertificateService`, which istiod and Navarch serve.

use std::collections::BTreeMap;
use std::time::Duration;

use navarch_proto::istio::v1::auth::IstioCertificateRequest;
use navarch_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tonic::{Request, Status};

use crate::upstream::{Upstream, UpstreamError};

/// Timeout of a request.
const SIGN_TIMEOUT: Duration = Duration::from_secs(10);
/// The request metadata of the signer (`ISTIO_META_CERT_SIGNER`).
const SIGNER: &str = "CertSigner";

/// Sends CSRs to the CA with the workload's credentials; each request has a connection of its own.
#[derive(Clone, Debug)]
pub struct CaClient {
    /// The address and credentials of the CA.
    upstream: Upstream,
    /// The signer, if there are several; empty is the default.
    signer: String,
}

/// Errors of requesting a certificate.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// Connecting to the CA failed.
    #[error("failed to connect to the CA")]
    Upstream(#[from] UpstreamError),
    /// The CA rejected the request.
    #[error("the CA rejected the request")]
    Rejected(#[source] Box<Status>),
    /// The response has no certificate chain.
    #[error("the CA's response has no certificate chain with a root")]
    Empty,
}

impl CaClient {
    /// A client, not connected yet.
    #[must_use]
    pub fn new(upstream: Upstream, signer: String) -> Self {
        Self { upstream, signer }
    }

    /// Has a CSR signed: returns the chain in PEM, leaf first, the root last. Every request opens a
    /// new connection with the current roots and credentials, as requests are hours apart.
    ///
    /// # Errors
    /// If the CA is unreachable, rejects the request, or returns no chain.
    pub async fn sign(&self, csr: String, lifetime: Duration) -> Result<Vec<String>, CaError> {
        let channel = self.upstream.connect().await?;
        let signer = Value {
            kind: Some(Kind::StringValue(self.signer.clone())),
        };
        let metadata = Struct {
            fields: BTreeMap::from([(SIGNER.to_owned(), signer)]),
        };
        let mut request = Request::new(IstioCertificateRequest {
            csr,
            validity_duration: i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX),
            metadata: Some(metadata),
        });
        request.set_timeout(SIGN_TIMEOUT);

        self.upstream.sign(request.metadata_mut()).await?;
        let mut client = IstioCertificateServiceClient::new(channel);
        let answer = client
            .create_certificate(request)
            .await
            .map_err(|status| CaError::Rejected(Box::new(status)))?;
        let chain = answer.into_inner().cert_chain;

        if chain.len() < 2 {
            Err(CaError::Empty)
        } else {
            Ok(chain)
        }
    }
}
