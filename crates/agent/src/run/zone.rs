//! The zone of the proxy from the control plane (`NAVARCH_ZONE_FROM_CONTROL_PLANE`), for machines
//! whose cloud platform does not tell it. The agents of Istio's first versions asked so, too.
//!
//! Envoy starts without a zone. The answer is written into the bootstrap, and Envoy is reloaded:
//! once in the life of the proxy.

use std::future::pending;
use std::time::Duration;

use navarch_proto::envoy::config::core::v3::{Locality as LocalityMessage, Node};
use navarch_proto::envoy::service::discovery::v3::DiscoveryResponse;
use prost::Message as _;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::bootstrap_check::BootstrapCheck;
use super::prepare::Prepared;
use super::xds_request::{self, REQUEST_TIMEOUT, XdsRequest, XdsRequestError};
use super::{epochs, files, watch};
use crate::bootstrap::SETTINGS_KEY;
use crate::envoy_life::EnvoyCommand;
use crate::node::Locality;
use crate::upstream::UpstreamConfig;
use crate::variables::Variables;

/// Maximum number of requests, as of the agents of Istio 0.8.
const ATTEMPTS: u32 = 10;
/// The default of `NAVARCH_ZONE_RETRY_DELAY`, as in Istio 0.8.
const DEFAULT_DELAY: Duration = Duration::from_secs(30);
/// Metadata that the request does not have: with the first two its short stream would count as the
/// connection of the machine's WorkloadEntry, and end it.
const LEFT_OUT: [&str; 3] = ["AUTO_REGISTER_GROUP", "WORKLOAD_ENTRY", SETTINGS_KEY];

/// Why an answer is of no use.
#[derive(Debug, thiserror::Error)]
enum ZoneError {
    /// There is no response with at most one locality.
    #[error(transparent)]
    Request(#[from] XdsRequestError),
    /// The locality cannot be read.
    #[error("the locality is invalid")]
    Invalid(#[from] prost::DecodeError),
}

/// The pending question for the zone.
#[derive(Debug)]
pub(super) struct ZoneRequest {
    request: XdsRequest,
    /// The wait between two attempts.
    delay: Duration,
}

impl ZoneRequest {
    /// The request, if it is enabled, no zone is known, and the agent writes the bootstrap.
    pub(super) fn planned(
        prepared: &Prepared,
        variables: &Variables,
        control_plane: UpstreamConfig,
    ) -> Option<Self> {
        let is_enabled = variables.flag("NAVARCH_ZONE_FROM_CONTROL_PLANE", false);
        if !is_enabled || prepared.settings.disable_envoy || !prepared.node.locality.zone.is_empty()
        {
            return None;
        }

        let Some(written) = &prepared.written else {
            tracing::warn!("NAVARCH_ZONE_FROM_CONTROL_PLANE has no effect with customConfigFile");
            return None;
        };
        if variables.flag("BOOTSTRAP_XDS_AGENT", false) {
            tracing::info!(
                "NAVARCH_ZONE_FROM_CONTROL_PLANE is not needed with BOOTSTRAP_XDS_AGENT, whose bootstrap has the zone"
            );
            return None;
        }

        Some(Self {
            request: XdsRequest::new(control_plane, node(&written.node)),
            delay: variables.duration("NAVARCH_ZONE_RETRY_DELAY", DEFAULT_DELAY),
        })
    }

    async fn send(&self) -> Result<Option<Locality>, ZoneError> {
        let response = self
            .request
            .send::<LocalityMessage>(REQUEST_TIMEOUT)
            .await?;
        locality(&response)
    }
}

/// Asks for the zone, and reloads Envoy when one comes. Does not return.
pub(super) async fn reload_when_known(
    request: Option<ZoneRequest>,
    prepared: &Prepared,
    check: &BootstrapCheck,
    give: mpsc::Sender<EnvoyCommand>,
) {
    if let Some(request) = request {
        let answer = wait_for_zone(request.delay, async || request.send().await).await;
        if let Some(locality) = answer {
            reload(prepared, check, locality, &give).await;
        }
    }
    pending().await
}

/// Requests the zone until it is known; `None` after [`ATTEMPTS`].
async fn wait_for_zone(
    delay: Duration,
    request: impl AsyncFn() -> Result<Option<Locality>, ZoneError>,
) -> Option<Locality> {
    for attempt in 1..=ATTEMPTS {
        if attempt > 1 {
            sleep(delay).await;
        }
        match request().await {
            Ok(Some(locality)) => return Some(locality),
            Ok(None) => tracing::info!(
                attempt,
                "the control plane does not know the zone of the proxy"
            ),
            Err(error) => {
                let reason: &dyn std::error::Error = &error;
                tracing::warn!(
                    reason,
                    attempt,
                    "failed to ask the control plane for the zone of the proxy"
                );
            }
        }
    }

    tracing::warn!(
        attempts = ATTEMPTS,
        "the proxy has no zone: neither the cloud platform nor the control plane knows it"
    );
    None
}

/// Writes the bootstrap with a locality, and sends the command to reload Envoy. A bootstrap that
/// Envoy rejects is not used.
async fn reload(
    prepared: &Prepared,
    check: &BootstrapCheck,
    locality: Locality,
    give: &mpsc::Sender<EnvoyCommand>,
) {
    let Locality { region, zone, .. } = locality.clone();
    let path = &prepared.bootstrap;
    let without = match prepared.rewrite_bootstrap(locality).await {
        Ok(without) => without,
        Err(error) => {
            let reason: &dyn std::error::Error = &error;
            tracing::error!(path, reason, "failed to write the bootstrap with the zone");
            return;
        }
    };

    let arguments = watch::arguments(prepared).unwrap_or_else(|| prepared.arguments.clone());
    if let Err(error) = check.accepts(&arguments).await {
        tracing::error!(region, zone, %error, "the bootstrap with the zone is not used");
        if let Err(error) = files::write(path, without.as_bytes()) {
            tracing::error!(path, %error, "failed to write the bootstrap without the zone");
        }
        return;
    }

    tracing::info!(
        region,
        zone,
        "the control plane knows the zone; reloading Envoy"
    );
    let command = if epochs::hot_restart(prepared).is_some() {
        EnvoyCommand::NextEpoch
    } else {
        EnvoyCommand::Restart(arguments)
    };
    // Without a receiver Envoy is about to end.
    let _ = give.send(command).await;
}

/// The node of the request, of its JSON in the bootstrap.
fn node(json: &Value) -> Node {
    let mut node = xds_request::node(json);
    if let Some(metadata) = &mut node.metadata {
        for key in LEFT_OUT {
            metadata.fields.remove(key);
        }
    }
    node
}

/// The locality of a response, if it has a zone.
fn locality(response: &DiscoveryResponse) -> Result<Option<Locality>, ZoneError> {
    let Some(resource) = xds_request::resource::<LocalityMessage>(response)? else {
        return Ok(None);
    };
    let message = LocalityMessage::decode(resource.value.as_slice())?;
    let locality = Locality {
        region: message.region,
        zone: message.zone,
        sub_zone: message.sub_zone,
    };
    Ok(Some(locality).filter(|locality| !locality.zone.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use navarch_proto::any::{pack, type_url};
    use serde_json::json;

    use super::*;

    fn response(localities: &[LocalityMessage]) -> DiscoveryResponse {
        DiscoveryResponse {
            type_url: type_url::<LocalityMessage>(),
            resources: localities.iter().map(pack).collect(),
            ..DiscoveryResponse::default()
        }
    }

    fn message(region: &str, zone: &str) -> LocalityMessage {
        LocalityMessage {
            region: region.to_owned(),
            zone: zone.to_owned(),
            sub_zone: String::new(),
        }
    }

    /// How often the control plane is asked that answers at the `last` attempt, and the answer.
    async fn requests_until(last: u32) -> (u32, Option<Locality>) {
        let asked = Cell::new(0);
        let answer = wait_for_zone(Duration::ZERO, async || {
            asked.set(asked.get() + 1);
            match asked.get() {
                attempt if attempt == last => Ok(Some(Locality::parse("r/z"))),
                attempt if attempt % 2 == 0 => Err(ZoneError::from(XdsRequestError::Count(2))),
                _ => Ok(None),
            }
        })
        .await;
        (asked.get(), answer)
    }

    #[tokio::test]
    async fn the_control_plane_is_asked_ten_times_until_it_knows_the_zone() {
        let known = Some(Locality::parse("r/z"));
        assert_eq!(requests_until(1).await, (1, known.clone()));
        assert_eq!(requests_until(4).await, (4, known.clone()));
        assert_eq!(requests_until(10).await, (10, known));
        assert_eq!(requests_until(11).await, (10, None));
    }

    #[test]
    fn a_locality_without_a_zone_is_no_answer() {
        let read = |localities: &[LocalityMessage]| locality(&response(localities));
        let known = read(&[message("r", "z")]).unwrap();
        assert_eq!(known, Some(Locality::parse("r/z")));
        assert_eq!(read(&[message("r", "")]).unwrap(), None);
        assert_eq!(read(&[]).unwrap(), None);

        let several = read(&[message("r", "z"), message("r", "y")]).unwrap_err();
        assert!(
            matches!(several, ZoneError::Request(XdsRequestError::Count(2))),
            "{several}"
        );
        let mut broken = response(&[message("r", "z")]);
        broken.resources[0].value = vec![0xff];
        let broken = locality(&broken).unwrap_err();
        assert!(matches!(broken, ZoneError::Invalid(_)), "{broken}");
    }

    #[test]
    fn the_request_registers_no_workload_entry() {
        let node = node(&json!({
            "id": "sidecar~a",
            "metadata": {
                "NAME": "web-1", "AUTO_REGISTER_GROUP": "vms", "WORKLOAD_ENTRY": "vm",
                SETTINGS_KEY: { "delta": true },
            },
        }));
        let names: Vec<String> = node.metadata.unwrap().fields.into_keys().collect();
        assert_eq!(names, ["NAME"]);
    }
}
