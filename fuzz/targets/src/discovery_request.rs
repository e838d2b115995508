//! Encoded discovery requests, of the state-of-the-world and the delta protocol.

use navarch::xds::{Protocol, check_first_request};

/// Handles one request as the first of a stream, in both protocols.
pub fn run(data: &[u8]) {
    for protocol in [Protocol::StateOfTheWorld, Protocol::Delta] {
        let _ = check_first_request(protocol, data);
    }
}
