//! Passes the wanted status of objects from the push thread to the writer: for Gateway API objects
//! their own status, for others their waypoints and the enforcing proxies.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use navarch_api::object::ObjectRef;
use navarch_api::settings::Settings;
use navarch_envoy::gateway_api::StatusSubject;
use navarch_push::engine::{Interest, PushCause, Sink};
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::resource::{Collection, Resource, ResourceType};
use navarch_push::rollout::STATUS_CLIENT;
use navarch_push::worker::PushHandle;
use navarch_status::{
    Cluster, DesiredStatus, DesiredStatuses, ObjectStatuses, Responsibility, StatusScope,
};

/// The controller name of waypoints, which is also used in the status of policies.
const MESH_CONTROLLER: &str = "istio.io/mesh-controller";

/// A family of objects whose statuses are written. Each has its own leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Objects of the Gateway API.
    GatewayApi,
    /// Objects that have waypoints, or are enforced by them.
    Ambient,
}

impl Family {
    /// The object whose status has this name, if it is of the family.
    fn object(self, name: &str) -> Option<ObjectRef> {
        match self {
            Self::GatewayApi => StatusSubject::parse(name).map(|subject| subject.object().clone()),
            Self::Ambient => navarch_ambient::status::subject(name),
        }
    }

    /// The part of the status that is written.
    fn scope(self) -> StatusScope {
        match self {
            Self::GatewayApi => StatusScope::Whole,
            Self::Ambient => StatusScope::Wanted,
        }
    }
}

/// Sends the last published statuses; outdated ones are skipped.
struct LatestCollection(watch::Sender<Option<Arc<Collection>>>);

impl Sink for LatestCollection {
    fn publish(&self, _: ResourceType, collection: Arc<Collection>, _: &Arc<PushCause>) {
        self.0.send_replace(Some(collection));
    }
}

/// Writes statuses until `stop` is cancelled.
pub(super) async fn run(
    family: Family,
    push: PushHandle,
    cluster: Cluster,
    settings: Settings,
    responsibility: Responsibility,
    deploys_gateways: bool,
    stop: CancellationToken,
) {
    let node = format!("router~127.0.0.1~{STATUS_CLIENT}~navarch");
    let proxy = match Proxy::parse(&node, Value::Object(Map::new()), Locality::default()) {
        Ok(proxy) => Arc::new(proxy),
        Err(error) => {
            tracing::error!(%error, "failed to parse the node ID of the status reader; statuses are not written");
            return;
        }
    };

    let (latest, published) = watch::channel(None);
    let Ok(id) = push
        .connect(proxy, None, Arc::new(LatestCollection(latest)))
        .await
    else {
        return;
    };

    let all = Interest {
        wildcard: true,
        ..Interest::default()
    };

    if push
        .subscribe(id, ResourceType::ObjectStatus, all)
        .await
        .is_ok()
    {
        let (sender, wanted) = watch::channel(DesiredStatuses::new());
        let controllers = vec![settings.gateway_api.controller, MESH_CONTROLLER.to_owned()];
        let writer = ObjectStatuses {
            cluster,
            wanted,
            controllers,
            scope: family.scope(),
            responsibility,
            deploys_gateways: family == Family::GatewayApi && deploys_gateways,
        };
        tokio::select! {
            () = follow(family, published, sender) => {}
            () = writer.run(stop) => {}
        }
    }

    push.disconnect(id);
}

/// Keeps the map of wanted statuses in sync with the collections. The cost depends on the
/// differences between consecutive collections.
async fn follow(
    family: Family,
    mut published: watch::Receiver<Option<Arc<Collection>>>,
    sender: watch::Sender<DesiredStatuses>,
) {
    let mut before: Option<Arc<Collection>> = None;

    while published.changed().await.is_ok() {
        let Some(now) = published.borrow_and_update().clone() else {
            continue;
        };

        sender.send_modify(|wanted| {
            let empty = Collection::new(ResourceType::ObjectStatus, Default::default());
            let [gone, new] = before
                .as_deref()
                .unwrap_or(&empty)
                .resources
                .apart(&now.resources);
            for object in gone.filter_map(|resource| family.object(resource.name.as_str())) {
                wanted.remove(&object);
            }
            for (object, status) in new.filter_map(|resource| read(family, resource)) {
                wanted.insert(object, status);
            }
        });

        before = Some(now);
    }
}

fn read(family: Family, resource: &Resource) -> Option<(ObjectRef, DesiredStatus)> {
    let object = family.object(resource.name.as_str())?;
    Some((object, resource.body.clone()))
}
