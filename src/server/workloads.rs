//! Connects proxies of workloads that are not pods with their WorkloadEntries.

use std::sync::Arc;

use jiff::Timestamp;
use tonic::Status;

use super::Config;
use super::boot::Boot;
use navarch_api::istio::WorkloadEntry;
use navarch_api::object::Kind;
use navarch_push::proxy::{Locality, Proxy, ProxyKind};
use navarch_push::worker::PushHandle;
use navarch_status::{
    Claim, Cluster, KnownObjects, Registered, Registrar, RegistrationError, RegistrationMetrics,
    Workload, WorkloadHealth,
};
use navarch_xds::{AdmissionFuture, Presence, Workloads};

/// Starts the registration of workloads that are not pods.
pub(super) fn start(
    config: &Config,
    client: Option<&kube::Client>,
    push: &PushHandle,
    boot: &mut Boot,
) -> Arc<dyn Workloads> {
    let Some(client) = client.filter(|_| config.settings.discover_configuration) else {
        return Arc::new(WorkloadRegistration::Files { push: push.clone() });
    };

    let metrics = boot.register(RegistrationMetrics::register);
    let objects: KnownObjects = {
        let push = push.clone();
        Arc::new(move || push.context().objects.clone())
    };

    let registrar = Registrar::new(
        Cluster(client.clone()),
        objects,
        &config.writing.identity,
        config.writing.registration.clone(),
        metrics,
        boot.stop.clone(),
    );
    boot.spawn("workloads", registrar.clone().run());

    Arc::new(WorkloadRegistration::Kubernetes {
        registrar,
        sidecars_take_hbone: config.settings.sidecar_listening_hbone,
    })
}

/// Registers the WorkloadEntries of proxies of a WorkloadGroup.
#[derive(Debug)]
enum WorkloadRegistration {
    /// WorkloadEntries are written to the Kubernetes API.
    Kubernetes {
        registrar: Registrar,
        /// Whether sidecars accept HBONE.
        sidecars_take_hbone: bool,
    },
    /// WorkloadEntries come from files and are never written.
    Files {
        /// The objects of the files.
        push: PushHandle,
    },
}

impl Workloads for WorkloadRegistration {
    fn connect(&self, proxy: &Arc<Proxy>, at: Timestamp) -> AdmissionFuture {
        let Some(claim) = claim(proxy) else {
            return Box::pin(async { Ok(None) });
        };

        match self {
            Self::Kubernetes {
                registrar,
                sidecars_take_hbone,
            } => {
                let registrar = registrar.clone();
                let workload = workload(proxy, claim, *sidecars_take_hbone);
                Box::pin(async move {
                    let proxy = workload.proxy.clone();
                    match registrar.connect(workload, at).await {
                        Ok(registered) => Ok(registered.map(|registered| {
                            Box::new(RegisteredStream(registered)) as Box<dyn Presence>
                        })),
                        Err(error) => {
                            tracing::warn!(%proxy, error = %with_cause(&error), "failed to register a workload");
                            Err(status(&error))
                        }
                    }
                })
            }
            Self::Files { push } => {
                let entry = workload(proxy, claim, false).entry();
                let exists = push
                    .context()
                    .objects
                    .get::<WorkloadEntry>(&entry)
                    .is_some();

                Box::pin(async move {
                    if exists {
                        return Ok(None);
                    }
                    Err(Status::failed_precondition(format!(
                        "workload registration requires the Kubernetes API, but the configuration is read from files: \
                         add {} {entry} to them",
                        Kind::WorkloadEntry
                    )))
                })
            }
        }
    }
}

/// A stream whose workload has an entry.
#[derive(Debug)]
struct RegisteredStream(Registered);

impl Presence for RegisteredStream {
    fn report(&self, reason: Option<&str>) {
        self.0
            .report(reason.map_or(WorkloadHealth::Healthy, |reason| {
                WorkloadHealth::Unhealthy(reason.to_owned())
            }));
    }
}

/// The workload of a proxy, if it has one. Public for fuzzing.
#[must_use]
pub fn registered_workload(proxy: &Proxy) -> Option<Workload> {
    claim(proxy).map(|claim| workload(proxy, claim, true))
}

/// The entry that a proxy refers to.
fn claim(proxy: &Proxy) -> Option<Claim> {
    let text = |key: &str| proxy.meta(key).filter(|text| !text.is_empty());
    let claim = text("AUTO_REGISTER_GROUP")
        .map(Claim::Group)
        .or_else(|| text("WORKLOAD_ENTRY").map(Claim::Entry));
    claim.filter(|_| !proxy.namespace.is_empty())
}

fn workload(proxy: &Proxy, claim: Claim, sidecars_take_hbone: bool) -> Workload {
    let truth = |key: &str| {
        proxy
            .meta(key)
            .is_some_and(|text| matches!(text.as_str(), "true" | "1"))
    };
    let is_ambient = matches!(proxy.kind, ProxyKind::Waypoint | ProxyKind::Ztunnel);
    let probe = proxy.metadata.pointer("/PROXY_CONFIG/readinessProbe");

    Workload {
        proxy: proxy.name.clone(),
        namespace: proxy.namespace.clone(),
        // The list of IPs is never empty for a parsed proxy.
        address: proxy
            .ips
            .first()
            .copied()
            .unwrap_or(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)),
        network: proxy.meta("NETWORK").unwrap_or_default(),
        claim,
        labels: proxy
            .labels
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        locality: locality(&proxy.locality),
        is_probed: probe.is_some_and(|probe| !probe.is_null()),
        takes_hbone: is_ambient || sidecars_take_hbone && truth("ENABLE_HBONE"),
        identity: proxy.identity.clone(),
    }
}

/// `region/zone/subzone`, up to the first part that is missing.
fn locality(locality: &Locality) -> String {
    let parts = [&locality.region, &locality.zone, &locality.sub_zone];
    let present: Vec<&str> = parts
        .into_iter()
        .map(|part| &**part)
        .take_while(|part| !part.is_empty())
        .collect();
    present.join("/")
}

/// The gRPC status if registration fails.
fn status(error: &RegistrationError) -> Status {
    match error {
        RegistrationError::Name(_) => Status::invalid_argument(error.to_string()),
        RegistrationError::Unproved(..) => Status::permission_denied(error.to_string()),
        // Whether the entry exists is not revealed to callers without access.
        RegistrationError::NoGroup(name, _)
        | RegistrationError::NoEntry(name)
        | RegistrationError::Stranger(name, _) => Status::permission_denied(format!(
            "WorkloadEntry {name}: neither a WorkloadEntry nor a WorkloadGroup exists that the identity of the proxy may use"
        )),
        RegistrationError::Busy(_)
        | RegistrationError::Crowded(_)
        | RegistrationError::Api(..)
        | RegistrationError::Silence(_) => Status::unavailable(error.to_string()),
    }
}

fn with_cause(error: &RegistrationError) -> String {
    std::error::Error::source(error)
        .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn workload_metadata_is_read_from_the_proxy() {
        let metadata = json!({
            "NAMESPACE": "shop", "AUTO_REGISTER_GROUP": "vms", "WORKLOAD_ENTRY": "other", "NETWORK": "lan",
            "LABELS": { "app": "web" }, "ENABLE_HBONE": true,
            "PROXY_CONFIG": { "readinessProbe": { "tcpSocket": { "port": 80 } } },
        });

        let proxy = Proxy::parse(
            "sidecar~10.0.0.9~vm-1.shop~shop.svc.cluster.local",
            metadata,
            Locality::parse("r/z"),
        );
        let proxy = proxy.unwrap();
        let found = workload(&proxy, claim(&proxy).unwrap(), true);
        assert_eq!(found.entry().to_string(), "shop/vms-10.0.0.9-lan");

        assert_eq!(
            (found.locality.as_str(), found.is_probed, found.takes_hbone),
            ("r/z", true, true)
        );
        assert_eq!(found.labels.get("app").map(String::as_str), Some("web"));
        let plain = Proxy::parse(
            "sidecar~10.0.0.9~a.shop~shop.svc",
            json!({ "WORKLOAD_ENTRY": "mine" }),
            Locality::default(),
        );

        assert_eq!(
            claim(&plain.unwrap()),
            Some(Claim::Entry("mine".to_owned()))
        );
        let pod = Proxy::parse(
            "sidecar~10.0.0.9~a.shop~shop.svc",
            json!({}),
            Locality::default(),
        );
        assert_eq!(claim(&pod.unwrap()), None);
    }
}
