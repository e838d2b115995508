//! The rights that the control plane needs according to its flags and environment, for the checks
//! of `navarch doctor`.

use super::super::sources::Plan;
use super::super::{Config, ListenAddress};
use crate::admin::{ApiServerHealth, Hooks, Right};
use navarch_api::gateway_api;
use navarch_webhook::registration::HookKind;

/// The checks of the API server; `None` if none is used.
pub(in crate::server) fn look(config: &Config, plan: &Plan) -> Option<ApiServerHealth> {
    let client = plan.client.clone()?;
    let settings = &config.settings.gateway_api;
    let mut kinds = plan
        .scope(&config.sources)
        .map(|scope| scope.read_kinds())
        .unwrap_or_default();

    // Experimental kinds are missing in most clusters.
    kinds.retain(|kind| match kind.group {
        gateway_api::EXPERIMENTAL_GROUP => settings.enabled && settings.alpha,
        gateway_api::INFERENCE_GROUP => settings.enabled && settings.inference,
        gateway_api::GROUP if kind.resource == "tcproutes" => settings.enabled && settings.alpha,
        gateway_api::GROUP => settings.enabled,
        _ => true,
    });

    Some(ApiServerHealth::new(
        client,
        kinds,
        rights(config, plan),
        hooks(config),
    ))
}

/// The webhook configurations that this control plane maintains.
fn hooks(config: &Config) -> Hooks {
    let webhooks = &config.webhooks;
    let all = [
        (HookKind::Mutating, &webhooks.injection),
        (HookKind::Validating, &webhooks.validation),
    ];
    // If another server terminates TLS, it also has its own roots.
    let kept = all
        .into_iter()
        .filter(|(_, name)| !name.is_empty() && config.https != ListenAddress::Off);
    Hooks {
        kinds: kept.map(|(kind, _)| kind).collect(),
        revision: webhooks.revision.clone(),
    }
}

/// The rights to write and to create reviews. Rights to read depend on the kinds.
fn rights(config: &Config, plan: &Plan) -> Vec<Right> {
    let namespace = config.settings.system_namespace.as_str();
    let only = config.writing.only.as_deref().unwrap_or_default();
    let identities = "proxies cannot authenticate with tokens";
    let secrets = "gateways receive no certificates from Secrets";
    let mut all = vec![
        Right::to(
            "create",
            "authentication.k8s.io",
            "tokenreviews",
            identities,
        ),
        Right::to(
            "create",
            "authorization.k8s.io",
            "subjectaccessreviews",
            secrets,
        ),
    ];

    if config.writing.elects {
        let lock = |verb| {
            Right::to(
                verb,
                "coordination.k8s.io",
                "leases",
                "no leader is elected, and no status is written",
            )
        };
        all.extend(["get", "create", "update"].map(|verb| lock(verb).within(namespace)));
    }

    if config.security.signs {
        let kept = |verb| Right::to(verb, "", "secrets", "the CA's key is not stored");
        all.extend(["get", "create", "update"].map(|verb| kept(verb).within(namespace)));
        if !config.writing.published.trust_bundle {
            let roots = "the roots of the mesh are not distributed to namespaces";
            all.push(Right::to("create", "", "configmaps", roots).within(only));
            let name = config.writing.published.roots.clone();
            all.push(Right {
                name,
                ..Right::to("update", "", "configmaps", roots).within(only)
            });
        }
    }

    let webhooks = "the API server may not trust the CA of the webhooks";
    let hooks = [
        (&config.webhooks.injection, "mutatingwebhookconfigurations"),
        (
            &config.webhooks.validation,
            "validatingwebhookconfigurations",
        ),
    ];

    for (_, resource) in hooks.into_iter().filter(|(name, _)| !name.is_empty()) {
        let right = |verb| Right::to(verb, "admissionregistration.k8s.io", resource, webhooks);
        all.extend(["list", "watch", "update"].map(right));
    }

    if plan.configures_by_kubernetes() {
        all.extend(statuses(config).map(|right| right.within(only)));
    }

    all
}

/// The statuses that are written.
fn statuses(config: &Config) -> impl Iterator<Item = Right> {
    let writes = config.writing.distribution.is_some() || config.writing.analysis.is_some();
    let istio = [
        "destinationrules",
        "envoyfilters",
        "gateways",
        "serviceentries",
        "sidecars",
        "virtualservices",
    ];

    let gateway = ["gatewayclasses", "gateways", "grpcroutes", "httproutes"];
    let of = |group: &'static str, resource: &str| Right {
        subresource: "status",
        ..Right::to(
            "patch",
            group,
            resource,
            "its status conditions are not written",
        )
    };

    let istio = istio
        .into_iter()
        .filter(move |_| writes)
        .map(move |resource| of("networking.istio.io", resource));
    let settings = &config.settings.gateway_api;
    let writes_status = settings.enabled && settings.status;

    istio.chain(
        gateway
            .into_iter()
            .filter(move |_| writes_status)
            .map(move |resource| of(gateway_api::GROUP, resource)),
    )
}
