//! Rules for injected faults.

use super::Verdict;
use super::http_action::http_status;
use super::name::optional_duration;
use super::path::Path;
use crate::istio::{Abort, Delay, HttpFaultInjection, Percent};

/// The names of gRPC status codes.
const GRPC_STATUSES: [&str; 17] = [
    "ABORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OK",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "UNKNOWN",
];

/// Validates injected faults.
pub(super) fn fault(verdict: &mut Verdict, at: &Path<'_>, fault: Option<&HttpFaultInjection>) {
    let Some(HttpFaultInjection { delay, abort }) = fault else {
        return;
    };
    if delay.is_none() && abort.is_none() {
        verdict.error(at, "is empty; set delay or abort");
    }
    if let Some(found) = abort {
        validate_abort(verdict, &at.field("abort"), found);
    }
    if let Some(found) = delay {
        validate_delay(verdict, &at.field("delay"), found);
    }
}

/// Validates an injected error.
fn validate_abort(verdict: &mut Verdict, at: &Path<'_>, abort: &Abort) {
    let Abort {
        http_status: http,
        grpc_status: grpc,
        http2_error,
        percentage,
    } = abort;

    share(verdict, &at.field("percentage"), percentage.as_ref());
    let kinds = [http.is_some(), grpc.is_some(), http2_error.is_some()];
    if kinds.into_iter().filter(|set| *set).count() > 1 {
        verdict.error(
            at,
            "has more than one kind of error; keep one of httpStatus and grpcStatus",
        );
    }

    if let Some(status) = http {
        verdict.check(&at.field("httpStatus"), http_status(i64::from(*status)));
    }

    if let Some(status) = grpc
        .as_ref()
        .filter(|status| !GRPC_STATUSES.contains(&status.as_str()))
    {
        verdict.error(
            &at.field("grpcStatus"),
            format!("{status:?} is not a gRPC status; write its name, such as UNAVAILABLE"),
        );
    }

    if http2_error.is_some() {
        verdict.error(
            &at.field("http2Error"),
            "is not supported; use httpStatus or grpcStatus",
        );
    }
}

fn validate_delay(verdict: &mut Verdict, at: &Path<'_>, delay: &Delay) {
    let Delay {
        percent: _,
        fixed_delay,
        exponential_delay,
        percentage,
    } = delay;
    share(verdict, &at.field("percentage"), percentage.as_ref());
    optional_duration(verdict, &at.field("fixedDelay"), *fixed_delay);
    if exponential_delay.is_some() {
        verdict.error(
            &at.field("exponentialDelay"),
            "is not supported; use fixedDelay",
        );
    }
}

/// Validates a percentage, which must not be finer than Envoy's parts per million.
fn share(verdict: &mut Verdict, at: &Path<'_>, percentage: Option<&Percent>) {
    let Some(Percent { value }) = percentage else {
        return;
    };
    if *value != 0.0 && !(0.0001..=100.0).contains(value) {
        verdict.error(
            &at.field("value"),
            format!("{value} is not a valid percentage; write 0, or 0.0001 to 100"),
        );
    }
}
