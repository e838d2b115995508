//! gRPC statuses of signers as errors.

use std::error::Error;

use tonic::{Code, Status};

use super::SignerError;

/// The error of a failed call.
pub fn call_error(status: &Status) -> SignerError {
    // Errors of the connection have a source, statuses of the signer have none.
    if let Some(source) = status.source() {
        return SignerError::unavailable(source);
    }

    let code = status.code();
    if code == Code::Unavailable {
        SignerError::unavailable(status)
    } else if matches!(
        code,
        Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted
    ) {
        SignerError::busy(status.message())
    } else if matches!(code, Code::PermissionDenied | Code::Unauthenticated) {
        SignerError::denied(status.message())
    } else {
        SignerError::failed(&format!("{code:?}: {}", status.message()))
    }
}
