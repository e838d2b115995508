//! The rules of injection: parsed once from their inputs, then applied to each pod.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::config::InjectionConfig;
use super::context::{Context, Ids, PROXY_ID};
use super::error::{ConfigError, InjectError};
use super::finish::{Finishing, cluster};
use super::names::{INJECT, NATIVE_SIDECAR, NETWORK, PROXY, TEMPLATES};
use super::pod::{self, List};
use super::proxy_settings::{Effective, ProxySettings};
use super::request::{InjectRequest, Injection, InjectionOutcome};
use super::settings::{InjectorInputs, OWN_CLUSTER};
use super::strip::{Overrides, Status, stripped};
use super::template::Templates;
use super::values::Values;
use super::workload::Workload;
use super::{annotations, merge, openshift, overrides, patch, selection, tidy};

/// The parsed rules.
#[derive(Debug)]
pub(super) struct Rules {
    /// Policy, selectors and template names.
    config: InjectionConfig,
    /// The parsed templates.
    templates: Templates,
    values: Values,
    /// The proxy configs.
    proxies: ProxySettings,
    /// The inputs of the rules, unparsed.
    inputs: InjectorInputs,
}

impl Rules {
    /// Parses the inputs.
    ///
    /// # Errors
    /// When values, config or a template is invalid.
    pub(super) fn read(inputs: &InjectorInputs) -> Result<Self, ConfigError> {
        let (values, raw) = Values::parse(&inputs.values)?;
        let config = InjectionConfig::read(&inputs.config, &values)?;
        let templates = Templates::read(&config.templates, &raw, inputs)?;
        let proxies = ProxySettings::read(&inputs.mesh, &inputs.proxy_configs)
            .map_err(|error| ConfigError::Config(error.to_string()))?;
        Ok(Self {
            config,
            templates,
            values,
            proxies,
            inputs: inputs.clone(),
        })
    }

    /// The config's Go templates, by name.
    pub(super) fn raw_templates(&self) -> &BTreeMap<String, String> {
        &self.config.templates
    }

    pub(super) fn templates(&self) -> &Templates {
        &self.templates
    }

    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// The proxy configs.
    pub(super) fn proxies(&self) -> &ProxySettings {
        &self.proxies
    }

    pub(super) fn inputs(&self) -> &InjectorInputs {
        &self.inputs
    }

    /// Injects a pod, optionally with its known workload; the second value is the injected pod.
    ///
    /// # Errors
    /// When the pod must be rejected.
    pub(super) fn inject(
        &self,
        request: &InjectRequest<'_>,
        workload: Option<&Workload>,
    ) -> Result<(Injection, Option<Value>), InjectError> {
        pod::check(request.pod)?;
        let namespace = match pod::meta(request.pod, "namespace") {
            "" => request.namespace,
            namespace => namespace,
        };
        if let Some(reason) = selection::skipped(&self.config, request.pod, namespace) {
            let audit = BTreeMap::from([("skipped".to_owned(), reason.as_str().to_owned())]);
            let outcome = InjectionOutcome::Skipped(reason);
            return Ok((
                Injection {
                    outcome,
                    warnings: injection_warnings(request.pod),
                    audit,
                },
                None,
            ));
        }

        annotations::validate(pod::annotations(request.pod))?;
        let proxy = self.proxies.of(request.pod, namespace)?;
        let templates = self.template_names(request.pod);
        let injected = Run {
            rules: self,
            request,
            namespace,
            proxy: &proxy,
            workload,
        }
        .injected(&templates)?;
        let audit = BTreeMap::from([
            ("injected".to_owned(), templates.join(",")),
            ("revision".to_owned(), self.inputs.revision.clone()),
        ]);
        let outcome = InjectionOutcome::Injected(patch::patch(request.pod, &injected));

        Ok((
            Injection {
                outcome,
                warnings: warnings(request.pod, &proxy),
                audit,
            },
            Some(injected),
        ))
    }

    /// The templates for a pod: from its annotation, else from the config, with aliases resolved
    /// once.
    fn template_names(&self, pod: &Value) -> Vec<String> {
        let requested = pod::annotation(pod, TEMPLATES).map(|requested| {
            requested
                .split(',')
                .map(|name| name.trim().to_owned())
                .collect::<Vec<_>>()
        });
        let names = requested
            .as_deref()
            .unwrap_or(&self.config.default_templates);
        let resolved = names
            .iter()
            .flat_map(|name| match self.config.aliases.get(name) {
                Some(others) => others.as_slice(),
                None => std::slice::from_ref(name),
            });
        resolved.cloned().collect()
    }
}

/// Warnings about an invalid value of the injection label or annotation.
fn injection_warnings(pod: &Value) -> Vec<String> {
    let value = pod::label(pod, INJECT).or_else(|| pod::annotation(pod, INJECT));
    let invalid = value.filter(|value| !matches!(*value, "true" | "false" | ""));
    invalid
        .map(|value| format!("{INJECT} is {value:?}, which is ignored; use true or false"))
        .into_iter()
        .collect()
}

/// Warnings about an injected pod.
fn warnings(pod: &Value, proxy: &Effective) -> Vec<String> {
    let mut warnings = injection_warnings(pod);
    let policy = pod
        .get("spec")
        .and_then(|spec| spec.get("dnsPolicy"))
        .and_then(Value::as_str)
        .unwrap_or_default();

    if !matches!(policy, "" | "ClusterFirst") {
        warnings.push(format!(
            "spec.dnsPolicy is {policy:?}; the proxy may not find the control plane unless it is ClusterFirst"
        ));
    }

    let unknown = proxy.unknown_fields.iter();
    warnings.extend(
        unknown.map(|field| {
            format!("annotation proxy.istio.io/config: {field} is unknown and ignored")
        }),
    );

    warnings
}

/// The injection of one pod.
#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    rules: &'a Rules,
    request: &'a InjectRequest<'a>,
    /// The pod's namespace.
    namespace: &'a str,
    /// The pod's proxy config.
    proxy: &'a Effective,
    /// The pod's workload, if the caller knows it.
    workload: Option<&'a Workload>,
}

impl Run<'_> {
    /// Returns the injected pod.
    ///
    /// # Errors
    /// When a template is unknown or fails, or its overlay cannot be merged.
    fn injected(&self, templates: &[String]) -> Result<Value, InjectError> {
        let rules = self.rules;
        let original = self.original();
        let status = Status::of(&original);
        let existing = Overrides::of(&original)?;
        let agent_port = rules.inputs.mesh.default_config.status_port.to_string();
        let bare = stripped(&original, &existing, status.as_ref(), &agent_port);
        let workload = self
            .workload
            .cloned()
            .unwrap_or_else(|| Workload::of(&original, self.namespace));

        let environment = self.environment();
        let context = Context {
            pod: &bare,
            workload: &workload,
            proxy: self.proxy,
            values: &rules.values,
            mesh: &rules.inputs.mesh,
            revision: &rules.inputs.revision,
            compliance_policy: &rules.inputs.compliance_policy,
            native_sidecars: self.native_sidecars(&environment),
            ids: self.ids(),
        };

        let mut merged = without_bulk(&original);
        if status.is_some() {
            cluster::unset_environment(&mut merged, &environment);
        }

        let mut template = json!({});

        for name in templates {
            let overlay = rules.templates.overlay(name, &context)?;
            merge::merge(&mut template, overlay.clone())?;
            move_native(&mut merged, &template, context.native_sidecars)?;
            merge::merge(&mut merged, overlay)?;
        }

        overrides::reapply(
            &mut merged,
            &original,
            &template,
            &existing,
            status.as_ref(),
        )?;

        overrides::follow_user(
            &mut merged,
            &original,
            &existing,
            status.as_ref(),
            &self.proxy.config,
        );

        tidy_injected(&mut merged, &template);
        let finishing = Finishing {
            mesh: &rules.inputs.mesh,
            proxy_config: &self.proxy.config,
            hold: rules
                .values
                .global
                .proxy
                .hold_application_until_proxy_starts,
            rewrite_probes: rules.values.sidecar_injector_webhook.rewrite_app_http_probe,
            environment: &environment,
            annotations: &rules.config.injected_annotations,
            revision: &rules.inputs.revision,
        };

        finishing.finish(&mut merged, &template)?;
        tidy::labels(&mut merged, &original);
        Ok(merged)
    }

    /// The pod of the request. On OpenShift, without the IDs that the platform assigns to the pod's
    /// own proxy.
    fn original(&self) -> Cow<'_, Value> {
        let mut pod = Cow::Borrowed(self.request.pod);
        if self.rules.inputs.openshift && self.request.namespace_annotations.is_some() {
            openshift::part_users(pod.to_mut());
        }
        pod
    }

    /// The user and group ID of the proxy.
    fn ids(&self) -> Ids {
        if self.rules.inputs.openshift {
            openshift::ids(self.request.namespace_annotations)
        } else {
            Ids {
                user: PROXY_ID,
                group: PROXY_ID,
            }
        }
    }

    /// Whether proxies are native sidecars on the pod's node, in the cluster from the environment.
    fn native_sidecars(&self, environment: &BTreeMap<String, String>) -> bool {
        let inputs = &self.rules.inputs;
        let node = self
            .request
            .pod
            .get("spec")
            .and_then(|spec| spec.get("nodeName"))
            .and_then(Value::as_str);
        let cluster = environment
            .get("ISTIO_META_CLUSTER_ID")
            .map_or(OWN_CLUSTER, String::as_str);
        inputs.native_sidecars.hold(
            inputs.kubelets.get(cluster),
            node.filter(|node| !node.is_empty()),
        )
    }

    /// The environment variables that override the template's: from the request, else cluster and
    /// network from the values; a network label of the pod takes precedence.
    fn environment(&self) -> BTreeMap<String, String> {
        let mut environment = self.request.parameters.clone();
        let label = pod::label(self.request.pod, NETWORK);
        let global = &self.rules.values.global;
        let of_values = [
            (
                "ISTIO_META_CLUSTER_ID",
                Some(&global.multi_cluster.cluster_name),
            ),
            // An empty label means that the pod is not in the network of the values.
            (
                "ISTIO_META_NETWORK",
                Some(&global.network).filter(|_| label.is_none()),
            ),
        ];

        for (name, value) in of_values
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
        {
            let unset = environment.get(name).is_none_or(String::is_empty);
            if unset && !value.is_empty() {
                environment.insert(name.to_owned(), value.to_string());
            }
        }

        if let Some(network) = label.filter(|network| !network.is_empty()) {
            environment.insert("ISTIO_META_NETWORK".to_owned(), network.to_owned());
        }

        environment
    }
}

/// Moves the pod's own proxy container to the init containers, if the template has the proxy as a
/// native sidecar.
///
/// An existing init container is from an earlier injection with the same templates, and is merged
/// with the moved one.
///
/// # Errors
/// When both containers cannot be merged.
fn move_native(merged: &mut Value, template: &Value, by_default: bool) -> Result<(), InjectError> {
    let native = match pod::annotation(merged, NATIVE_SIDECAR) {
        Some("true") => true,
        Some("false") => false,
        Some(_) | None => by_default,
    };
    if !native || pod::find(pod::containers(template, List::Init), PROXY).is_none() {
        return Ok(());
    }

    let Some(containers) = pod::containers_mut(merged, List::Containers) else {
        return Ok(());
    };

    let Some(at) = containers
        .iter()
        .position(|container| pod::name(container) == PROXY)
    else {
        return Ok(());
    };

    let own = containers.remove(at);
    if pod::find(pod::containers(merged, List::Init), PROXY).is_some() {
        return merge::merge(merged, json!({ "spec": { List::Init.field(): [own] } }));
    }

    let init = pod::member_map(pod::as_map(merged), "spec").entry(List::Init.field());
    if let Some(init) = init
        .or_insert_with(|| Value::Array(Vec::new()))
        .as_array_mut()
    {
        init.push(own);
    }
    Ok(())
}

/// A copy of the pod without large parts that injection never reads.
fn without_bulk(pod: &Value) -> Value {
    let Value::Object(fields) = pod else {
        return pod.clone();
    };

    let slim = fields
        .iter()
        .filter(|(name, _)| *name != "status")
        .map(|(name, value)| {
            let value = match (name.as_str(), value) {
                ("metadata", Value::Object(meta)) => {
                    let kept = meta.iter().filter(|(name, _)| *name != "managedFields");
                    Value::Object(
                        kept.map(|(name, value)| (name.clone(), value.clone()))
                            .collect(),
                    )
                }
                (_, value) => value.clone(),
            };
            (name.clone(), value)
        });

    Value::Object(slim.collect())
}

/// Tidies the containers that the template contains.
fn tidy_injected(merged: &mut Value, template: &Value) {
    for list in [List::Containers, List::Init] {
        for container in pod::containers_mut(merged, list).into_iter().flatten() {
            if pod::find(pod::containers(template, list), pod::name(container)).is_some() {
                tidy::container(container);
            }
        }
    }
}
