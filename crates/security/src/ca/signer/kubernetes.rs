//! Failures of the API server, in which a signer's requests are objects.

use super::SignerError;
use navarch_kubernetes::InWords;

/// The API server's code if a client sends too many requests, or it is overloaded.
const TOO_MANY_REQUESTS: u16 = 429;
/// The API server's codes of its own failures begin here.
const SERVER_ERROR: u16 = 500;

/// The error of a failed request to the API server.
pub fn api_error(error: &kube::Error) -> SignerError {
    let is_unreachable = matches!(
        error,
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::Auth(_)
    );
    if is_unreachable {
        return SignerError::unreachable(error);
    }

    let kube::Error::Api(status) = error else {
        // Such as a response that is none of the API server's.
        return SignerError::unavailable(error);
    };
    if status.code == TOO_MANY_REQUESTS {
        SignerError::busy(&InWords(error).to_string())
    } else if status.code < SERVER_ERROR {
        SignerError::failed(&format!("the API server: {}", InWords(error)))
    } else {
        // It may be a webhook's, for some requests only.
        SignerError::unavailable(error)
    }
}

/// Whether the API server has answered, and not with a failure of its own: then nothing was created.
pub fn is_rejection(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code < SERVER_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16) -> SignerError {
        let status = serde_json::json!({
            "kind": "Status", "status": "Failure", "message": "no", "reason": "why", "code": code,
        });
        let status = serde_json::from_value(status).unwrap();
        api_error(&kube::Error::Api(status))
    }

    #[test]
    fn an_overloaded_api_server_is_asked_again() {
        assert!(matches!(of(429), SignerError::Busy(_)));
        assert!(matches!(of(403), SignerError::Failed(_)));
        assert!(matches!(of(503), SignerError::Unavailable(_)));

        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = api_error(&kube::Error::Service(Box::new(refused)));
        assert!(matches!(error, SignerError::Unreachable(_)), "{error}");
    }
}
