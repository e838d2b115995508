//! gRPC statuses of signers as errors.

use std::error::Error;
use std::io;

use tonic::{Code, ConnectError, Status};

use super::SignerError;

/// The error of a failed call.
pub fn call_error(status: &Status) -> SignerError {
    // Errors of the connection have a source, statuses of the signer have none.
    if let Some(source) = status.source() {
        return match has_no_connection(source) {
            true => SignerError::unreachable(source),
            // A signer may end the connection because of this request.
            false => SignerError::unavailable(source),
        };
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

/// Whether a call failed because there was no connection to send it on. A connection that is not
/// established in time is an I/O error without [`ConnectError`].
fn has_no_connection(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        let is_late = cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
        if is_late || cause.is::<ConnectError>() {
            return true;
        }
        next = cause.source();
    }
    false
}
