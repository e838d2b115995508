//! What istiod sent, read and written again.

use super::{Codec, JsonError, UnknownFields};
use crate::any::type_url;
use crate::envoy::config::cluster::v3::Cluster;
use crate::envoy::config::core::v3::{Metadata, RuntimeDouble, SubstitutionFormatString};
use crate::envoy::config::endpoint::v3::ClusterLoadAssignment;
use crate::envoy::config::listener::v3::{Filter, Listener};
use crate::envoy::config::route::v3::RouteConfiguration;
use crate::envoy::extensions::filters::http::fault::v3::HttpFault;
use prost::Message;
use serde_json::{Value, json};
use std::path::Path;

/// The resources of one file recorded from istiod.
fn recorded(file: &Path) -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Everything that does not come back as it was.
fn differences(codec: &Codec, file: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for resource in recorded(file) {
        match codec.any_from_json(&resource) {
            Err(error) => found.push(format!("{}: {error:?}", file.display())),
            Ok(any) => {
                let back = codec.any_to_json(&any.type_url, &any.value).unwrap();
                if back != resource {
                    found.push(format!("{}:\n{resource:#}\n{back:#}", file.display()));
                }
            }
        }
    }
    found
}

#[test]
fn recorded_resources_survive_encoding_and_decoding() {
    let codec = Codec::new();
    let mut files = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata")).unwrap() {
        assert_eq!(
            differences(&codec, &entry.unwrap().path()),
            Vec::<String>::new()
        );
        files += 1;
    }
    assert!(files >= 7, "one file for each type of resource");
}

#[test]
fn the_same_json_gives_the_same_bytes_every_time() {
    let file = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/testdata/listeners.json"
    ));
    let encode = || {
        let codec = Codec::new();
        recorded(file)
            .iter()
            .map(|resource| codec.any_from_json(resource).unwrap())
            .collect::<Vec<_>>()
    };
    let first = encode();
    for _ in 0..8 {
        assert_eq!(encode(), first);
    }
}

#[test]
fn fields_at_their_default_are_shown_only_where_absence_differs() {
    let codec = Codec::new();
    let format = SubstitutionFormatString {
        omit_empty_values: false,
        ..SubstitutionFormatString::default()
    };
    assert_eq!(
        codec
            .to_json(
                &type_url::<SubstitutionFormatString>(),
                &format.encode_to_vec()
            )
            .unwrap(),
        json!({})
    );

    let fault = HttpFault {
        max_active_faults: Some(0),
        ..HttpFault::default()
    };
    assert_eq!(
        codec
            .to_json(&type_url::<HttpFault>(), &fault.encode_to_vec())
            .unwrap(),
        json!({"maxActiveFaults": 0})
    );
}

#[test]
fn whole_floats_have_no_fraction() {
    let codec = Codec::new();
    let double = |default_value| {
        let message = RuntimeDouble {
            default_value,
            runtime_key: String::new(),
        };
        codec
            .to_json(&type_url::<RuntimeDouble>(), &message.encode_to_vec())
            .unwrap()
            .to_string()
    };
    assert_eq!(double(100.0), r#"{"defaultValue":100}"#);
    assert_eq!(double(-2.5), r#"{"defaultValue":-2.5}"#);
}

#[test]
fn narrow_floats_are_printed_as_short_as_they_are() {
    let json = codec_json("google.protobuf.FloatValue", &0.1_f32.encode_to_vec());
    assert_eq!(json.to_string(), "0.1");
}

/// JSON of bytes that are sound.
fn codec_json(name: &str, value: &[u8]) -> Value {
    Codec::new().to_json(name, value).unwrap()
}

#[test]
fn unknown_fields_are_rejected_or_skipped_as_configured() {
    let codec = Codec::new();
    let name = type_url::<RuntimeDouble>();
    let json = json!({"runtimeKey": "k", "colour": "red"});
    assert!(
        matches!(codec.from_json(&name, &json), Err(JsonError::Field { path, .. }) if path == "colour")
    );
    let message = codec
        .message_from_json(&name, &json, UnknownFields::Skip)
        .unwrap();
    let bytes = RuntimeDouble {
        default_value: 0.0,
        runtime_key: "k".to_owned(),
    }
    .encode_to_vec();
    assert_eq!(codec.encode(&message), bytes);
}

#[test]
fn names_may_be_given_as_in_the_proto_file() {
    let codec = Codec::new();
    let name = type_url::<RuntimeDouble>();
    let snake = codec
        .from_json(&name, &json!({"runtime_key": "k"}))
        .unwrap();
    assert_eq!(
        snake,
        codec.from_json(&name, &json!({"runtimeKey": "k"})).unwrap()
    );
}

#[test]
fn a_type_that_is_not_known_is_an_error_that_names_it() {
    let error = Codec::new()
        .to_json("type.googleapis.com/no.such.Type", &[])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "type.googleapis.com/no.such.Type is not a known type"
    );
}

#[test]
fn an_error_has_its_position() {
    let json = json!({
        "@type": type_url::<Listener>(),
        "filterChains": [{}, {"filters": [{"name": "f", "typedConfig": {"@type": "a/no.such.Type"}}]}],
    });
    let error = Codec::new().any_from_json(&json).unwrap_err();
    assert_eq!(
        error.to_string(),
        "filterChains[1].filters[0].typedConfig: a/no.such.Type is not a known type"
    );
}

#[test]
fn two_members_of_a_oneof_are_rejected() {
    let json = json!({"name": "f", "typedConfig": {}, "configDiscovery": {}});
    let error = Codec::new()
        .from_json(&type_url::<Filter>(), &json)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "typedConfig: cannot be set together with configDiscovery"
    );
}

#[test]
fn null_is_absence_except_where_it_is_a_value() {
    let codec = Codec::new();
    let filter = codec
        .from_json(
            &type_url::<Filter>(),
            &json!({"name": null, "typedConfig": null}),
        )
        .unwrap();
    assert_eq!(filter, Vec::<u8>::new());
    let json = json!({"filterMetadata": {"istio": {"a": null, "b": [null, 1.5, {"c": true}]}}});
    let metadata = codec.from_json(&type_url::<Metadata>(), &json).unwrap();
    assert_eq!(
        codec.to_json(&type_url::<Metadata>(), &metadata).unwrap(),
        json
    );
}

#[test]
fn the_list_of_well_known_types_is_sorted_and_known() {
    let codec = Codec::new();
    assert!(super::WELL_KNOWN.is_sorted());
    for name in super::WELL_KNOWN
        .iter()
        .filter(|name| !name.ends_with("FieldMask"))
    {
        assert!(codec.descriptor(name).is_ok(), "{name}");
    }
}

/// Whether the bytes made of each recorded resource are those that the generated type writes.
fn typed_bytes_are_equal<M: Message + Default>(file: &str) {
    let codec = Codec::new();
    for resource in
        recorded(&Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata")).join(file))
    {
        let any = codec.any_from_json(&resource).unwrap();
        assert_eq!(
            M::decode(any.value.as_slice()).unwrap().encode_to_vec(),
            any.value,
            "{file}"
        );
    }
}

#[test]
fn bytes_are_those_of_the_generated_types() {
    typed_bytes_are_equal::<Cluster>("clusters.json");
    typed_bytes_are_equal::<ClusterLoadAssignment>("endpoints.json");
    typed_bytes_are_equal::<Listener>("listeners.json");
    typed_bytes_are_equal::<RouteConfiguration>("routes.json");
}
