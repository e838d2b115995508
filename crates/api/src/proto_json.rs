//! Protobuf's JSON mapping: names of fields, and encoding of messages ([`crate::typed`] decodes).

mod text;

pub use text::{to_proto_json, to_proto_json_text};

/// The camelCase form of a field's name.
///
/// An underscore is removed and the next letter becomes upper case, as protobuf derives JSON names.
#[must_use]
pub fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut raise = false;
    for letter in name.chars() {
        if letter == '_' {
            raise = true;
        } else if raise {
            camel.push(letter.to_ascii_uppercase());
            raise = false;
        } else {
            camel.push(letter);
        }
    }
    camel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underscores_become_camel_case() {
        assert_eq!(camel_case("mesh_mTLS"), "meshMTLS");
        assert_eq!(camel_case("enable_64bit_trace_id"), "enable64bitTraceId");
    }
}
