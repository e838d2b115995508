//! Fields that hold a message, written piece by piece.

use bytes::BytesMut;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

/// A buffer for a field that holds a message of `length` bytes: its key and length are written, the message is to follow.
pub(super) fn begin(number: u32, length: usize) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(key_len(number) + encoded_len_varint(length as u64) + length);
    encode_key(number, WireType::LengthDelimited, &mut bytes);
    encode_varint(length as u64, &mut bytes);
    bytes
}
