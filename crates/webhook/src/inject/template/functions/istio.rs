//! Istio's own template functions.

use gotmpl::{Result, Value};
use serde_json::Value as Json;

use super::super::super::{go_json, image, multus};
use super::super::value::{Entries, JSON, map, of_json, text, to_json};
use super::Function;
use super::arguments::{as_map, at, bounded, fault, length_at, list_at, map_at, printed, text_at};
use super::yaml_text::yaml_text;

/// The functions by name.
pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("formatDuration", |args| text_at(args, 0).map(text)),
    ("isset", |args| {
        Ok(Value::Bool(
            map_at(args, 0)?.contains_key(text_at(args, 1)?.as_str()),
        ))
    }),
    ("excludeInboundPort", exclude_inbound_port),
    ("includeInboundPorts", |args| ports(args, |_| true)),
    ("applicationPorts", |args| {
        ports(args, |name| name != "istio-proxy")
    }),
    ("kubevirtInterfaces", |args| text_at(args, 0).map(text)),
    ("excludeInterfaces", |args| text_at(args, 0).map(text)),
    ("annotation", annotation),
    ("valueOrDefault", value_or_default),
    ("toJSON", |args| {
        bounded(go_json::text(&to_json(at(args, 0)?)?))
    }),
    ("fromJSON", from_json),
    ("structToJSON", |args| {
        bounded(go_json::text(&to_json(at(args, 0)?)?))
    }),
    ("protoToJSON", proto_to_json),
    ("toYaml", |args| bounded(yaml_text(&to_json(at(args, 0)?)?))),
    ("indent", |args| indent(args)),
    ("directory", |args| {
        let path = text_at(args, 0)?;
        Ok(text(
            path.split_at(path.rfind('/').map_or(0, |slash| slash + 1))
                .0,
        ))
    }),
    ("contains", |args| {
        Ok(Value::Bool(text_at(args, 1)?.contains(&text_at(args, 0)?)))
    }),
    ("toLower", |args| bounded(text_at(args, 0)?.to_lowercase())),
    ("appendMultusNetwork", |args| {
        bounded(multus::with_named(&text_at(args, 0)?, &text_at(args, 1)?))
    }),
    ("omit", omit),
    ("strdict", |args| {
        Ok(strdict(
            &args.iter().map(printed).collect::<Result<Vec<_>>>()?,
        ))
    }),
    ("toJsonMap", |args| {
        bounded(go_json::text(&to_json(&merge_maps(args)?)?))
    }),
    ("mergeMaps", merge_maps),
    ("omitNil", |args| {
        Ok(omit_nil(at(args, 0)?).unwrap_or(Value::Nil))
    }),
    ("otelResourceAttributes", otel),
];

/// Adds a port to a list of ports, unless the port is empty, 0 or already in the list.
fn exclude_inbound_port(args: &[Value]) -> Result<Value> {
    let port = text_at(args, 0)?;
    let ports = text_at(args, 1)?;
    let port = port.trim();
    if port.is_empty() || port == "0" || ports.split(',').any(|other| other == port) {
        return Ok(text(ports));
    }
    let kept = ports
        .split(',')
        .map(str::trim)
        .filter(|other| !other.is_empty());
    bounded(kept.chain([port]).collect::<Vec<_>>().join(","))
}

/// The TCP ports of containers.
fn ports(args: &[Value], counts: fn(&str) -> bool) -> Result<Value> {
    let mut found = Vec::new();

    for container in list_at(args, 0)?.iter() {
        let name = container
            .field("Name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let ports = container.field("Ports").filter(|_| counts(name));
        if let Some(Value::List(ports)) = ports {
            let udp = |port: &&Value| {
                matches!(
                    port.field("Protocol").and_then(Value::as_str),
                    Some("UDP" | "SCTP")
                )
            };
            let numbers = ports
                .iter()
                .filter(|port| !udp(port))
                .filter_map(|port| port.field("ContainerPort")?.as_int());
            found.extend(numbers.map(|number| number.to_string()));
        }
    }

    bounded(found.join(","))
}

/// An annotation from an object's metadata, or a default.
fn annotation(args: &[Value]) -> Result<Value> {
    let annotations = map_at(args, 0)?
        .get("Annotations")
        .cloned()
        .unwrap_or(Value::Nil);
    match as_map(&annotations)?.get(text_at(args, 1)?.as_str()) {
        Some(value) => Ok(value.clone()),
        None => text_at(args, 2).map(text),
    }
}

/// A value, or the default if the value is nil or empty.
fn value_or_default(args: &[Value]) -> Result<Value> {
    let value = at(args, 0)?;
    let unset = matches!(value, Value::Nil) || value.as_str() == Some("");
    if unset {
        at(args, 1).cloned()
    } else {
        Ok(value.clone())
    }
}

/// Parses JSON text; invalid text counts as `{}`, as in Istio.
fn from_json(args: &[Value]) -> Result<Value> {
    let json = serde_json::from_str::<Json>(&text_at(args, 0)?);
    Ok(json.map_or_else(|_| text("{}"), |json| of_json(&json)))
}

/// The JSON of a message.
fn proto_to_json(args: &[Value]) -> Result<Value> {
    match at(args, 0)? {
        Value::Nil => Ok(text("{}")),
        value => match value.field(JSON) {
            Some(json) => Ok(json.clone()),
            None => bounded(go_json::text(&to_json(value)?)),
        },
    }
}

/// Indents all lines except the first.
fn indent(args: &[Value]) -> Result<Value> {
    let spaces = " ".repeat(length_at(args, 0)?.min(1_000));
    let source = text_at(args, 1)?;
    bounded(source.replace('\n', &format!("\n{spaces}")))
}

/// A map without the given keys.
fn omit(args: &[Value]) -> Result<Value> {
    let mut kept = (*map_at(args, 0)?).clone();
    for key in args.iter().skip(1) {
        kept.remove(printed(key)?.as_str());
    }
    Ok(map(kept))
}

/// A map of strings from alternating keys and values.
fn strdict(pairs: &[String]) -> Value {
    let entry = |pair: &[String]| {
        let mut pair = pair.iter().map(String::as_str);
        (
            pair.next().unwrap_or_default().into(),
            text(pair.next().unwrap_or_default()),
        )
    };
    map(pairs.chunks(2).map(entry).collect())
}

/// Merges maps; later maps take precedence.
fn merge_maps(args: &[Value]) -> Result<Value> {
    let mut merged = Entries::new();
    for value in args {
        merged.extend(
            as_map(value)?
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
    }
    Ok(map(merged))
}

/// A value without nils and without parts that become empty; `None` if nothing remains.
fn omit_nil(value: &Value) -> Option<Value> {
    match value {
        Value::Nil => None,
        Value::Map(entries) if entries.values().any(changes) => {
            let kept: Entries = entries
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), omit_nil(value)?)))
                .collect();
            (!kept.is_empty()).then(|| map(kept))
        }
        Value::List(items) if items.iter().any(changes) => {
            let kept: Vec<_> = items.iter().filter_map(omit_nil).collect();
            (!kept.is_empty()).then(|| Value::List(kept.into()))
        }
        value => Some(value.clone()),
    }
}

/// Whether a value contains a nil.
fn changes(value: &Value) -> bool {
    match value {
        Value::Nil => true,
        Value::Map(entries) => entries.values().any(changes),
        Value::List(items) => items.iter().any(changes),
        _ => false,
    }
}

/// The service's OpenTelemetry resource attributes, if a tracing provider of mesh config requires
/// them.
fn otel(args: &[Value]) -> Result<Value> {
    let wants = |provider: &Value| {
        let enrichment = provider
            .field("Opentelemetry")
            .and_then(|otel| otel.field("ServiceAttributeEnrichment"));
        enrichment.and_then(Value::as_str) == Some("OTEL_SEMANTIC_CONVENTIONS")
    };

    let Some(Value::List(providers)) = at(args, 0)?.field("ExtensionProviders") else {
        return Ok(text(""));
    };

    if !providers.iter().any(wants) {
        return Ok(text(""));
    }

    let annotations = map_at(args, 1)?;
    let labels = map_at(args, 2)?;
    let containers = list_at(args, 4)?;
    let annotations = annotations
        .iter()
        .filter_map(|(name, value)| Some((&**name, value.as_str()?)))
        .collect();
    let field = |container: &'_ Value, name: &str| -> String {
        container
            .field(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };

    let owned: Vec<_> = containers
        .iter()
        .map(|item| (field(item, "Name"), field(item, "Image")))
        .collect();
    let containers: Vec<_> = owned
        .iter()
        .map(|(name, image)| (name.as_str(), image.as_str()))
        .collect();

    let version = labels
        .get("app.kubernetes.io/version")
        .and_then(Value::as_str);
    let namespace = text_at(args, 3)?;
    bounded(image::otel_attributes(
        &annotations,
        version,
        &namespace,
        &containers,
    ))
    .map_err(|_| fault("too long"))
}
