//! Starts the reviews of service accounts that read secrets; the push thread gets the results.

use tokio::sync::mpsc;

use super::boot::Boot;
use navarch_push::mesh_state::{Change, RemoteChange};
use navarch_push::worker::PushHandle;
use navarch_security::remote_servers::RemoteServers;
use navarch_security::secret_access::{self, AccessRequest, AccountKey, Reviewers};

/// Capacity of the request channel; streams block when it is full.
const MAX_PENDING_REVIEWS: usize = 1024;

/// Starts the task that asks the API servers. Returns its request channel.
pub(super) fn start(
    client: &kube::Client,
    remotes: RemoteServers,
    push: &PushHandle,
    boot: &mut Boot,
) -> mpsc::Sender<AccessRequest> {
    let (requests, inbox) = mpsc::channel(MAX_PENDING_REVIEWS);
    let cluster = push.context().mesh.settings.cluster_id.clone();
    let reviewers = Reviewers::new(client.clone(), cluster, remotes);

    let push = push.clone();
    let publish = move |name: AccountKey, allowed: Option<bool>| {
        let push = push.clone();
        async move { push.change(vec![change(name, allowed)]).await }
    };

    boot.spawn_until_stop(
        "secret access",
        secret_access::run(reviewers, inbox, publish),
    );
    requests
}

/// The access of an account, as a change of the mesh state.
fn change(name: AccountKey, allowed: Option<bool>) -> Change {
    let AccountKey { cluster, account } = name;
    match cluster {
        None => Change::SecretReader(account, allowed),
        Some(cluster) => Change::Remote(cluster, RemoteChange::SecretReader(account, allowed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::names::ClusterId;
    use navarch_api::object::NamespacedName;

    #[test]
    fn access_in_remote_clusters_is_kept_apart() {
        let key = |cluster: Option<ClusterId>| AccountKey {
            cluster,
            account: NamespacedName::new("edge", "gw"),
        };

        let own = change(key(None), Some(true));
        assert!(matches!(own, Change::SecretReader(_, Some(true))));

        let remote = change(key(Some(ClusterId::new("west"))), None);
        assert!(matches!(
            remote,
            Change::Remote(_, RemoteChange::SecretReader(_, None))
        ));
    }
}
