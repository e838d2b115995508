//! Message fields that are encoded piece by piece.

use bytes::{Bytes, BytesMut};
use prost::encoding::{
    WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len,
};

/// The number of the name field of a virtual host, which is encoded first.
const NAME: u32 = 1;

/// A buffer for a field with a message of `length` bytes: its key and length are written, the
/// message must follow.
pub(super) fn begin(number: u32, length: usize) -> BytesMut {
    let mut bytes =
        BytesMut::with_capacity(key_len(number) + encoded_len_varint(length as u64) + length);
    encode_key(number, WireType::LengthDelimited, &mut bytes);
    encode_varint(length as u64, &mut bytes);
    bytes
}

/// The message in a field that was started by [`begin`]; `None` for an empty field. Copies nothing.
pub(super) fn message(field: &Bytes) -> Option<Bytes> {
    let mut rest = field.clone();
    decode_key(&mut rest).ok()?;
    let length = decode_varint(&mut rest).ok()?;
    (length == rest.len() as u64).then_some(rest)
}

/// Renames a message whose first field is its name.
pub(super) fn renamed(message: &Bytes, name: &str) -> Option<Bytes> {
    let mut rest = message.clone();
    let (tag, _) = decode_key(&mut rest).ok()?;
    let old = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
    let rest = rest.get(old..).filter(|_| tag == NAME)?;
    let mut bytes = begin(NAME, name.len());
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(rest);
    Some(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::route::v3::VirtualHost;
    use prost::Message;

    use super::*;

    #[test]
    fn a_message_keeps_all_but_its_name() {
        let host = VirtualHost {
            name: "a:80".to_owned(),
            domains: vec!["a".to_owned()],
            ..VirtualHost::default()
        };
        let mut field = begin(2, host.encoded_len());
        host.encode_raw(&mut field);
        let alone = message(&field.freeze()).unwrap();
        assert_eq!(alone, host.encode_to_vec());

        let renamed = VirtualHost::decode(renamed(&alone, "80/a:80").unwrap()).unwrap();
        assert_eq!(
            renamed,
            VirtualHost {
                name: "80/a:80".to_owned(),
                ..host
            }
        );

        assert_eq!(message(&Bytes::new()), None);
    }
}
