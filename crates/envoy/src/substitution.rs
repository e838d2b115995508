//! Envoy's format strings with command operators (`%NAME(...)%`), in headers and access logs:
//! whether Envoy accepts one.
//!
//! Envoy rejects all routes or the whole listener because of one unknown command.

/// The commands of Envoy 1.40, sorted, including those of its formatter extensions.
const COMMANDS: [&str; 164] = [
    "ACCESS_LOG_TYPE",
    "BYTES_RECEIVED",
    "BYTES_RETRANSMITTED",
    "BYTES_SENT",
    "CEL",
    "CLUSTER_METADATA",
    "COALESCE",
    "COMMON_DURATION",
    "CONNECTION_ID",
    "CONNECTION_TERMINATION_DETAILS",
    "CUSTOM_FLAGS",
    "DOWNSTREAM_CX_RTT",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "DOWNSTREAM_DETECTED_CLOSE_TYPE",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_LOCAL_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_HANDSHAKE_DURATION",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_HEADER_BYTES_SENT",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_CLOSE_REASON",
    "DOWNSTREAM_LOCAL_DNS_SAN",
    "DOWNSTREAM_LOCAL_EMAIL_SAN",
    "DOWNSTREAM_LOCAL_IP_SAN",
    "DOWNSTREAM_LOCAL_OTHERNAME_SAN",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_LOCAL_SUBJECT",
    "DOWNSTREAM_LOCAL_URI_SAN",
    "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_CERT_V_END",
    "DOWNSTREAM_PEER_CERT_V_START",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256",
    "DOWNSTREAM_PEER_CHAIN_SERIALS",
    "DOWNSTREAM_PEER_DNS_SAN",
    "DOWNSTREAM_PEER_EMAIL_SAN",
    "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_IP_SAN",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_ISSUER_SERIAL",
    "DOWNSTREAM_PEER_OTHERNAME_SAN",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_TLS_CIPHER",
    "DOWNSTREAM_TLS_GROUP",
    "DOWNSTREAM_TLS_SESSION_ID",
    "DOWNSTREAM_TLS_VERSION",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DOWNSTREAM_WIRE_BYTES_RECEIVED",
    "DOWNSTREAM_WIRE_BYTES_SENT",
    "DURATION",
    "DYNAMIC_METADATA",
    "DYNAMIC_MODULE",
    "EMIT_TIME",
    "EMIT_TIME_LOCAL",
    "ENVIRONMENT",
    "FILE_CONTENT",
    "FILTER_CHAIN_NAME",
    "FILTER_STATE",
    "GENERIC_SECRET",
    "GRPC_STATUS",
    "GRPC_STATUS_NUMBER",
    "HOSTNAME",
    "LOCAL_REPLY_BODY",
    "METADATA",
    "PATH",
    "PER_REQUEST_STATE",
    "PROTOCOL",
    "QUERY_PARAM",
    "QUERY_PARAMS",
    "REQ",
    "REQUESTED_SERVER_NAME",
    "REQUEST_DURATION",
    "REQUEST_HEADERS_BYTES",
    "REQUEST_TX_DURATION",
    "REQ_WITHOUT_QUERY",
    "RESP",
    "RESPONSE_CODE",
    "RESPONSE_CODE_DETAILS",
    "RESPONSE_DURATION",
    "RESPONSE_FLAGS",
    "RESPONSE_FLAGS_LONG",
    "RESPONSE_HEADERS_BYTES",
    "RESPONSE_TRAILERS_BYTES",
    "RESPONSE_TX_DURATION",
    "RESP_WITHOUT_QUERY",
    "ROUNDTRIP_DURATION",
    "ROUTE_NAME",
    "SECRET",
    "SPAN_ID",
    "START_TIME",
    "START_TIME_LOCAL",
    "STREAM_ID",
    "STREAM_INFO_REQ",
    "TLS_JA3_FINGERPRINT",
    "TLS_JA4_FINGERPRINT",
    "TRACE_ID",
    "TRAILER",
    "TYPED_CEL",
    "UNIQUE_ID",
    "UPSTREAM_CLUSTER",
    "UPSTREAM_CLUSTER_RAW",
    "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_CONNECTION_IDS_ATTEMPTED",
    "UPSTREAM_CONNECTION_POOL_READY_DURATION",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "UPSTREAM_DETECTED_CLOSE_TYPE",
    "UPSTREAM_FILTER_STATE",
    "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT",
    "UPSTREAM_HOST",
    "UPSTREAM_HOSTS_ATTEMPTED",
    "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME",
    "UPSTREAM_HOST_NAMES_ATTEMPTED",
    "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME_WITHOUT_PORT",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_LOCAL_CLOSE_REASON",
    "UPSTREAM_LOCAL_DNS_SAN",
    "UPSTREAM_LOCAL_IP_SAN",
    "UPSTREAM_LOCAL_PORT",
    "UPSTREAM_LOCAL_SUBJECT",
    "UPSTREAM_LOCAL_URI_SAN",
    "UPSTREAM_METADATA",
    "UPSTREAM_PEER_CERT",
    "UPSTREAM_PEER_CERT_V_END",
    "UPSTREAM_PEER_CERT_V_START",
    "UPSTREAM_PEER_DNS_SAN",
    "UPSTREAM_PEER_IP_SAN",
    "UPSTREAM_PEER_ISSUER",
    "UPSTREAM_PEER_SUBJECT",
    "UPSTREAM_PEER_URI_SAN",
    "UPSTREAM_PROTOCOL",
    "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_REMOTE_PORT",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT",
    "UPSTREAM_SERVER_NAME",
    "UPSTREAM_TLS_CIPHER",
    "UPSTREAM_TLS_GROUP",
    "UPSTREAM_TLS_SESSION_ID",
    "UPSTREAM_TLS_VERSION",
    "UPSTREAM_TRANSPORT_FAILURE_REASON",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
    "VIRTUAL_CLUSTER_NAME",
];

/// Commands that require parameters.
const WITH_PARAMETERS: [&str; 3] = ["REQ", "RESP", "TRAILER"];

/// Checks whether Envoy accepts a format.
pub(crate) fn check(format: &str) -> Result<(), String> {
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(after) = after.strip_prefix('%') {
            rest = after;
            continue;
        }
        rest = command(after)?;
    }
    Ok(())
}

/// Parses a command operator after its percent sign; returns the rest.
fn command(text: &str) -> Result<&str, String> {
    let length = text
        .bytes()
        .take_while(|sign| sign.is_ascii_uppercase() || sign.is_ascii_digit() || *sign == b'_')
        .count();
    let (name, after) = text.split_at(length);
    let shown = || text.chars().take(30).collect::<String>();

    if name.is_empty() {
        return Err(format!(
            "no command operator begins at \"%{}\"; write a percent sign as %%",
            shown()
        ));
    }

    let rest = match after.strip_prefix('(') {
        Some(parameters) => parameters
            .match_indices(')')
            .find_map(|(at, _)| end(parameters.get(at + 1..)?))
            .ok_or_else(|| format!("the command operator at \"%{}\" is not terminated", shown()))?,
        None => end(after)
            .ok_or_else(|| format!("the command operator at \"%{}\" is not terminated", shown()))?,
    };

    if COMMANDS.binary_search(&name).is_err() {
        return Err(format!("%{name}% is not a command operator of Envoy"));
    }

    if WITH_PARAMETERS.contains(&name) && !after.starts_with('(') {
        return Err(format!("%{name}% needs a name in parentheses"));
    }

    Ok(rest)
}

/// The text after the end of a command, with its length if it has one; `None` if the command does
/// not end here.
fn end(text: &str) -> Option<&str> {
    let rest = match text.strip_prefix(':') {
        Some(length) => length.trim_start_matches(|sign: char| sign.is_ascii_digit()),
        None => text,
    };
    rest.strip_prefix('%')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_for_the_search() {
        assert!(COMMANDS.is_sorted());
    }

    #[test]
    fn values_that_envoy_accepts_pass() {
        for format in [
            "",
            "plain",
            "100%%",
            "%REQ(:METHOD)% %START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%",
            "%REQ(X-A?X-B):20%%PROTOCOL%",
            "%DYNAMIC_METADATA(a:b:c):7%",
            "%CEL(request.headers['a'].size() > 2)%",
        ] {
            assert_eq!(check(format), Ok(()), "{format}");
        }
    }

    #[test]
    fn values_that_envoy_rejects_fail() {
        for format in [
            "100% x",
            "%",
            "%NOTHING%",
            "%REQ%",
            "%REQ(a%",
            "%PROTOCOL",
            "%lower%",
            "% %",
        ] {
            assert!(check(format).is_err(), "{format}");
        }
    }
}
