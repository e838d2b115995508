//! The API servers of remote clusters: each reviews the tokens and permissions of its own cluster's
//! proxies.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use super::api_server::ApiServer;
use super::authenticate::TokenReviews;
use navarch_api::names::ClusterId;

/// The API servers of remote clusters. Clones share them.
#[derive(Clone, Default)]
pub struct RemoteServers {
    /// Aliases of clusters (`--clusterAliases`).
    aliases: Arc<BTreeMap<ClusterId, ClusterId>>,
    servers: Arc<RwLock<BTreeMap<ClusterId, RemoteServer>>>,
}

/// The API server of a remote cluster.
#[derive(Clone)]
struct RemoteServer {
    /// The API server that reviews permissions.
    server: Option<ApiServer>,
    /// The reviewer of tokens.
    reviews: Arc<TokenReviews>,
}

impl RemoteServers {
    /// No servers; clusters have these aliases.
    #[must_use]
    pub fn new(aliases: BTreeMap<ClusterId, ClusterId>) -> Self {
        Self {
            aliases: Arc::new(aliases),
            servers: Arc::default(),
        }
    }

    /// Sets the client for a cluster, and the audiences of its tokens.
    pub fn set(&self, cluster: ClusterId, client: kube::Client, audiences: Vec<String>) {
        let server = ApiServer::new(client);
        let reviews = TokenReviews::new(Arc::new(server.clone()), audiences);
        self.insert(cluster, Some(server), reviews);
    }

    /// Sets the server and the reviewer of a cluster.
    pub(super) fn insert(
        &self,
        cluster: ClusterId,
        server: Option<ApiServer>,
        reviews: TokenReviews,
    ) {
        let remote = RemoteServer {
            server,
            reviews: Arc::new(reviews),
        };
        self.servers.write().insert(cluster, remote);
    }

    /// Afterwards tokens and permissions in `cluster` are not reviewed. No effect if it is not
    /// there.
    pub fn remove(&self, cluster: &ClusterId) {
        self.servers.write().remove(cluster);
    }

    /// The cluster with this name or alias.
    #[must_use]
    pub fn resolve(&self, name: &str) -> ClusterId {
        let name = ClusterId::new(name);
        self.aliases.get(&name).cloned().unwrap_or(name)
    }

    /// The API server of a cluster, if there is one.
    #[must_use]
    pub fn server(&self, cluster: &ClusterId) -> Option<ApiServer> {
        self.servers.read().get(cluster)?.server.clone()
    }

    /// The reviewer of a cluster's tokens, if there is one.
    pub(super) fn reviews(&self, cluster: &ClusterId) -> Option<Arc<TokenReviews>> {
        self.servers
            .read()
            .get(cluster)
            .map(|remote| remote.reviews.clone())
    }
}

impl fmt::Debug for RemoteServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.servers.read().keys()).finish()
    }
}
