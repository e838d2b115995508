//! Messages in envelopes that name their type.

use prost::{Message, Name};
use prost_types::Any;

use crate::raw::RawAny;

/// What stands before a message's full name in a type URL, in Envoy's and Istio's files alike.
pub const TYPE_URL_PREFIX: &str = "type.googleapis.com/";

/// The type URL of `M`, such as `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
pub fn type_url<M: Name>() -> String {
    format!("{TYPE_URL_PREFIX}{}", M::full_name())
}

/// Puts `message` in an envelope, to be a field of another message.
pub fn pack<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: type_url::<M>(),
        value: message.encode_to_vec(),
    }
}

/// Puts `message` in an envelope whose bytes can be shared, to be a resource on a stream.
pub fn pack_raw<M: Message + Name>(message: &M) -> RawAny {
    RawAny {
        type_url: type_url::<M>(),
        value: message.encode_to_vec().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{pack, pack_raw, type_url};
    use crate::envoy::config::cluster::v3::Cluster;
    use prost::Message;

    #[test]
    fn a_packed_message_names_its_type_and_decodes_to_itself() {
        let cluster = Cluster {
            name: "outbound|80||shop".to_owned(),
            ..Cluster::default()
        };
        let any = pack(&cluster);
        assert_eq!(
            any.type_url,
            "type.googleapis.com/envoy.config.cluster.v3.Cluster"
        );
        assert_eq!(any.type_url, type_url::<Cluster>());
        assert_eq!(Cluster::decode(any.value.as_slice()).unwrap(), cluster);
    }

    #[test]
    fn both_envelopes_have_the_same_bytes() {
        let cluster = Cluster {
            name: "outbound|80||shop".to_owned(),
            ..Cluster::default()
        };
        assert_eq!(
            pack(&cluster).encode_to_vec(),
            pack_raw(&cluster).encode_to_vec()
        );
    }
}
