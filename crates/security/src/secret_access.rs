//! Which service accounts may read the secrets of their namespace: those that the API server lets
//! list them.
//!
//! Agrees with `pilot/pkg/credentials/kube`: positive results are cached for five minutes, negative
//! ones for one.

mod reviews;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;

use super::api_server::{ApiServer, ReviewError};
use navarch_api::object::NamespacedName;

pub use reviews::{AccessRequest, AccountKey, Reviewers, run};

/// How long a positive result is cached.
const KEPT_YES: Duration = Duration::from_secs(300);
/// How long a negative result or a failed review is cached.
const KEPT_NO: Duration = Duration::from_secs(60);
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// A pending result; an error means that the review failed.
pub type AccessFuture<'a> = Pin<Box<dyn Future<Output = Result<bool, ReviewError>> + Send + 'a>>;

/// Reviews the permissions of service accounts.
pub trait AccessReviewer: Send + Sync + 'static {
    /// Whether a service account may list the secrets of its namespace.
    fn may_list_secrets<'a>(&'a self, account: &'a NamespacedName) -> AccessFuture<'a>;
}

impl AccessReviewer for ApiServer {
    fn may_list_secrets<'a>(&'a self, account: &'a NamespacedName) -> AccessFuture<'a> {
        Box::pin(async move {
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    resource_attributes: Some(ResourceAttributes {
                        namespace: Some(account.namespace.to_string()),
                        verb: Some("list".to_owned()),
                        resource: Some("secrets".to_owned()),
                        ..ResourceAttributes::default()
                    }),
                    user: Some(format!(
                        "system:serviceaccount:{}:{}",
                        account.namespace, account.name
                    )),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };

            let params = PostParams::default();
            let reviews = self.reviews::<SubjectAccessReview>();
            let result =
                tokio::time::timeout(REVIEW_TIMEOUT, reviews.create(&params, &review)).await;
            let answer = result.map_err(|_| ReviewError::TimedOut)??;

            Ok(answer.status.is_some_and(|status| status.allowed))
        })
    }
}
