//! Reads fields of a protobuf message without decoding the rest.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The field number of the type URL in responses of both protocols and in state-of-the-world
/// requests.
pub(super) const TYPE: u32 = 4;
/// The field number of the type URL in delta requests.
pub(super) const DELTA_REQUEST_TYPE: u32 = 2;

/// The field number of the resources in delta responses.
pub(super) const RESOURCES: u32 = 2;
/// The field number of the `Any` in a resource.
pub(super) const RESOURCE: u32 = 2;
/// The field number of the message in an `Any`.
pub(super) const ANY_VALUE: u32 = 2;

/// The field number of `initial_resource_versions` in delta requests.
pub(super) const DELTA_REQUEST_VERSIONS: u32 = 5;

/// The field number of the nonce in state-of-the-world requests.
pub(super) const NONCE: u32 = 5;
/// The field number of the nonce in delta requests.
pub(super) const DELTA_REQUEST_NONCE: u32 = 6;
/// The field number of a NACK's reason in state-of-the-world requests.
pub(super) const ERROR: u32 = 6;
/// The field number of a NACK's reason in delta requests.
pub(super) const DELTA_REQUEST_ERROR: u32 = 7;

/// The last string with this field number at the top level of a message; empty if it is missing.
///
/// # Errors
/// If the bytes are not a protobuf message.
pub(super) fn string(message: &[u8], number: u32) -> Result<&str, prost::DecodeError> {
    let field = bytes(message, number)?.unwrap_or_default();
    Ok(std::str::from_utf8(field).unwrap_or_default())
}

/// The last string, message or bytes with this field number at the top level of a message.
///
/// # Errors
/// If the bytes are not a protobuf message.
pub(super) fn bytes(message: &[u8], number: u32) -> Result<Option<&[u8]>, prost::DecodeError> {
    all(message, number).last().transpose()
}

/// The strings, messages or bytes with this field number at the top level of a message, up to the
/// first error if the bytes are not a protobuf message. The cost depends on the number of fields, not
/// on their size.
pub(super) fn all(
    message: &[u8],
    number: u32,
) -> impl Iterator<Item = Result<&[u8], prost::DecodeError>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            match take_field(&mut rest) {
                Ok(Some((tag, field))) if tag == number => return Some(Ok(field)),
                Ok(_) => {}
                Err(error) => {
                    rest = &[];
                    return Some(Err(error));
                }
            }
        }
        None
    })
}

/// Takes the first field from a message; `None` if it is a number.
///
/// # Errors
/// If the bytes are not a protobuf message.
pub(super) fn take_field<'a>(
    message: &mut &'a [u8],
) -> Result<Option<(u32, &'a [u8])>, prost::DecodeError> {
    let (tag, wire_type) = decode_key(message)?;
    if wire_type != WireType::LengthDelimited {
        skip_field(wire_type, tag, message, DecodeContext::default())?;
        return Ok(None);
    }

    let length = usize::try_from(decode_varint(message)?).ok();
    let all: &'a [u8] = message;
    let parts = length.and_then(|length| all.split_at_checked(length));
    let Some((field, rest)) = parts else {
        // Returns prost's own error for a truncated message.
        *message = &[];
        skip_field(
            wire_type,
            tag,
            &mut &[0xff_u8][..],
            DecodeContext::default(),
        )?;
        return Ok(None);
    };
    *message = rest;
    Ok(Some((tag, field)))
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryResponse};
    use prost::Message as _;

    use super::*;

    #[test]
    fn the_type_url_is_found_at_any_position_and_truncation_is_an_error() {
        let any = prost_types::Any {
            type_url: "inner".to_owned(),
            value: vec![7; 300],
        };
        let response = DiscoveryResponse {
            version_info: "1".to_owned(),
            resources: vec![any.clone(), any],
            canary: true,
            type_url: "outer".to_owned(),
            nonce: "n".to_owned(),
            ..DiscoveryResponse::default()
        };

        let bytes = response.encode_to_vec();
        assert_eq!(string(&bytes, TYPE).unwrap(), "outer");
        let request = DeltaDiscoveryRequest {
            type_url: "asked".to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        assert_eq!(
            string(&request.encode_to_vec(), DELTA_REQUEST_TYPE).unwrap(),
            "asked"
        );

        assert_eq!(string(&[], TYPE).unwrap(), "");
        for cut in [bytes.len() - 1, 5, 200] {
            assert!(string(&bytes[..cut], TYPE).is_err(), "{cut}");
        }
    }
}
