//! The name table as protobuf's JSON, for `/debug/ndsz`.

use navarch_proto::istio::networking::nds::v1::NameTable;
use serde_json::{Map, Value, json};

/// The table as JSON, without unset fields.
pub(super) fn to_json(table: &NameTable) -> Value {
    let info = |info: &navarch_proto::istio::networking::nds::v1::name_table::NameInfo| {
        let texts = [
            ("registry", &info.registry),
            ("shortname", &info.shortname),
            ("namespace", &info.namespace),
        ];
        let texts = texts
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(key, text)| (key, json!(text)));

        let ips = (!info.ips.is_empty()).then(|| ("ips", json!(info.ips)));
        let fields: Map<String, Value> = ips
            .into_iter()
            .chain(texts)
            .map(|(key, value)| (key.to_owned(), value))
            .collect();

        Value::Object(fields)
    };

    let hosts: Map<String, Value> = table
        .table
        .iter()
        .map(|(host, found)| (host.clone(), info(found)))
        .collect();

    if hosts.is_empty() {
        json!({})
    } else {
        json!({ "table": hosts })
    }
}
