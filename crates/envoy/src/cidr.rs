//! Address ranges as Envoy messages.

use navarch_proto::envoy::config::core::v3::CidrRange;

use navarch_base::cidr::Cidr;

/// The Envoy message. The address is unmodified: Envoy masks it itself.
#[must_use]
pub fn to_proto(range: Cidr) -> CidrRange {
    CidrRange {
        address_prefix: range.address.to_string(),
        prefix_len: Some(u32::from(range.bits)),
    }
}
