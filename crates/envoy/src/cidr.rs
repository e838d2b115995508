//! Address ranges as Envoy matches them.

use navarch_proto::envoy::config::core::v3::CidrRange;

use navarch_api::cidr::Cidr;

/// Envoy's message. The address stays as written: Envoy itself cuts it off.
#[must_use]
pub fn to_proto(range: Cidr) -> CidrRange {
    CidrRange { address_prefix: range.address.to_string(), prefix_len: Some(u32::from(range.bits)) }
}
