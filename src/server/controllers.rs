//! Starts the controllers that write to the cluster, each with its leader lock.

mod gateways;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, OptionFuture};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::boot::{Boot, until};
use super::object_status::Family;
use super::publishing::{Published, PublishedObjects, Publisher};
use super::{Config, ingress, object_status, progress, replica_name, reports};
use navarch_analysis::Mesh;
use navarch_api::names::Hostname;
use navarch_api::object::ObjectRef;
use navarch_envoy::ClusterLocalHosts;
use navarch_push::context::PushContext;
use navarch_push::worker::PushHandle;
use navarch_status::{
    AddressAllocation, Analysis, Candidate, Cluster, DefaultRevision, Distribution, Election,
    GatewayControllerSettings, IngressAddresses, IngressStatus, Location, Lock, NamespaceScope,
    NodeUntaint, ObjectReport, ObjectReports, Range, RegistrationConfig, ReportedCondition,
    ReportedObjects, Reporter, Responsibility, ServiceExports, StaysLocal,
};
use navarch_webhook::CurrentInjector;
use navarch_xds::connections::Connections;

/// Minimum interval of reading namespace selectors and addresses of Ingresses from snapshots, as
/// they hardly ever change.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// Settings of the controllers.
#[derive(Clone, Debug)]
pub struct WritingConfig {
    /// `POD_NAME`: the identity in leader locks and among replicas; a generated one if unset.
    pub identity: String,
    /// The revision of this control plane; empty is `default`.
    pub revision: String,
    /// `ENABLE_LEADER_ELECTION`: whether there may be other control planes. Default true.
    pub elects: bool,
    /// The objects that hold the roots and revocation lists in a cluster.
    pub published: PublishedObjects,
    /// `ISTIO_WATCH_NAMESPACE`: the only namespace, if there is just one.
    pub only: Option<String>,
    /// `PILOT_IP_AUTOALLOCATE_IPV4_PREFIX` and `PILOT_IP_AUTOALLOCATE_IPV6_PREFIX`.
    pub ranges: [Range; 2],
    /// `PILOT_ENABLE_STATUS` with `PILOT_STATUS_UPDATE_INTERVAL`: the interval at which the
    /// distribution progress of objects is written, if it is.
    pub distribution: Option<Duration>,
    /// `AMBIENT_ENABLE_STATUS`: whether in ambient mode the status of objects contains their
    /// waypoints and the enforcing proxies. Default true.
    pub ambient: bool,
    /// `PILOT_ENABLE_ANALYSIS` with `PILOT_ANALYSIS_INTERVAL`: how long validation messages are
    /// collected before they are written, if they are.
    pub analysis: Option<Duration>,
    /// `PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS` with `PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME`:
    /// the key of the taint that is removed from nodes once istio-cni is ready on them.
    pub untaints: Option<String>,
    /// `--cniNamespace`: the namespace of istio-cni; the control plane's own namespace if unset.
    pub cni_namespace: Option<String>,
    /// `ENABLE_MCS_AUTO_EXPORT`: whether a ServiceExport is created for every Service. Default
    /// false.
    pub exports: bool,
    /// GatewayClasses, and the proxies of Gateways.
    pub gateways: GatewayControllerSettings,
    /// Workloads that are not pods.
    pub registration: RegistrationConfig,
}

impl Default for WritingConfig {
    fn default() -> Self {
        Self {
            identity: replica_name::generated(),
            revision: String::new(),
            elects: true,
            published: PublishedObjects::default(),
            only: None,
            ranges: [Range::IPV4, Range::IPV6],
            distribution: None,
            ambient: true,
            analysis: None,
            untaints: None,
            cni_namespace: None,
            exports: false,
            gateways: GatewayControllerSettings::default(),
            registration: RegistrationConfig::default(),
        }
    }
}

/// The Services that are only served in their own cluster, according to the current mesh config.
pub(super) fn stays_local(push: &PushHandle) -> StaysLocal {
    let push = push.clone();
    Arc::new(move |service| {
        let context = push.context();
        let domain = &context.mesh.settings.domain_suffix;
        let host = Hostname::new(format!(
            "{}.{}.svc.{domain}",
            service.name, service.namespace
        ));
        ClusterLocalHosts::of(&context.mesh.config, domain).contains(&host)
    })
}

/// Starts the controllers that write to the cluster, if there is one. `published` are the contents
/// of the certificate authority, if there is one; the templates of `injector` render the objects of
/// Gateways.
pub(super) fn start(
    config: &Config,
    client: Option<kube::Client>,
    published: Option<Published>,
    push: &PushHandle,
    connections: Arc<Connections>,
    injector: CurrentInjector,
    boot: &mut Boot,
) {
    let Some(client) = client else { return };
    let controllers = Controllers {
        config: &config.writing,
        injector,
        cluster: Cluster(client),
        namespace: config.settings.system_namespace.as_str(),
        allocates: config.settings.ip_autoallocate,
        boot,
    };

    controllers.start(published, push, connections);
}

struct Controllers<'a> {
    /// Settings from flags and environment.
    config: &'a WritingConfig,
    injector: CurrentInjector,
    cluster: Cluster,
    /// The namespace of the locks.
    namespace: &'a str,
    /// Whether addresses are allocated to ServiceEntries.
    allocates: bool,
    boot: &'a mut Boot,
}

impl Controllers<'_> {
    /// Starts the controllers that are enabled by settings.
    fn start(
        mut self,
        published: Option<Published>,
        push: &PushHandle,
        connections: Arc<Connections>,
    ) {
        let default_revision = self.default_revision();
        let scope = self.scope(push);
        self.gateways(scope.clone(), &default_revision);
        if let Some(published) = published {
            self.publish(published, scope.clone(), &default_revision);
        }

        if self.allocates {
            self.allocate_addresses(scope.clone(), &default_revision);
        }
        self.ingress_status(push, &default_revision);
        if self.config.exports {
            self.export_services(scope.clone(), push, &default_revision);
        }
        if let Some(taint) = self.config.untaints.clone() {
            self.untaint_nodes(taint, &default_revision);
        }

        let settings = push.context().mesh.settings.clone();
        if settings.gateway_api.enabled && settings.gateway_api.status {
            self.gateway_statuses(push, &default_revision);
        }

        self.conditions(push, connections, &default_revision);
        self.report(
            push,
            "quarantine reports",
            ReportedCondition::Quarantined,
            reports::quarantined,
        );
        self.report(
            push,
            "rollout reports",
            ReportedCondition::RolledOut,
            reports::rolled_out,
        );
        if let Some(interval) = self.config.analysis {
            self.analyze(interval, scope, push, &default_revision);
        }
    }

    /// Follows the default revision of the cluster, whose control plane may take locks of others.
    fn default_revision(&mut self) -> watch::Receiver<String> {
        let (sender, default_revision) = watch::channel(String::new());
        let follow = DefaultRevision {
            cluster: self.cluster.clone(),
            namespace: self.namespace.to_owned(),
        };
        self.boot.spawn(
            "default revision",
            follow.run(sender, self.boot.stop.clone()),
        );

        default_revision
    }

    /// Starts the allocation of addresses to ServiceEntries.
    fn allocate_addresses(
        &mut self,
        scope: watch::Receiver<NamespaceScope>,
        default_revision: &watch::Receiver<String>,
    ) {
        let controller = AddressAllocation {
            cluster: self.cluster.clone(),
            ranges: self.config.ranges,
            scope,
        };
        let work = move |stop| controller.clone().run(stop);

        self.lead(
            "addresses of ServiceEntries",
            Lock::IpAllocation,
            default_revision,
            work,
        );
    }

    /// Starts the status writer of Ingresses.
    fn ingress_status(&mut self, push: &PushHandle, default_revision: &watch::Receiver<String>) {
        let controller = IngressStatus {
            cluster: self.cluster.clone(),
            wanted: self.ingresses(push),
        };
        let work = move |stop| controller.clone().run(stop);

        self.lead("status of Ingresses", Lock::Ingress, default_revision, work);
    }

    /// Starts the controller that creates a ServiceExport for every Service.
    fn export_services(
        &mut self,
        scope: watch::Receiver<NamespaceScope>,
        push: &PushHandle,
        default_revision: &watch::Receiver<String>,
    ) {
        let controller = ServiceExports {
            cluster: self.cluster.clone(),
            scope,
            stays_local: stays_local(push),
        };
        let work = move |stop| controller.clone().run(stop);

        self.lead(
            "exports of Services",
            Lock::ServiceExport,
            default_revision,
            work,
        );
    }

    /// Starts the controller that removes `taint` from nodes once istio-cni is ready on them.
    fn untaint_nodes(&mut self, taint: String, default_revision: &watch::Receiver<String>) {
        let namespace = self.config.cni_namespace.as_deref();
        let controller = NodeUntaint {
            cluster: self.cluster.clone(),
            namespace: namespace.unwrap_or(self.namespace).to_owned(),
            taint,
        };
        let work = move |stop| controller.clone().run(stop);

        self.lead("taints of nodes", Lock::NodeUntaint, default_revision, work);
    }

    /// Starts the controller that writes analysis messages to the status of objects.
    fn analyze(
        &mut self,
        interval: Duration,
        scope: watch::Receiver<NamespaceScope>,
        push: &PushHandle,
        default_revision: &watch::Receiver<String>,
    ) {
        let system_namespace = self.namespace.to_owned();
        let read = move |context: &PushContext| Mesh {
            config: context.mesh.config.clone(),
            networks: (*context.networks).clone(),
            system_namespace: system_namespace.clone(),
        };

        let controller = Analysis {
            cluster: self.cluster.clone(),
            interval,
            revision: self.config.revision.clone(),
            namespace: self.namespace.to_owned(),
            scope,
            mesh: look("settings for analysis", push, read, self.boot),
        };
        let work = move |stop| controller.clone().run(stop);

        self.lead(
            "validation messages",
            Lock::Analysis,
            default_revision,
            work,
        );
    }

    /// Starts the status writer of a family of objects.
    fn statuses(
        &self,
        family: Family,
        push: &PushHandle,
    ) -> impl Fn(Responsibility, CancellationToken) -> BoxFuture<'static, ()> + Send + Sync + use<>
    {
        let push = push.clone();
        let cluster = self.cluster.clone();
        let settings = push.context().mesh.settings.clone();
        let deploys_gateways = self.config.gateways.deploys;
        move |responsibility, stop| {
            let push = push.clone();
            let cluster = cluster.clone();
            let settings = settings.clone();
            Box::pin(object_status::run(
                family,
                push,
                cluster,
                settings,
                responsibility,
                deploys_gateways,
                stop,
            ))
        }
    }

    /// Starts the writers of conditions of objects outside the Gateway API: distribution, and
    /// ambient mode. istiod has one lock for both.
    fn conditions(
        &mut self,
        push: &PushHandle,
        connections: Arc<Connections>,
        default_revision: &watch::Receiver<String>,
    ) {
        let distribution = self
            .config
            .distribution
            .map(|interval| self.distribution(interval, push, connections));
        let is_ambient = self.config.ambient && push.context().mesh.settings.ambient;
        let ambient = is_ambient.then(|| self.statuses(Family::Ambient, push));
        if distribution.is_none() && ambient.is_none() {
            return;
        }

        let work = move |stop: CancellationToken| {
            let distribution = distribution
                .clone()
                .map(|distribution| distribution.run(stop.clone()));
            let ambient = ambient.as_ref().map(|work| work(Responsibility::All, stop));
            async move {
                tokio::join!(
                    OptionFuture::from(distribution),
                    OptionFuture::from(ambient)
                );
            }
        };

        self.lead(
            "conditions of objects",
            Lock::Status,
            default_revision,
            work,
        );
    }

    /// Starts the reporter of this replica's progress; returns the leader's work.
    fn distribution(
        &mut self,
        interval: Duration,
        push: &PushHandle,
        connections: Arc<Connections>,
    ) -> Distribution {
        let progresses = progress::follow(push.clone(), connections, interval, self.boot);
        let namespace = self.namespace.to_owned();
        let identity = self.config.identity.clone();
        let cluster = self.cluster.clone();
        let theirs = progresses.clone();
        let own = identity.clone();
        let reporter = Reporter {
            cluster,
            namespace: namespace.clone(),
            identity: own,
            progresses: theirs,
        };

        let report = reporter.run(self.boot.stop.clone());
        self.boot.spawn("report", report);

        Distribution {
            cluster: self.cluster.clone(),
            namespace,
            identity,
            progresses,
        }
    }

    /// Starts the reporter of objects that are not fully effective at all proxies. It runs in every
    /// replica, as others may not have quarantined them.
    fn report(
        &mut self,
        push: &PushHandle,
        name: &'static str,
        condition: ReportedCondition,
        read: fn(&PushContext) -> BTreeMap<ObjectRef, ObjectReport>,
    ) {
        let (sender, reported) = watch::channel(ReportedObjects::default());
        let mut contexts = push.contexts();
        let stop = self.boot.stop.clone();
        let controller = push.context().mesh.settings.gateway_api.controller.clone();
        let identity = self.config.identity.clone();
        let reports = ObjectReports {
            cluster: self.cluster.clone(),
            identity,
            controller,
            condition,
            reported,
        };

        self.boot.spawn(name, async move {
            let follow = async {
                while contexts.changed().await.is_ok() {
                    let now = read(&contexts.borrow_and_update());
                    sender.send_if_modified(|sender| {
                        let is_new = **sender != now;
                        if is_new {
                            *sender = Arc::new(now);
                        }
                        is_new
                    });
                }
            };

            tokio::select! {
                () = follow => {}
                () = reports.run(stop.clone()) => {}
            }
            stop.cancelled().await;
        });
    }

    /// Starts the publication of the CA's roots and CRLs.
    fn publish(
        &mut self,
        published: Published,
        scope: watch::Receiver<NamespaceScope>,
        default_revision: &watch::Receiver<String>,
    ) {
        let publisher = Publisher {
            cluster: self.cluster.clone(),
            objects: self.config.published.clone(),
            published,
            scope,
        };
        let lock = publisher.lock();
        self.lead("roots of the CA", lock, default_revision, move |stop| {
            publisher.clone().run(stop)
        });
    }

    /// Runs `work` while this control plane holds the lock, or always without leader election.
    fn lead<W, F>(
        &mut self,
        name: &'static str,
        lock: Lock,
        default_revision: &watch::Receiver<String>,
        work: W,
    ) where
        W: Fn(CancellationToken) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.boot.stop.clone();

        if !self.config.elects {
            self.boot.spawn(name, async move { work(stop).await });
            return;
        }

        let revision = match self.config.revision.as_str() {
            "" => "default".to_owned(),
            revision => revision.to_owned(),
        };
        let candidate = Candidate {
            identity: self.config.identity.clone(),
            revision,
            location: Location::Local,
        };

        let election = Election::new(
            &self.cluster,
            self.namespace,
            lock,
            candidate,
            default_revision.clone(),
        );

        self.boot.spawn(name, election.run(stop, work));
    }

    /// Follows the namespaces that the mesh config selects.
    fn scope(&mut self, push: &PushHandle) -> watch::Receiver<NamespaceScope> {
        selected_namespaces(self.config.only.clone(), push, self.boot)
    }

    /// Follows the addresses of Ingresses.
    fn ingresses(&mut self, push: &PushHandle) -> watch::Receiver<IngressAddresses> {
        look(
            "addresses of Ingresses",
            push,
            ingress::addresses,
            self.boot,
        )
    }
}

/// Follows the namespaces that the mesh config selects; `only` is the only watched namespace, if
/// there is just one.
pub(super) fn selected_namespaces(
    only: Option<String>,
    push: &PushHandle,
    boot: &mut Boot,
) -> watch::Receiver<NamespaceScope> {
    let read = move |context: &PushContext| NamespaceScope {
        selectors: context.mesh.config.discovery_selectors.clone(),
        only: only.clone(),
    };
    look("selected namespaces", push, read, boot)
}

/// Follows a value of the current snapshots.
fn look<T>(
    name: &'static str,
    push: &PushHandle,
    read: impl Fn(&PushContext) -> T + Send + 'static,
    boot: &mut Boot,
) -> watch::Receiver<T>
where
    T: PartialEq + Send + Sync + 'static,
{
    let stop = boot.stop.clone();
    let mut contexts = push.contexts();
    let first = read(&contexts.borrow_and_update());
    let (sender, seen) = watch::channel(first);
    boot.spawn(name, async move {
        while let Some(changed) = until(&stop, contexts.changed()).await {
            changed?;
            let now = read(&contexts.borrow_and_update());
            sender.send_if_modified(|seen| {
                let is_new = *seen != now;
                *seen = now;
                is_new
            });
            let _stopped = until(&stop, tokio::time::sleep(REFRESH_INTERVAL)).await;
        }
        anyhow::Ok(())
    });

    seen
}
