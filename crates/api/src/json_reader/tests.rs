use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Message {
    some_number: u32,
    signed: i64,
    share: f64,
    is_on: Option<bool>,
    text: String,
    inner: Option<Box<Message>>,
    list: Vec<String>,
    messages: Vec<Message>,
    my_map: BTreeMap<String, String>,
    free: Option<Value>,
}

fn read(value: Value) -> Result<Message, FieldError> {
    super::read(&value, Mapping::Protobuf).map(|(message, _)| message)
}

#[test]
fn names_of_the_proto_and_of_json_are_the_same() {
    let expected = Message {
        some_number: 7,
        is_on: Some(true),
        ..Default::default()
    };
    assert_eq!(
        read(json!({ "some_number": 7, "is_on": true })).unwrap(),
        expected
    );
    assert_eq!(
        read(json!({ "someNumber": 7, "isOn": true })).unwrap(),
        expected
    );
}

#[test]
fn keys_of_maps_stay_as_they_are() {
    let message =
        read(json!({ "my_map": { "some_number": "x" }, "free": { "is_on": null } })).unwrap();
    assert_eq!(
        message.my_map,
        BTreeMap::from([("some_number".into(), "x".into())])
    );
    assert_eq!(message.free, Some(json!({ "is_on": null })));
}

#[test]
fn maps_by_number_have_their_numbers_in_text() {
    let read = |value: Value| {
        super::read::<BTreeMap<u32, bool>>(&value, Mapping::Protobuf).map(|(map, _)| map)
    };
    assert_eq!(
        read(json!({ "80": true })).unwrap(),
        BTreeMap::from([(80, true)])
    );
    assert!(read(json!({ "x": true })).is_err());
    assert!(read(json!({ "-1": true })).is_err());
}

#[test]
fn null_is_absence() {
    let message = json!({
        "someNumber": null, "text": null, "inner": null, "list": null, "isOn": null, "myMap": { "a": null },
        "messages": [null],
    });
    let expected = Message {
        my_map: BTreeMap::from([("a".into(), String::new())]),
        messages: vec![Message::default()],
        ..Default::default()
    };
    assert_eq!(read(message).unwrap(), expected);
}

#[test]
fn quoted_numbers_and_integral_floats_are_accepted() {
    let expected = Message {
        some_number: 80,
        signed: -3,
        share: 0.5,
        ..Default::default()
    };

    assert_eq!(
        read(json!({ "someNumber": "80", "signed": "-3", "share": "0.5" })).unwrap(),
        expected
    );
    assert_eq!(
        read(json!({ "someNumber": 80.0, "signed": -3.0, "share": 0.5 })).unwrap(),
        expected
    );

    for wrong in [
        json!(1.5),
        json!("x"),
        json!(""),
        json!(-1),
        json!(5_000_000_000_u64),
        json!(true),
        json!([]),
    ] {
        read(json!({ "someNumber": wrong })).unwrap_err();
    }
}

#[test]
fn other_types_are_not_bent_to_fit() {
    for wrong in [
        json!({ "text": 1 }),
        json!({ "text": true }),
        json!({ "isOn": "true" }),
        json!({ "inner": [] }),
        json!({ "inner": "x" }),
        json!({ "list": "x" }),
        json!({ "myMap": [] }),
        json!([1]),
    ] {
        assert!(read(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn kubernetes_means_json_strictly() {
    let read = |value: Value| super::read::<Message>(&value, Mapping::Kubernetes);
    let message = json!({ "someNumber": 7, "isOn": null, "myMap": { "a": "b" }, "messages": [{ "signed": -3 }] });
    let expected = Message {
        some_number: 7,
        my_map: BTreeMap::from([("a".into(), "b".into())]),
        messages: vec![Message {
            signed: -3,
            ..Default::default()
        }],
        ..Default::default()
    };

    assert_eq!(read(message).unwrap(), (expected, Vec::new()));
    let error_of = |value: Value| read(value).unwrap_err().to_string();
    assert_eq!(
        error_of(json!({ "someNumber": "7" })),
        r#"someNumber: invalid type: string "7", expected u32"#
    );
    assert_eq!(
        error_of(json!({ "messages": [{}, { "text": null }] })),
        "messages[1].text: invalid type: null, expected a string"
    );

    assert_eq!(
        error_of(json!({ "inner": { "list": {} } })),
        "inner.list: invalid type: map, expected a sequence"
    );
    let (_, mut unknown) = read(json!({ "some_number": 7, "inner": { "signd": null } })).unwrap();
    unknown.sort();
    assert_eq!(unknown, ["inner.signd", "some_number"]);
}

#[test]
fn enums_are_names_or_maps_of_one_name() {
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Choice {
        Nothing,
        Number(u16),
        Pair(u8, u8),
        Named { some_number: u32 },
    }

    for mapping in [Mapping::Kubernetes, Mapping::Protobuf] {
        let read = |value: Value| {
            super::read::<Vec<Choice>>(&value, mapping).map_err(|error| error.to_string())
        };
        let all = json!(["nothing", { "number": 7 }, { "pair": [1, 2] }, { "named": { "some_number": 3 } }]);
        let expected = vec![
            Choice::Nothing,
            Choice::Number(7),
            Choice::Pair(1, 2),
            Choice::Named { some_number: 3 },
        ];

        assert_eq!(read(all).unwrap().0, expected);
        assert!(
            read(json!(["nothing", { "number": true }]))
                .unwrap_err()
                .starts_with("[1].number: invalid type")
        );

        assert!(
            read(json!(["number"]))
                .unwrap_err()
                .starts_with("[0]: invalid type: unit variant")
        );
        read(json!(["other"])).unwrap_err();
        read(json!([{ "number": 7, "nothing": null }])).unwrap_err();
        read(json!([7])).unwrap_err();
    }
}
