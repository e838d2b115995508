//! Node metadata of proxies on virtual machines, through the WorkloadEntry that they register.
//!
//! The first line of an input is the node id, the rest its metadata as JSON.

use navarch::push::proxy::{Locality, Proxy};
use navarch::server::registered_workload;
use navarch::status::Claim;
use serde_json::Value;

/// The maximum length of a name in Kubernetes.
const MAX_NAME: usize = 253;

/// Registers one proxy.
///
/// # Panics
/// If Kubernetes would reject the entry's name, or the entry is not in the proxy's namespace.
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

        // A name that the proxy chose is rejected later, when it is looked up.
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
