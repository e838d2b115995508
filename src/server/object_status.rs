//! What objects of the Gateway API should be told, from the push thread to whoever writes it.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use navarch_api::settings::Settings;
use navarch_envoy::gateway_api::StatusSubject;
use navarch_push::engine::{Interest, PushCause, Sink};
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::resource::{Collection, Resource, ResourceType};
use navarch_push::worker::PushHandle;
use navarch_status::{Cluster, ObjectStatuses, WantedStatus, WantedStatuses};

/// The node id under which statuses are asked for.
const NODE: &str = "router~127.0.0.1~status.navarch~navarch";
/// The controller of waypoints, in whose name policies are told of the mesh as well.
const MESH_CONTROLLER: &str = "istio.io/mesh-controller";

/// Hands over what was published last; what is overtaken is passed over.
struct Latest(watch::Sender<Option<Arc<Collection>>>);

impl Sink for Latest {
    fn publish(&self, _: ResourceType, collection: Arc<Collection>, _: &Arc<PushCause>) {
        self.0.send_replace(Some(collection));
    }
}

/// Writes statuses until told to stop.
pub(super) async fn run(push: PushHandle, cluster: Cluster, settings: Settings, stop: CancellationToken) {
    let proxy = match Proxy::parse(NODE, Value::Object(Map::new()), Locality::default()) {
        Ok(proxy) => Arc::new(proxy),
        Err(error) => {
            tracing::error!(%error, "statuses are not written");
            return;
        }
    };
    let (latest, published) = watch::channel(None);
    let Ok(id) = push.connect(proxy, None, Arc::new(Latest(latest))).await else { return };
    let all = Interest { wildcard: true, ..Interest::default() };
    if push.subscribe(id, ResourceType::ObjectStatus, all).await.is_ok() {
        let (told, wanted) = watch::channel(WantedStatuses::new());
        let controllers = vec![settings.gateway_api.controller, MESH_CONTROLLER.to_owned()];
        let writer = ObjectStatuses { cluster, wanted, controllers };
        tokio::select! {
            () = follow(published, told) => {}
            () = writer.run(stop) => {}
        }
    }
    push.disconnect(id);
}

/// Keeps the map of what is wanted as the collections have it. Costs what differs between one and the next.
async fn follow(mut published: watch::Receiver<Option<Arc<Collection>>>, told: watch::Sender<WantedStatuses>) {
    let mut before: Option<Arc<Collection>> = None;
    while published.changed().await.is_ok() {
        let Some(now) = published.borrow_and_update().clone() else { continue };
        told.send_modify(|wanted| {
            let empty = Collection::new(ResourceType::ObjectStatus, Default::default());
            let [gone, new] = before.as_deref().unwrap_or(&empty).resources.apart(&now.resources);
            for subject in gone.filter_map(|resource| StatusSubject::parse(resource.name.as_str())) {
                wanted.remove(subject.object());
            }
            for (subject, status) in new.filter_map(|resource| read(resource)) {
                wanted.insert(subject.object().clone(), status);
            }
        });
        before = Some(now);
    }
}

/// An object and what it should be told.
fn read(resource: &Resource) -> Option<(StatusSubject, WantedStatus)> {
    let subject = StatusSubject::parse(resource.name.as_str())?;
    let status: Map<String, Value> = serde_json::from_slice(&resource.body).ok()?;
    Some((subject, Arc::new(status)))
}
