//! The API servers of remote clusters: tokens and rights of proxies are asked about in the cluster that they are of.

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
    /// Other names of clusters (`--clusterAliases`).
    aliases: Arc<BTreeMap<ClusterId, ClusterId>>,
    servers: Arc<RwLock<BTreeMap<ClusterId, RemoteServer>>>,
}

/// One of them.
#[derive(Clone)]
struct RemoteServer {
    /// Who is asked about rights.
    server: Option<ApiServer>,
    /// Who is asked about tokens.
    reviews: Arc<TokenReviews>,
}

impl RemoteServers {
    /// None yet; clusters may be called by these other names.
    #[must_use]
    pub fn new(aliases: BTreeMap<ClusterId, ClusterId>) -> Self {
        Self { aliases: Arc::new(aliases), servers: Arc::default() }
    }

    /// From now on a cluster is asked by this client, about tokens for these audiences.
    pub fn set(&self, cluster: ClusterId, client: kube::Client, audiences: Vec<String>) {
        let server = ApiServer::new(client);
        let reviews = TokenReviews::new(Arc::new(server.clone()), audiences);
        self.insert(cluster, Some(server), reviews);
    }

    /// From now on a cluster is asked so.
    pub(super) fn insert(&self, cluster: ClusterId, server: Option<ApiServer>, reviews: TokenReviews) {
        let remote = RemoteServer { server, reviews: Arc::new(reviews) };
        self.servers.write().insert(cluster, remote);
    }

    /// A cluster is asked no more.
    pub fn remove(&self, cluster: &ClusterId) {
        self.servers.write().remove(cluster);
    }

    /// The cluster that is meant by a name.
    #[must_use]
    pub fn meant(&self, name: &str) -> ClusterId {
        let name = ClusterId::new(name);
        self.aliases.get(&name).cloned().unwrap_or(name)
    }

    /// The API server of a cluster, if it is known.
    #[must_use]
    pub fn server(&self, cluster: &ClusterId) -> Option<ApiServer> {
        self.servers.read().get(cluster)?.server.clone()
    }

    /// Who reviews the tokens of a cluster, if it is known.
    pub(super) fn reviews(&self, cluster: &ClusterId) -> Option<Arc<TokenReviews>> {
        self.servers.read().get(cluster).map(|remote| remote.reviews.clone())
    }
}

impl fmt::Debug for RemoteServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.servers.read().keys()).finish()
    }
}
