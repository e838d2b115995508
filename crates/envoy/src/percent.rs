//! Percentages within Envoy's limits.

use navarch_proto::envoy::r#type::v3::Percent;

/// A percentage as Envoy accepts it: the nearest from 0 to 100, and 0 for what is no number. It
/// rejects all of a resource for another one.
///
/// For some fields only the CRD has these limits. istiod's validation, and so ours, lets other
/// values pass, and CRDs bind neither files nor configuration over xDS nor the metadata of a proxy.
pub(crate) fn percent(value: f64) -> Percent {
    let value = if value.is_nan() {
        0.0
    } else {
        value.clamp(0.0, 100.0)
    };
    Percent { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_what_envoy_accepts() {
        for (value, expected) in [
            (0.0001, 0.0001),
            (100.0, 100.0),
            (100.5, 100.0),
            (-1.0, 0.0),
            (f64::INFINITY, 100.0),
            (f64::NAN, 0.0),
        ] {
            let found = percent(value).value;
            assert_eq!(found.to_bits(), f64::to_bits(expected), "{value}");
        }
    }
}
