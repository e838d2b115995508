//! Fault injection.

use navarch_proto::envoy::extensions::filters::common::fault::v3::FaultDelay;
use navarch_proto::envoy::extensions::filters::common::fault::v3::fault_delay::FaultDelaySecifier;
use navarch_proto::envoy::extensions::filters::http::fault::v3::fault_abort::ErrorType;
use navarch_proto::envoy::extensions::filters::http::fault::v3::{FaultAbort, HttpFault};

use super::fraction;
use navarch_api::istio::{Abort, Delay, HttpFaultInjection};

/// gRPC status codes by name, in the order of their numbers.
const GRPC_STATUSES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The configuration of Envoy's fault filter. Faults that Envoy does not support are skipped.
pub(super) fn injection(declared: &HttpFaultInjection) -> HttpFault {
    HttpFault {
        delay: declared.delay.as_ref().and_then(delay),
        abort: declared.abort.as_ref().and_then(abort),
        ..HttpFault::default()
    }
}

/// A fixed delay.
fn delay(declared: &Delay) -> Option<FaultDelay> {
    let fixed = declared.fixed_delay?;
    let percentage = match &declared.percentage {
        Some(percentage) => fraction::of_percent(percentage),
        None => fraction::of_hundred(u32::try_from(declared.percent).unwrap_or_default()),
    };
    Some(FaultDelay {
        percentage: Some(percentage),
        fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(fixed.into())),
    })
}

/// An HTTP or gRPC error.
fn abort(declared: &Abort) -> Option<FaultAbort> {
    let error_type = match (declared.http_status, &declared.grpc_status) {
        (Some(status), _) => ErrorType::HttpStatus(u32::try_from(status).unwrap_or_default()),
        (None, Some(name)) => ErrorType::GrpcStatus(grpc_status(name)),
        (None, None) => return None,
    };
    Some(FaultAbort {
        percentage: declared.percentage.as_ref().map(fraction::of_percent),
        error_type: Some(error_type),
        ..FaultAbort::default()
    })
}

/// The number of a gRPC status; 0 for unknown names, which validation rejects.
fn grpc_status(name: &str) -> u32 {
    let number = GRPC_STATUSES.iter().position(|known| *known == name);
    number
        .and_then(|number| u32::try_from(number).ok())
        .unwrap_or_default()
}
