//! Requests of both protocols of discovery, as bytes from the wire.

use navarch::xds::{Protocol, check_first_request};

/// Reads one request as the first of a stream, in both protocols.
pub fn run(data: &[u8]) {
    for protocol in [Protocol::StateOfTheWorld, Protocol::Delta] {
        let _ = check_first_request(protocol, data);
    }
}
