//! Starts the controllers of the Gateway API.

use futures_util::future::OptionFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::object_status::Family;
use super::Controllers;
use navarch_push::worker::PushHandle;
use navarch_status::{
    GatewayClasses, GatewayDeployments, InferencePoolServices, Lock, NamespaceScope,
    Responsibility, RevisionObjects,
};

impl Controllers<'_> {
    /// Starts the controllers that create GatewayClasses and the proxies of Gateways.
    pub(super) fn gateways(
        &mut self,
        scope: watch::Receiver<NamespaceScope>,
        default_revision: &watch::Receiver<String>,
    ) {
        let settings = self.config.gateways.clone();
        if !settings.api.enabled || !(settings.classes || settings.deploys) {
            return;
        }

        let cluster = self.cluster.clone();
        let injector = self.injector.clone();
        let classes = GatewayClasses {
            cluster: cluster.clone(),
            settings: settings.clone(),
        };
        let deployments = GatewayDeployments {
            cluster,
            settings,
            injector,
            scope,
        };

        let work = move |stop: CancellationToken| {
            let classes = classes.clone();
            let deployments = deployments.clone();
            async move {
                let classes = async {
                    if classes.settings.classes {
                        classes.run(stop.clone()).await;
                    }
                };
                let deployments = async {
                    if deployments.settings.deploys {
                        deployments.run(stop.clone()).await;
                    }
                };
                tokio::join!(classes, deployments);
            }
        };

        self.lead(
            "deployment of Gateways",
            Lock::GatewayDeployment,
            default_revision,
            work,
        );
    }

    /// Starts the status writer for the Gateway API's objects of this revision, and the controller
    /// of InferencePools' Services.
    pub(super) fn gateway_statuses(
        &mut self,
        push: &PushHandle,
        default_revision: &watch::Receiver<String>,
    ) {
        let inference = push.context().mesh.settings.gateway_api.inference;
        let statuses = self.statuses(Family::GatewayApi, push);
        let cluster = self.cluster.clone();
        let revision = self.config.revision.clone();
        let own = RevisionObjects {
            cluster,
            namespace: self.namespace.to_owned(),
            revision,
        };

        // The Services depend on the statuses of the pools.
        let work = move |stop: CancellationToken| {
            let (sender, receiver) = watch::channel(None);
            let responsibility = Responsibility::Revision(receiver);
            let follow = own.clone().run(sender, stop.clone());
            let cluster = own.cluster.clone();
            let of_pools = responsibility.clone();
            let pools = inference.then(|| {
                InferencePoolServices {
                    cluster,
                    responsibility: of_pools,
                }
                .run(stop.clone())
            });

            let statuses = statuses(responsibility, stop);
            async move {
                tokio::join!(follow, OptionFuture::from(pools), statuses);
            }
        };

        self.lead(
            "status of the Gateway API's objects",
            Lock::GatewayStatus,
            default_revision,
            work,
        );
    }
}
