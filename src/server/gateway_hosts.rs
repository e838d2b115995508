//! Resolves the host names of gateways between networks (`RESOLVE_HOSTNAME_GATEWAYS`).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::boot::Boot;
use navarch_base::regular_file;
use navarch_base::resolv_conf::ResolvConf;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::Change;
use navarch_push::worker::{Ended, PushHandle};
use navarch_source::HostNames;

/// Minimum interval of reading the gateways from snapshots, as they hardly ever change.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);
/// The delay when nothing is due.
const IDLE_DELAY: Duration = Duration::from_hours(24);
/// The file with the machine's resolvers.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Starts the resolver task, if enabled.
pub(super) fn start(is_wanted: bool, push: &PushHandle, boot: &mut Boot) {
    if is_wanted {
        boot.spawn_until_stop("hosts of gateways", follow(push.clone()));
    }
}

/// Resolves the host names of gateways in the current snapshots; does not return.
///
/// # Errors
/// If the push thread has stopped.
async fn follow(push: PushHandle) -> Result<(), Ended> {
    let mut contexts = push.contexts();
    let mut names: Option<HostNames> = None;

    loop {
        let wanted = host_names(&contexts.borrow_and_update());
        if !wanted.is_empty() || names.is_some() {
            let news = names
                .get_or_insert_with(|| HostNames::new(resolvers()))
                .refresh(&wanted)
                .await;
            let changes: Vec<Change> = news
                .into_iter()
                .map(|(host, addresses)| Change::GatewayHost(host, addresses))
                .collect();
            if !changes.is_empty() {
                push.change(changes).await?;
            }
        }

        tokio::time::sleep(REFRESH_INTERVAL).await;
        let due = names
            .as_ref()
            .and_then(HostNames::due)
            .unwrap_or_else(|| Instant::now() + IDLE_DELAY);
        tokio::select! {
            changed = contexts.changed() => changed.map_err(|_| Ended)?,
            () = tokio::time::sleep_until(due) => {}
        }
    }
}

/// The resolvers of the machine.
fn resolvers() -> Vec<std::net::SocketAddr> {
    let text = regular_file::read_text(RESOLV_CONF.as_ref()).unwrap_or_default();
    ResolvConf::parse(&text).resolvers
}

/// The host names of gateways.
fn host_names(context: &PushContext) -> BTreeSet<Arc<str>> {
    let gateways = context
        .directory
        .network_gateways
        .values()
        .flat_map(|gateways| gateways.iter());
    let addresses = gateways.map(|gateway| &gateway.address);
    addresses
        .filter(|address| address.parse::<IpAddr>().is_err())
        .cloned()
        .collect()
}
