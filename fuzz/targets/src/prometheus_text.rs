//! Responses of an application to a scrape: the first line of an input holds headers, the rest the
//! text.

use bytes::Bytes;
use navarch::agent::status_server::exposition::{
    OF_APPLICATIONS, OF_ENVOY, accepted, announced, whole_lines,
};

/// Merges one response.
///
/// # Panics
/// If the output is longer than the input, or other metrics could not follow it.
pub fn run(data: &[u8]) {
    let end = data
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(data.len());
    let (head, body) = data.split_at(end);
    let head = String::from_utf8_lossy(head);

    for allowed in [OF_APPLICATIONS, OF_ENVOY] {
        let accept = accepted(&head, allowed);
        assert!(!accept.is_empty());
        assert!(
            !accept.contains("protobuf"),
            "the `Accept` header excludes formats that cannot be merged"
        );
    }

    assert!(announced(&head).ends_with("charset=utf-8"));
    let body = Bytes::copy_from_slice(body);
    let lines = whole_lines(&body);
    assert!(lines.is_empty() || lines.ends_with(b"\n"));
    assert!(lines.len() <= body.len() + 1);
}
