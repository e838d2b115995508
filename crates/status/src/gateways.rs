//! GatewayClasses, and the proxies of Gateways (istiod's `pilot/pkg/config/kube/gatewaycommon`).
//!
//! ```text
//! watches ──▶ ClusterState ──Plan──▶ Writer ──server-side apply──▶ Deployment, Service, …
//!                  ▲
//!   templates of injection, ConfigMaps
//! ```
//!
//! The objects of a Gateway are a pure function of the state ([`ClusterState::plan`]). The Gateway
//! owns them, so that Kubernetes deletes them with it. An object of the same name without the label
//! of these controllers is foreign, and never written. If an overlay is rejected, the objects stay
//! as they are, and the Gateway's status has the reason (`rejected_overlays`).

mod classes;
mod cluster_state;
mod deployments;
mod gateway_classes;
mod listener_sets;
mod metadata;
mod objects;
mod overlays;
mod ports;
pub(crate) mod rejected_overlays;
mod settings;
mod watches;
mod writer;

pub use classes::ClassInfo;
pub use cluster_state::{ClusterState, Plan};
pub use deployments::GatewayDeployments;
pub use gateway_classes::GatewayClasses;
pub use objects::{Deployed, ObjectsError, objects};
pub use overlays::Overlay;
pub use settings::GatewayControllerSettings;
pub use watches::{DeployedKind, Source};
pub(crate) use watches::{SourceEvents, metadata_events, resource};

/// The group and version of the watched kinds.
const GATEWAY_API: (&str, &str) = ("gateway.networking.k8s.io", "v1");
/// The label of objects that these controllers created. The value is the controller.
const MANAGED: &str = "gateway.istio.io/managed";
