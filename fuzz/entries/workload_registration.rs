//! What proxies of virtual machines say of themselves, up to the WorkloadEntry that they ask for.
//!
//! The first line of an input is the node's id, the rest its metadata as JSON.

use navarch::push::proxy::{Locality, Proxy};
use navarch::server::registered_workload;
use navarch::status::Claim;
use serde_json::Value;

/// The longest name that Kubernetes takes.
const MAX_NAME: usize = 253;

/// Has one proxy register.
///
/// # Panics
/// When the entry's name is none that Kubernetes could take, or its namespace is not the proxy's.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (node, metadata) = text.split_once('\n').unwrap_or((&text, ""));
    let metadata = serde_json::from_str(metadata).unwrap_or(Value::Null);

    for locality in ["r/z/s", "", "/", "r//s/t"] {
        let Ok(proxy) = Proxy::parse(node.trim(), metadata.clone(), Locality::parse(locality))
        else {
            return;
        };

        let Some(workload) = registered_workload(&proxy) else {
            continue;
        };

        let entry = workload.entry();
        assert!(!entry.name.is_empty(), "{entry}");

        // A name that the proxy chose itself is refused where it is looked up.
        assert!(
            matches!(workload.claim, Claim::Entry(_)) || entry.name.len() <= MAX_NAME,
            "{entry}"
        );
        assert!(
            !entry.namespace.is_empty() && entry.namespace == proxy.namespace,
            "{entry}"
        );
    }
}
