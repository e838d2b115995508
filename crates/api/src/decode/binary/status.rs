//! `metav1.Status`: the error of an API server.

use prost::Message;

use crate::decode::stored::{ServerStatus, StatusCause, StatusDetails};

/// `metav1.Status`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(string, tag = "3")]
    message: String,
    #[prost(message, optional, tag = "5")]
    details: Option<Details>,
    #[prost(int32, tag = "6")]
    code: i32,
}

/// `metav1.StatusDetails`.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(message, repeated, tag = "4")]
    causes: Vec<Cause>,
    #[prost(int32, tag = "5")]
    retry_after_seconds: i32,
}

/// `metav1.StatusCause`.
#[derive(Clone, PartialEq, Message)]
struct Cause {
    #[prost(string, tag = "1")]
    reason: String,
}

impl From<Status> for ServerStatus {
    fn from(status: Status) -> Self {
        let details = status.details.map(|details| StatusDetails {
            causes: details
                .causes
                .into_iter()
                .map(|cause| StatusCause {
                    reason: cause.reason,
                })
                .collect(),
            retry_after_seconds: u32::try_from(details.retry_after_seconds).unwrap_or_default(),
        });
        Self {
            code: u16::try_from(status.code).unwrap_or_default(),
            message: status.message,
            details,
        }
    }
}
