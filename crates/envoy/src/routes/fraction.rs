//! Fractions of requests.

use navarch_proto::envoy::r#type::v3::FractionalPercent;
use navarch_proto::envoy::r#type::v3::fractional_percent::DenominatorType;

use navarch_api::istio::Percent;

/// A fraction in whole percent.
pub(super) fn of_hundred(percent: u32) -> FractionalPercent {
    FractionalPercent {
        numerator: percent,
        denominator: DenominatorType::Hundred.into(),
    }
}

/// A fraction from the API, with a precision of one millionth.
pub(super) fn of_percent(percent: &Percent) -> FractionalPercent {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most a million after validation, and truncated as istiod does"
    )]
    let numerator = (percent.value * 10_000.0) as u32;
    FractionalPercent {
        numerator,
        denominator: DenominatorType::Million.into(),
    }
}
