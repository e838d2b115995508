//! Watch events, as lines of JSON and in Kubernetes' binary form: both decoders must return the
//! same object.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use navarch::api::decode::{
    Outcome, WatchEvent, decode_binary_event, decode_watch_event, has_binary_form,
};
use navarch::api::object::Kind;
use navarch::api::shared_texts::SharedTexts;
use serde_json::{Map, Value};

/// The kinds with a decoder for the binary form.
const KINDS: [(Kind, Message); 6] = [
    (Kind::Pod, POD),
    (Kind::Service, SERVICE),
    (Kind::EndpointSlice, ENDPOINT_SLICE),
    (Kind::Node, NODE),
    (Kind::Secret, SECRET),
    (Kind::ConfigMap, CONFIG_MAP),
];

/// The fields of a message: name in JSON, field number, type.
type Message = &'static [(&'static str, u64, Field)];

/// The type of a field.
#[derive(Clone, Copy)]
enum Field {
    Text,
    Number,
    /// A boolean.
    Truth,
    /// Bytes, which are base64 in JSON.
    Bytes,
    Time,
    NumberOrText,
    One(Message),
    /// A repeated field.
    Many(&'static Field),
    /// A map from strings.
    Table(&'static Field),
}

use Field::{Bytes, Many, Number, NumberOrText, One, Table, Text, Time, Truth};

// Field numbers are those of generated.proto in k8s.io/api and k8s.io/apimachinery. The tables list
// more fields than the decoders read, so that a field which only the JSON decoder reads is
// detected.
const META: Message = &[
    ("name", 1, Text),
    ("generateName", 2, Text),
    ("namespace", 3, Text),
    ("uid", 5, Text),
    ("resourceVersion", 6, Text),
    ("generation", 7, Number),
    ("creationTimestamp", 8, Time),
    ("deletionTimestamp", 9, Time),
    ("labels", 11, Table(&Text)),
    ("annotations", 12, Table(&Text)),
    ("ownerReferences", 13, Many(&One(OWNER))),
    ("finalizers", 14, Many(&Text)),
];
const OWNER: Message = &[
    ("kind", 1, Text),
    ("name", 3, Text),
    ("uid", 4, Text),
    ("apiVersion", 5, Text),
    ("controller", 6, Truth),
];
const REFERENCE: Message = &[
    ("kind", 1, Text),
    ("namespace", 2, Text),
    ("name", 3, Text),
    ("uid", 4, Text),
    ("apiVersion", 5, Text),
    ("resourceVersion", 6, Text),
    ("fieldPath", 7, Text),
];
const POD: Message = &[
    ("metadata", 1, One(META)),
    (
        "spec",
        2,
        One(&[
            ("containers", 2, Many(&One(CONTAINER))),
            ("restartPolicy", 3, Text),
            ("nodeSelector", 7, Table(&Text)),
            ("serviceAccountName", 8, Text),
            ("serviceAccount", 9, Text),
            ("nodeName", 10, Text),
            ("hostNetwork", 11, Truth),
            ("hostname", 16, Text),
            ("subdomain", 17, Text),
            ("schedulerName", 19, Text),
            ("initContainers", 20, Many(&One(CONTAINER))),
        ]),
    ),
    (
        "status",
        3,
        One(&[
            ("phase", 1, Text),
            (
                "conditions",
                2,
                Many(&One(&[("type", 1, Text), ("status", 2, Text)])),
            ),
            ("message", 3, Text),
            ("reason", 4, Text),
            ("hostIP", 5, Text),
            ("podIP", 6, Text),
            ("qosClass", 9, Text),
            ("nominatedNodeName", 11, Text),
            ("podIPs", 12, Many(&One(&[("ip", 1, Text)]))),
            ("hostIPs", 16, Many(&One(&[("ip", 1, Text)]))),
        ]),
    ),
];
const CONTAINER: Message = &[
    ("name", 1, Text),
    ("image", 2, Text),
    ("command", 3, Many(&Text)),
    ("args", 4, Many(&Text)),
    (
        "ports",
        6,
        Many(&One(&[
            ("name", 1, Text),
            ("hostPort", 2, Number),
            ("containerPort", 3, Number),
            ("protocol", 4, Text),
            ("hostIP", 5, Text),
        ])),
    ),
    ("restartPolicy", 24, Text),
];
const SERVICE: Message = &[
    ("metadata", 1, One(META)),
    (
        "spec",
        2,
        One(&[
            (
                "ports",
                1,
                Many(&One(&[
                    ("name", 1, Text),
                    ("protocol", 2, Text),
                    ("port", 3, Number),
                    ("targetPort", 4, NumberOrText),
                    ("nodePort", 5, Number),
                    ("appProtocol", 6, Text),
                ])),
            ),
            ("selector", 2, Table(&Text)),
            ("clusterIP", 3, Text),
            ("type", 4, Text),
            ("externalIPs", 5, Many(&Text)),
            ("sessionAffinity", 7, Text),
            ("loadBalancerIP", 8, Text),
            ("loadBalancerSourceRanges", 9, Many(&Text)),
            ("externalName", 10, Text),
            ("externalTrafficPolicy", 11, Text),
            ("healthCheckNodePort", 12, Number),
            ("publishNotReadyAddresses", 13, Truth),
            ("ipFamilyPolicy", 17, Text),
            ("clusterIPs", 18, Many(&Text)),
            ("ipFamilies", 19, Many(&Text)),
            ("allocateLoadBalancerNodePorts", 20, Truth),
            ("loadBalancerClass", 21, Text),
            ("internalTrafficPolicy", 22, Text),
            ("trafficDistribution", 23, Text),
        ]),
    ),
    (
        "status",
        3,
        One(&[(
            "loadBalancer",
            1,
            One(&[(
                "ingress",
                1,
                Many(&One(&[
                    ("ip", 1, Text),
                    ("hostname", 2, Text),
                    ("ipMode", 3, Text),
                    (
                        "ports",
                        4,
                        Many(&One(&[
                            ("port", 1, Number),
                            ("protocol", 2, Text),
                            ("error", 3, Text),
                        ])),
                    ),
                ])),
            )]),
        )]),
    ),
];
const ENDPOINT_SLICE: Message = &[
    ("metadata", 1, One(META)),
    (
        "endpoints",
        2,
        Many(&One(&[
            ("addresses", 1, Many(&Text)),
            (
                "conditions",
                2,
                One(&[
                    ("ready", 1, Truth),
                    ("serving", 2, Truth),
                    ("terminating", 3, Truth),
                ]),
            ),
            ("hostname", 3, Text),
            ("targetRef", 4, One(REFERENCE)),
            ("deprecatedTopology", 5, Table(&Text)),
            ("nodeName", 6, Text),
            ("zone", 7, Text),
        ])),
    ),
    (
        "ports",
        3,
        Many(&One(&[
            ("name", 1, Text),
            ("protocol", 2, Text),
            ("port", 3, Number),
            ("appProtocol", 4, Text),
        ])),
    ),
    ("addressType", 4, Text),
];
const NODE: Message = &[
    ("metadata", 1, One(META)),
    (
        "spec",
        2,
        One(&[
            ("podCIDR", 1, Text),
            ("providerID", 3, Text),
            ("unschedulable", 4, Truth),
        ]),
    ),
    (
        "status",
        3,
        One(&[
            (
                "conditions",
                4,
                Many(&One(&[("type", 1, Text), ("status", 2, Text)])),
            ),
            (
                "addresses",
                5,
                Many(&One(&[("type", 1, Text), ("address", 2, Text)])),
            ),
            (
                "nodeInfo",
                7,
                One(&[
                    ("machineID", 1, Text),
                    ("systemUUID", 2, Text),
                    ("bootID", 3, Text),
                    ("kernelVersion", 4, Text),
                    ("osImage", 5, Text),
                    ("containerRuntimeVersion", 6, Text),
                    ("kubeletVersion", 7, Text),
                    ("kubeProxyVersion", 8, Text),
                    ("operatingSystem", 9, Text),
                    ("architecture", 10, Text),
                ]),
            ),
        ]),
    ),
];
const SECRET: Message = &[
    ("metadata", 1, One(META)),
    ("data", 2, Table(&Bytes)),
    ("type", 3, Text),
    ("immutable", 5, Truth),
];
const CONFIG_MAP: Message = &[
    ("metadata", 1, One(META)),
    ("data", 2, Table(&Text)),
    ("binaryData", 3, Table(&Bytes)),
    ("immutable", 4, Truth),
];

/// Decodes one event in both forms.
///
/// # Panics
/// If the two forms of an event are decoded to different objects.
pub fn run(data: &[u8]) {
    for (kind, _) in KINDS {
        assert!(has_binary_form(kind), "{kind}");
        drop(decode_watch_event(kind, data, &mut SharedTexts::default()));
        drop(decode_binary_event(kind, data, &mut SharedTexts::default()));
    }

    let Ok(mut event) = serde_json::from_slice::<Value>(data) else {
        return;
    };

    let name = event
        .pointer("/object/kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let Some((kind, schema)) = KINDS.into_iter().find(|(kind, _)| kind.as_str() == name) else {
        return;
    };

    // The binary form does not repeat the object's API version.
    if let Some(object) = event.get_mut("object").and_then(Value::as_object_mut) {
        let version = if kind == Kind::EndpointSlice {
            "discovery.k8s.io/v1"
        } else {
            "v1"
        };
        object.insert("apiVersion".to_owned(), Value::from(version));
    }

    let Some(frame) = framed(&event, schema) else {
        return;
    };

    let text = serde_json::to_vec(&event).expect("a JSON value can be encoded");
    let by_text = decode_watch_event(kind, &text, &mut SharedTexts::default());
    let by_frame = decode_binary_event(kind, &frame, &mut SharedTexts::default());
    match (&by_text, &by_frame) {
        (Ok(a), Ok(b)) => assert!(
            agree(a, b),
            "the two forms of an event differ: {event}\n{a:?}\n{b:?}"
        ),
        (Err(_), Err(_)) => {}
        (a, b) => panic!("one form is an event and the other is none: {a:?} {b:?} {event}"),
    }

    // Truncated or changed frames must not cause a panic.
    for at in 0..frame.len().min(512) {
        drop(decode_binary_event(
            kind,
            frame.get(..at).unwrap_or_default(),
            &mut SharedTexts::default(),
        ));
        let mut changed = frame.clone();
        if let Some(byte) = changed.get_mut(at) {
            *byte ^= 0x81;
        }

        drop(decode_binary_event(
            kind,
            &changed,
            &mut SharedTexts::default(),
        ));
    }
}

/// Whether two results are equal, except for the text of errors and the version that the slower
/// decoder stores twice.
fn agree(a: &WatchEvent, b: &WatchEvent) -> bool {
    let (WatchEvent::Put(a), WatchEvent::Put(b)) = (a, b) else {
        return a == b;
    };
    a.version == b.version
        && match (&a.outcome, &b.outcome) {
            (Outcome::Read { object: a, .. }, Outcome::Read { object: b, .. }) => {
                let of_a = a.meta();
                let of_b = b.meta();
                a.same_content(b) && of_a.uid == of_b.uid && of_a.generation == of_b.generation
            }
            (Outcome::Rejected(_) | Outcome::Ignored, Outcome::Rejected(_) | Outcome::Ignored) => {
                true
            }
            _ => false,
        }
}

/// An event in binary form; `None` if it cannot be represented, or API servers never send it.
fn framed(event: &Value, schema: Message) -> Option<Vec<u8>> {
    let kind = event
        .get("type")?
        .as_str()
        .filter(|kind| *kind != "ERROR")?;
    let content = message(schema, event.get("object")?.as_object()?)?;
    let object = [b"k8s\0".as_slice(), &length_delimited(2, &content)].concat();
    Some(
        [
            length_delimited(1, kind.as_bytes()),
            length_delimited(2, &length_delimited(1, &object)),
        ]
        .concat(),
    )
}

fn message(schema: Message, object: &Map<String, Value>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for (name, number, field) in schema {
        if let Some(value) = object.get(*name) {
            bytes.extend(encoded(*number, *field, value)?);
        }
    }
    Some(bytes)
}

fn encoded(number: u64, field: Field, value: &Value) -> Option<Vec<u8>> {
    Some(match (field, value) {
        (Text, Value::String(text)) if !text.is_empty() => {
            length_delimited(number, text.as_bytes())
        }
        (Bytes, Value::String(text)) => {
            length_delimited(number, &BASE64_STANDARD.decode(text).ok()?)
        }
        (Truth, Value::Bool(truth)) => varint_field(number, u64::from(*truth)),
        (Number, Value::Number(value)) => varint_field(
            number,
            i64::from(i32::try_from(value.as_i64()?).ok()?).cast_unsigned(),
        ),
        (Time, Value::String(text)) => {
            let time: jiff::Timestamp = text
                .parse()
                .ok()
                .filter(|time: &jiff::Timestamp| time.subsec_nanosecond() == 0)?;
            length_delimited(number, &varint_field(1, time.as_second().cast_unsigned()))
        }
        (NumberOrText, Value::String(_)) => length_delimited(
            number,
            &[varint_field(1, 1), encoded(3, Text, value)?].concat(),
        ),
        (NumberOrText, Value::Number(_)) => length_delimited(number, &encoded(2, Number, value)?),
        (One(schema), Value::Object(object)) => length_delimited(number, &message(schema, object)?),
        (Many(field), Value::Array(values)) => values
            .iter()
            .map(|value| encoded(number, *field, value))
            .collect::<Option<Vec<_>>>()?
            .concat(),
        (Table(field), Value::Object(object)) => {
            let entry = |(key, value): (&String, &Value)| {
                Some(length_delimited(
                    number,
                    &[
                        length_delimited(1, key.as_bytes()),
                        encoded(2, *field, value)?,
                    ]
                    .concat(),
                ))
            };

            object
                .iter()
                .map(entry)
                .collect::<Option<Vec<_>>>()?
                .concat()
        }
        _ => return None,
    })
}

/// Encodes a field of bytes.
fn length_delimited(number: u64, bytes: &[u8]) -> Vec<u8> {
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    [varint(number << 3 | 2), varint(length), bytes.to_vec()].concat()
}

fn varint_field(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

/// Encodes a number with seven bits per byte.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}
