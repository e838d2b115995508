//! Packets that applications send to the agent's DNS server.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use navarch::agent::dns::{Carrier, DnsAnswer, Table, TableConfig, answer};
use navarch_proto::istio::networking::nds::v1::NameTable;
use navarch_proto::istio::networking::nds::v1::name_table::NameInfo;

/// The table, built once.
static TABLE: OnceLock<Table> = OnceLock::new();

/// A table with a host of every kind.
fn table() -> Table {
    let info = |ips: Vec<String>, registry: &str| NameInfo {
        ips,
        registry: registry.to_owned(),
        shortname: "web".to_owned(),
        namespace: "shop".to_owned(),
        ..NameInfo::default()
    };

    let many = (0..250).map(|last| format!("10.0.0.{last}")).collect();
    let both = vec!["10.1.0.1".to_owned(), "fd00::1".to_owned()];
    let wire = NameTable {
        table: BTreeMap::from([
            (
                "web.shop.svc.cluster.local".to_owned(),
                info(both, "Kubernetes"),
            ),
            ("many.example".to_owned(), info(many, "External")),
            (
                "*.wild.example".to_owned(),
                info(vec!["10.2.0.1".to_owned()], "External"),
            ),
        ]),
    };

    let search = vec!["shop.svc.cluster.local".to_owned()];
    Table::new(
        &wire,
        &TableConfig {
            namespace: "shop".to_owned(),
            domain: search[0].clone(),
            search,
        },
    )
}

/// Handles one packet.
///
/// # Panics
/// If a response is larger than the client accepts, or does not belong to the query.
pub fn run(data: &[u8]) {
    let table = TABLE.get_or_init(table);

    for (carrier, table) in [
        (Carrier::Udp, Some(table)),
        (Carrier::Tcp, Some(table)),
        (Carrier::Udp, None),
    ] {
        let bytes = match answer(data, carrier, table, 7, true) {
            DnsAnswer::Now(bytes) => bytes,
            DnsAnswer::Forward(question) => {
                assert!(data.len() >= 12, "only packets with a header are forwarded");
                question.failure
            }
            DnsAnswer::Nothing => continue,
        };

        assert_eq!(
            bytes.get(..2),
            data.get(..2),
            "the response has the query's id"
        );
        assert!(
            bytes.get(2).is_some_and(|flags| flags & 0x80 != 0),
            "the response bit is set"
        );
        assert!(bytes.len() <= usize::from(u16::MAX));

        // A response is never answered, so two agents cannot send each other packets for ever.
        assert_eq!(answer(&bytes, carrier, table, 7, true), DnsAnswer::Nothing);
    }
}
