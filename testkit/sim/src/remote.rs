//! A remote cluster: an API server of its own, which replicas read once there is a Secret with its
//! kubeconfig.

use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::link::{Condition, Link};
use crate::replica::SYSTEM_NAMESPACE;
use crate::story::Story;
use crate::tell;
use crate::world::NAMESPACES;

/// The name of the cluster, in the story and in its kubeconfig.
const NAME: &str = "west";
/// The host of its API server.
const HOST: &str = "west.sim";
/// The name of the Secret with its kubeconfig.
pub(crate) const SECRET: &str = "istio-remote-secret-west";

/// The cluster.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) server: ApiServer,
    story: Story,
    /// The way of all replicas to it.
    link: Link,
}

impl Remote {
    /// A cluster with namespaces, which clients of this process reach by its kubeconfig.
    pub(crate) fn new(seed: u64, story: &Story) -> Self {
        let server = ApiServer::new(NAME, seed, story.clone(), None);
        for name in NAMESPACES.iter().chain([&SYSTEM_NAMESPACE]) {
            server.apply(&json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
            }));
        }

        let link = Link::default();
        let of_clients = server.clone();
        let link_of_clients = link.clone();
        navarch_kubernetes::connect_by(Box::new(move |config| {
            let is_it = config.cluster_url.host() == Some(HOST);
            is_it.then(|| of_clients.client("reader of west", &link_of_clients, seed))
        }));

        Self {
            server,
            story: story.clone(),
            link,
        }
    }

    /// Changes the condition of the link to it.
    pub(crate) fn set_link(&self, condition: Condition) {
        if self.link.condition() != condition {
            tell!(
                self.story,
                NAME,
                "link to the remote API server: {condition:?}"
            );
            self.link.set(condition);
        }
    }
}

/// The Secret with its kubeconfig.
pub(crate) fn secret() -> Value {
    use base64::Engine as _;

    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {NAME}\n\
         contexts: [{{name: {NAME}, context: {{cluster: {NAME}, user: {NAME}}}}}]\n\
         clusters: [{{name: {NAME}, cluster: {{server: 'https://{HOST}'}}}}]\n\
         users: [{{name: {NAME}, user: {{token: t}}}}]\n"
    );
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": SECRET, "namespace": SYSTEM_NAMESPACE,
            "labels": { "istio/multiCluster": "true" },
            "annotations": { "networking.istio.io/cluster": NAME },
        },
        "data": { NAME: base64::prelude::BASE64_STANDARD.encode(kubeconfig) },
    })
}
