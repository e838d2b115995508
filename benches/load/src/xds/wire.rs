//! Decodes ADS messages no further than names and without copying: parsing the server's bytes must
//! cost this side next to nothing.

use anyhow::{Context, Result, bail};

use crate::xds::peek;
use crate::xds::resource_type::ResourceType;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    /// A length-delimited value.
    Bytes(&'a [u8]),
    /// A value of fixed length, which is skipped.
    Fixed,
}

/// The unread fields of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next field, with its number.
    ///
    /// # Errors
    /// If the bytes are not a valid message.
    pub(crate) fn read(&mut self) -> Result<Option<(u64, Value<'a>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            1 => self.bytes(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.number()?;
                Value::Bytes(self.bytes(usize::try_from(length)?)?)
            }
            5 => self.bytes(4).map(|_| Value::Fixed)?,
            other => bail!("a field of the unknown type {other}"),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// Reads a varint.
    fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for place in 0..10 {
            let (byte, rest) = self.0.split_first().context("a number that ends early")?;
            self.0 = rest;
            number |= u64::from(byte & 127) << (7 * place);
            if byte & 128 == 0 {
                return Ok(number);
            }
        }
        bail!("a number of more than 10 bytes")
    }

    /// Reads this number of bytes.
    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self
            .0
            .split_at_checked(count)
            .context("a field that is longer than its message")?;
        self.0 = rest;
        Ok(bytes)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedResource<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) version: &'a [u8],
    /// Its encoded content.
    pub(crate) content: &'a [u8],
}

/// A response of either protocol.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Response<'a> {
    /// The type of its resources; `None` for types without a subscription.
    pub(crate) resource_type: Option<ResourceType>,
    pub(crate) version: &'a [u8],
    /// The nonce for the acknowledgement.
    pub(crate) nonce: &'a [u8],
    /// Added or changed resources.
    pub(crate) resources: Vec<ReceivedResource<'a>>,
    /// Names of removed resources.
    pub(crate) removed: Vec<&'a [u8]>,
}

impl<'a> Response<'a> {
    /// Decodes a `DeltaDiscoveryResponse`.
    ///
    /// # Errors
    /// If the bytes are not one.
    pub(crate) fn delta(body: &'a [u8]) -> Result<Self> {
        let mut response = Self::default();
        let mut fields = Fields(body);
        while let Some(field) = fields.read()? {
            match field {
                (2, Value::Bytes(resource)) => response.resources.push(resource_of(resource)?),
                (6, Value::Bytes(name)) => response.removed.push(name),
                field => response.common(field),
            }
        }
        Ok(response)
    }

    /// Decodes a `DiscoveryResponse`, which has the names of resources in their content only.
    ///
    /// # Errors
    /// If the bytes are not one.
    pub(crate) fn state(body: &'a [u8]) -> Result<Self> {
        let mut response = Self::default();
        let mut fields = Fields(body);
        while let Some(field) = fields.read()? {
            match field {
                (2, Value::Bytes(any)) => {
                    let content = content_of(any)?;
                    response.resources.push(ReceivedResource {
                        name: peek::name_of(content),
                        version: &[],
                        content,
                    });
                }
                field => response.common(field),
            }
        }

        let version = response.version;
        response
            .resources
            .iter_mut()
            .for_each(|received| received.version = version);

        Ok(response)
    }

    /// Reads a field that both protocols have.
    fn common(&mut self, field: (u64, Value<'a>)) {
        match field {
            (1, Value::Bytes(version)) => self.version = version,
            (4, Value::Bytes(type_url)) => self.resource_type = ResourceType::of(type_url),
            (5, Value::Bytes(nonce)) => self.nonce = nonce,
            _ => {}
        }
    }
}

/// Reads a `Resource` of the delta protocol.
fn resource_of(resource: &[u8]) -> Result<ReceivedResource<'_>> {
    let mut received = ReceivedResource::default();
    let mut fields = Fields(resource);
    while let Some(field) = fields.read()? {
        match field {
            (1, Value::Bytes(version)) => received.version = version,
            (2, Value::Bytes(any)) => received.content = content_of(any)?,
            (3, Value::Bytes(name)) => received.name = name,
            _ => {}
        }
    }
    Ok(received)
}

/// The message in a `google.protobuf.Any`.
fn content_of(any: &[u8]) -> Result<&[u8]> {
    let mut content: &[u8] = &[];
    let mut fields = Fields(any);
    while let Some(field) = fields.read()? {
        if let (2, Value::Bytes(value)) = field {
            content = value;
        }
    }
    Ok(content)
}

/// Appends a length-delimited field, unless it is empty.
pub(crate) fn put(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_always(out, field, bytes);
    }
}

/// Appends a length-delimited field.
pub(crate) fn put_always(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    put_head(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends an entry of a `map<string, string>`.
pub(crate) fn put_entry(out: &mut Vec<u8>, field: u8, key: &[u8], value: &[u8]) {
    let length = |text: &[u8]| 1 + length_of(text.len()) + text.len();
    put_head(out, field, length(key) + length(value));
    put_always(out, 1, key);
    put_always(out, 2, value);
}

/// Appends tag and length of a field. Field numbers above 15, which are not used here, would need a
/// longer tag.
fn put_head(out: &mut Vec<u8>, field: u8, mut length: usize) {
    out.push(field << 3 | 2);
    while length >= 128 {
        out.push(u8::try_from(length & 127).unwrap_or(0) | 128);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or(0));
}

/// The size of a length as varint.
fn length_of(length: usize) -> usize {
    std::iter::successors(Some(length), |rest| (*rest >= 128).then_some(rest >> 7)).count()
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
    use navarch_proto::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryResponse, Resource,
    };
    use prost::Message;
    use prost_types::Any;

    use super::*;

    /// An encoded `ClusterLoadAssignment` with a name.
    fn any(name: &str) -> Any {
        let content = ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            ..Default::default()
        };
        Any {
            type_url: ResourceType::Endpoints.type_url().to_owned(),
            value: content.encode_to_vec(),
        }
    }

    #[test]
    fn responses_survive_encoding_and_decoding() {
        let long = "n".repeat(300);
        let names = ["a", &long];
        let resource = |name: &&str| Resource {
            name: (*name).to_owned(),
            version: "v".to_owned(),
            resource: Some(any(name)),
            ..Resource::default()
        };

        let delta = DeltaDiscoveryResponse {
            system_version_info: "s".to_owned(),
            resources: names.iter().map(resource).collect(),
            type_url: ResourceType::Endpoints.type_url().to_owned(),
            removed_resources: vec!["x".to_owned(), "y".to_owned()],
            nonce: "n1".to_owned(),
            ..DeltaDiscoveryResponse::default()
        };

        let contents = names.map(|name| any(name).value);
        let received = |version: &'static [u8]| {
            let pairs = names.iter().zip(&contents);
            pairs
                .map(|(name, content)| ReceivedResource {
                    name: name.as_bytes(),
                    version,
                    content,
                })
                .collect::<Vec<_>>()
        };

        let body = delta.encode_to_vec();
        let read = Response::delta(&body).unwrap();
        let version = &b"s"[..];
        let nonce = &b"n1"[..];
        let resource_type = Some(ResourceType::Endpoints);
        assert_eq!(
            read,
            Response {
                resource_type,
                version,
                nonce,
                resources: received(b"v"),
                removed: vec![b"x", b"y"]
            }
        );

        let state = DiscoveryResponse {
            version_info: "s".to_owned(),
            resources: names.iter().map(|name| any(name)).collect(),
            type_url: ResourceType::Endpoints.type_url().to_owned(),
            nonce: "n1".to_owned(),
            ..DiscoveryResponse::default()
        };

        let body = state.encode_to_vec();
        let read = Response::state(&body).unwrap();
        assert_eq!(
            read,
            Response {
                resource_type,
                version,
                nonce,
                resources: received(b"s"),
                removed: vec![]
            }
        );

        for end in 0..body.len() {
            // A truncated message is an error or a shorter message.
            let _ = Response::state(&body[..end]);
            let _ = Response::delta(&body[..end]);
        }

        assert!(Response::delta(&[0xff; 20]).is_err() && Response::delta(&[0x0b]).is_err());
        assert_eq!(
            Response::delta(b"\x22\x01x").unwrap().resource_type,
            None,
            "of a type without a subscription"
        );
    }

    #[test]
    fn requests_are_decoded_by_the_generated_types() {
        let long = "v".repeat(20_000);
        let mut out = Vec::new();
        put(&mut out, 2, b"type");
        put(&mut out, 6, b"");
        put_always(&mut out, 3, b"");
        put_always(&mut out, 3, b"name");
        put_entry(&mut out, 5, b"key", long.as_bytes());
        put_entry(&mut out, 5, b"other", b"");

        let read = DeltaDiscoveryRequest::decode(out.as_slice()).unwrap();
        let expected = DeltaDiscoveryRequest {
            type_url: "type".to_owned(),
            resource_names_subscribe: vec![String::new(), "name".to_owned()],
            initial_resource_versions: [
                ("key".to_owned(), long),
                ("other".to_owned(), String::new()),
            ]
            .into(),
            ..DeltaDiscoveryRequest::default()
        };

        assert_eq!(read, expected);
    }
}
