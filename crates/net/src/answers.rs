//! HTTP responses, charged to the client until it has read them.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use super::budget::{Budget, Charge, Full};

/// Maximum charge of one response, so that a client without other charges gets a response of any
/// size.
const MAX_CHARGE: usize = 4;

/// Bytes that are charged until the last of them is sent.
struct Charged {
    bytes: Bytes,
    /// Released when dropped.
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Charges a response to the client. It stays charged while any part of it waits to be sent, in any
/// buffer.
///
/// # Errors
/// If the client has not read enough of its earlier responses.
pub fn charge(answers: &Arc<Budget>, peer: IpAddr, bytes: Bytes) -> Result<Bytes, Full> {
    let charge = answers.charge(peer, bytes.len().min(answers.total() / MAX_CHARGE))?;
    Ok(Bytes::from_owner(Charged {
        bytes,
        _charge: charge,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_charged_until_all_its_parts_are_dropped() {
        let answers = Budget::new(1000);
        let peer = IpAddr::from([10, 0, 0, 1]);
        let mut first = charge(&answers, peer, vec![1; 200].into()).unwrap();
        let rest = first.split_off(150);
        drop(first);
        assert_eq!((rest.len(), answers.held()), (50, 200));
        let huge = charge(&answers, peer, vec![1; 5000].into()).unwrap();
        assert_eq!(answers.held(), 450);
        assert_eq!(
            charge(&answers, peer, vec![1; 100].into()).unwrap_err(),
            Full
        );
        assert!(charge(&answers, IpAddr::from([10, 0, 0, 2]), vec![1; 100].into()).is_ok());
        drop((rest, huge));
        assert_eq!(answers.held(), 0);
    }
}
