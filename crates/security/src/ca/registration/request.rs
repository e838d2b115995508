//! One CertificateSigningRequest, from its creation to its deletion.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use kube::api::{ObjectMeta, PostParams};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::objects::{CREATE_TIMEOUT, Deletion, random_name};
use super::{MIN_LIFETIME, PREFIX, Registration, RegistrationError};
use crate::ca::signer::is_rejection;
use navarch_api::names::Namespace;

impl Registration {
    /// Creates a CertificateSigningRequest, waits until this signer has signed it, and deletes it,
    /// also if this future is dropped. The approval names `whom` it is for; its permit is one of
    /// `namespace`. Returns the certificate chain.
    pub(super) async fn put(
        &self,
        request: &str,
        usages: &[&str],
        signer: &str,
        lifetime: Duration,
        whom: &str,
        namespace: Option<Namespace>,
    ) -> Result<Vec<u8>, RegistrationError> {
        let name = random_name(PREFIX).ok_or(RegistrationError::NoName)?;
        let object = CertificateSigningRequest {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.as_bytes().to_vec()),
                usages: Some(usages.iter().map(|usage| (*usage).to_owned()).collect()),
                signer_name: signer.to_owned(),
                expiration_seconds: i32::try_from(lifetime.max(MIN_LIFETIME).as_secs()).ok(),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };

        let permit = self.objects.permit(namespace).await;
        let permit = permit.map_err(|_| RegistrationError::Full)?;
        let (caller, outcome) = oneshot::channel();
        let work = self
            .clone()
            .carry_out(name, object, whom.to_owned(), caller);
        self.objects.complete(permit, work);

        outcome.await.unwrap_or(Err(RegistrationError::GivenUp))
    }

    /// Creates an object, hands what becomes of it to the caller, and deletes it, also if the
    /// caller gives up.
    async fn carry_out(
        self,
        name: String,
        object: CertificateSigningRequest,
        whom: String,
        mut caller: oneshot::Sender<Result<Vec<u8>, RegistrationError>>,
    ) {
        let params = PostParams::default();
        let made = self.api.create(&params, &object);
        let made = match timeout(CREATE_TIMEOUT, made).await {
            Ok(made) => made.map_err(RegistrationError::from),
            Err(_) => Err(RegistrationError::Unanswered),
        };

        if let Err(RegistrationError::Kubernetes(error)) = &made
            && is_rejection(error)
        {
            let _ = caller.send(made.map(|_| Vec::new()));
            return;
        }

        // After another failure it may exist.
        let is_made = made.is_ok();
        let outcome = match made {
            Ok(made) => tokio::select! {
                outcome = self.approve_and_wait(made, &whom) => outcome,
                () = caller.closed() => Err(RegistrationError::GivenUp),
            },
            Err(error) => Err(error),
        };

        let deleted = self.objects.delete(&name).await;
        let _ = caller.send(outcome);
        match deleted {
            Ok(Deletion::Deleted) => {}
            Ok(Deletion::Missing) if is_made => {}
            Ok(Deletion::Missing) | Err(_) => self.objects.delete_again(&name, is_made).await,
        }
    }
}
