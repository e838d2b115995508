//! Checks of the API server: its kinds, the control plane's access rights, and its clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use kube::client::Body;
use navarch_answers::doctor::{self, Check, Health, Level, MAX_FINDINGS_PER_CHECK};
use navarch_kubernetes::InWords;
use navarch_source::ReadKind;
use navarch_webhook::registration::{self, FoundWebhooks, HookKind};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Timeout of all checks.
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long answers are cached, which limits requests to the API server.
const FRESH: Duration = Duration::from_secs(5);
/// Maximum concurrent requests.
const AT_ONCE: usize = 8;
/// Maximum number of named missing kinds.
const NAMED: usize = 12;
/// The group whose kinds every installation has.
const ISTIO: &str = "networking.istio.io";

/// A right that the control plane needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, such as `leases`.
    pub resource: String,
    /// The subresource, such as `status`; empty for the resource.
    pub subresource: &'static str,
    /// The verb, such as `watch`.
    pub verb: &'static str,
    /// The namespace; empty for all and for cluster-scoped resources.
    pub namespace: String,
    /// The name of the object; empty for all.
    pub name: String,
    /// The feature that needs it.
    pub purpose: &'static str,
}

/// The last answers of the API server, with their time.
type Latest = Option<(Instant, Arc<ApiServerState>)>;

/// The API server as the control plane sees it. Clones share it.
#[derive(Clone)]
pub struct ApiServerHealth {
    client: kube::Client,
    kinds: Arc<[ReadKind]>,
    rights: Arc<[Right]>,
    hooks: Hooks,
    /// The last answers, with their time. Concurrent requests wait for the same answers.
    latest: Arc<Mutex<Latest>>,
}

/// The required webhook configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// The kinds that this control plane maintains.
    pub kinds: Vec<HookKind>,
    /// The revision with which they are labelled.
    pub revision: String,
}

/// The answers of the API server.
#[derive(Clone, Debug, Default)]
struct ApiServerState {
    /// The resources by group and version.
    served: Served,
    /// The missing rights.
    denied: Vec<Right>,
    /// The control plane's user name at the API server.
    user: String,
    /// Webhook configurations by kind; none if they may not be read.
    hooks: Vec<(HookKind, FoundWebhooks)>,
    /// Its clock, with the times of request and response.
    time: Option<(Timestamp, [Timestamp; 2])>,
    /// The error that ended the checks.
    problem: Option<String>,
}

/// Resources by group, then version.
type Served = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

impl fmt::Debug for ApiServerHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServerHealth")
            .field("rights", &self.rights.len())
            .finish_non_exhaustive()
    }
}

impl Right {
    /// A right to use a verb on all objects in all namespaces.
    #[must_use]
    pub fn to(
        verb: &'static str,
        group: &'static str,
        resource: &str,
        purpose: &'static str,
    ) -> Self {
        Self {
            verb,
            group,
            resource: resource.to_owned(),
            purpose,
            ..Self::default()
        }
    }

    /// Limits the right to one namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self
        }
    }

    /// The resource with its group, as kubectl takes it.
    fn resource(&self) -> String {
        let part = if self.subresource.is_empty() {
            String::new()
        } else {
            format!("/{}", self.subresource)
        };
        let group = if self.group.is_empty() {
            String::new()
        } else {
            format!(".{}", self.group)
        };
        format!("{}{group}{part}", self.resource)
    }
}

impl ApiServerHealth {
    /// No answers yet.
    #[must_use]
    pub fn new(
        client: kube::Client,
        kinds: Vec<ReadKind>,
        mut rights: Vec<Right>,
        hooks: Hooks,
    ) -> Self {
        let read = kinds.iter().flat_map(|kind| {
            let namespace = kind
                .namespace
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();

            let right = |verb| {
                Right::to(
                    verb,
                    kind.group,
                    &kind.resource,
                    "objects of this kind are not read",
                )
            };

            ["list", "watch"].map(|verb| right(verb).within(&namespace))
        });

        rights.extend(read);
        Self {
            client,
            kinds: kinds.into(),
            rights: rights.into(),
            hooks,
            latest: Arc::default(),
        }
    }

    /// Runs the checks, and reports what is missing. `roots` are the roots of the webhooks (PEM),
    /// once they are served.
    pub(super) async fn add_findings(&self, roots: Option<Arc<str>>, health: &mut Health) {
        let seen = self.seen(roots).await;
        if let Some(problem) = &seen.problem {
            let what = format!("the API server does not respond to the control plane: {problem}");
            return health.add(
                Check::Definitions,
                Level::Wrong,
                what,
                "kubectl get --raw /readyz?verbose",
            );
        }

        definitions(&self.kinds, &seen.served, health);
        rights(&seen.denied, &seen.user, health);
        seen.hooks
            .iter()
            .for_each(|(kind, hooks)| webhooks(*kind, hooks, &self.hooks.revision, health));

        if let Some((server_time, window)) = seen.time {
            let whose = ["the API server", "the control plane's"];
            doctor::clock(
                health,
                server_time,
                window,
                whose,
                "timedatectl status, on both nodes",
            );
        }
    }

    /// The current or cached answers.
    async fn seen(&self, roots: Option<Arc<str>>) -> Arc<ApiServerState> {
        let mut latest = self.latest.lock().await;
        if let Some((at, seen)) = &*latest
            && at.elapsed() < FRESH
        {
            return seen.clone();
        }
        let problem = |problem| ApiServerState {
            problem: Some(problem),
            ..ApiServerState::default()
        };

        let seen = match timeout(API_SERVER_TIMEOUT, self.fetch_state(roots)).await {
            Ok(Ok(seen)) => seen,
            Ok(Err(error)) => problem(InWords(&error).to_string()),
            Err(_) => problem(format!("no response within {API_SERVER_TIMEOUT:?}")),
        };
        let seen = Arc::new(seen);
        *latest = Some((Instant::now(), seen.clone()));

        seen
    }

    async fn fetch_state(&self, roots: Option<Arc<str>>) -> kube::Result<ApiServerState> {
        let others = async { Ok((self.user().await, self.hooks(roots).await)) };
        let (time, served, denied, (user, hooks)) =
            tokio::try_join!(self.time(), self.served(), self.denied(), others)?;
        Ok(ApiServerState {
            served,
            denied,
            user,
            hooks,
            time,
            problem: None,
        })
    }

    /// Its clock from a response header; `None` if there is none.
    async fn time(&self) -> kube::Result<Option<(Timestamp, [Timestamp; 2])>> {
        let requested_at = Timestamp::now();
        let request = http::Request::get("/version")
            .body(Body::empty())
            .map_err(kube::Error::HttpError)?;
        let answer = self.client.send(request).await?;
        let window = [requested_at, Timestamp::now()];
        let date = answer
            .headers()
            .get(http::header::DATE)
            .and_then(|date| date.to_str().ok());
        Ok(date.and_then(|date| Some((http_date(date)?, window))))
    }

    /// The resources of the groups whose kinds are defined at run time.
    async fn served(&self) -> kube::Result<Served> {
        let groups: BTreeSet<&str> = self
            .kinds
            .iter()
            .filter(|kind| kind.is_defined)
            .map(|kind| kind.group)
            .collect();

        let there = self.client.list_api_groups().await?.groups;

        // Collected first: a borrow of the response must not be held across an await.
        let versions: Vec<(String, String)> = there
            .iter()
            .filter(|group| groups.contains(group.name.as_str()))
            .flat_map(|group| {
                group
                    .versions
                    .iter()
                    .map(|version| (group.name.clone(), version.version.clone()))
            })
            .collect();

        let one = |(group, version): (String, String)| async move {
            let listed = self
                .client
                .list_api_group_resources(&format!("{group}/{version}"))
                .await?;
            let names = listed
                .resources
                .into_iter()
                .map(|resource| resource.name)
                .collect::<BTreeSet<_>>();
            Ok::<_, kube::Error>((group, version, names))
        };

        let all: Vec<_> = stream::iter(versions)
            .map(one)
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        let mut served = Served::new();
        for (group, version, names) in all {
            served.entry(group).or_default().insert(version, names);
        }

        Ok(served)
    }

    /// The missing rights.
    async fn denied(&self) -> kube::Result<Vec<Right>> {
        let reviews = &Api::<SelfSubjectAccessReview>::all(self.client.clone());
        let one = |right: Right| async move {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let attributes = ResourceAttributes {
                group: some(right.group),
                resource: some(&right.resource),
                subresource: some(right.subresource),
                verb: some(right.verb),
                namespace: some(&right.namespace),
                name: some(&right.name),
                ..ResourceAttributes::default()
            };

            let spec = SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..Default::default()
            };
            let review = SelfSubjectAccessReview {
                spec,
                ..SelfSubjectAccessReview::default()
            };
            let answer = reviews.create(&PostParams::default(), &review).await?;
            let is_allowed = answer.status.is_some_and(|status| status.allowed);

            Ok::<_, kube::Error>((!is_allowed).then_some(right))
        };

        let all = stream::iter(self.rights.to_vec())
            .map(one)
            .buffer_unordered(AT_ONCE);
        let mut denied: Vec<Right> = all
            .try_filter_map(|right| async move { Ok(right) })
            .try_collect()
            .await?;
        denied.sort_unstable();

        Ok(denied)
    }

    /// The webhook configurations, once their roots are known. Kinds that may not be listed are
    /// reported with the missing rights.
    async fn hooks(&self, roots: Option<Arc<str>>) -> Vec<(HookKind, FoundWebhooks)> {
        let mut all = Vec::new();
        let Some(roots) = roots else { return all };
        for kind in &self.hooks.kinds {
            let found = registration::look(&self.client, *kind, &self.hooks.revision, &roots).await;
            all.extend(found.ok().map(|found| (*kind, found)));
        }
        all
    }

    /// The control plane's user name; empty if the API server does not report it (before Kubernetes
    /// 1.28).
    async fn user(&self) -> String {
        let reviews = Api::<SelfSubjectReview>::all(self.client.clone());
        let answer = reviews
            .create(&PostParams::default(), &SelfSubjectReview::default())
            .await;
        let user = answer
            .ok()
            .and_then(|answer| answer.status?.user_info?.username);
        user.unwrap_or_default()
    }
}

/// An HTTP date: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    let universal = text
        .strip_suffix("GMT")
        .map(|rest| format!("{rest}+0000"))?;
    jiff::fmt::rfc2822::parse(&universal)
        .ok()
        .map(|moment| moment.timestamp())
}

/// Missing kinds, and kinds without a supported version.
fn definitions(kinds: &[ReadKind], served: &Served, health: &mut Health) {
    let mut missing: BTreeMap<bool, Vec<String>> = BTreeMap::new();

    for kind in kinds.iter().filter(|kind| kind.is_defined) {
        let versions = served.get(kind.group).into_iter().flatten();
        let there: Vec<&str> = versions
            .filter(|(_, resources)| resources.contains(&kind.resource))
            .map(|(version, _)| version.as_str())
            .collect();
        let name = format!("{}.{}", kind.resource, kind.group);

        if there.is_empty() {
            missing
                .entry(kind.group.ends_with(".istio.io"))
                .or_default()
                .push(name);
        } else if !there.iter().any(|version| kind.versions.contains(version)) {
            let there = there.join(", ");
            let read = kind.versions.join(", ");
            let what = format!(
                "{name} is only served as {there}, but Navarch reads {read}; its objects are not read"
            );
            health.add(
                Check::Definitions,
                Level::Wrong,
                what,
                &format!("kubectl get crd {name} -o yaml"),
            );
        }
    }

    let has_istio = served.contains_key(ISTIO);

    for (is_istio, names) in missing {
        let more = names.len().saturating_sub(NAMED);
        let mut listed = names
            .iter()
            .take(NAMED)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");

        if more > 0 {
            listed.push_str(&format!(" and {more} more"));
        }

        let what =
            format!("CustomResourceDefinitions of kinds that are read are not installed: {listed}");
        let (level, next) = match (is_istio, has_istio) {
            (true, false) => (Level::Wrong, "navarch crds | kubectl apply -f -"),
            (true, true) => (Level::Note, "navarch crds | kubectl apply -f -"),
            (false, _) => (
                Level::Note,
                "kubectl get crd, and install them if they are needed",
            ),
        };

        health.add(Check::Definitions, level, what, next);
    }
}

/// Webhooks that are not registered, or have an outdated CA.
fn webhooks(kind: HookKind, seen: &FoundWebhooks, revision: &str, health: &mut Health) {
    let (lost, resource) = match kind {
        HookKind::Mutating => ("pods are not injected", "mutatingwebhookconfigurations"),
        HookKind::Validating => (
            "objects are not validated when they are written",
            "validatingwebhookconfigurations",
        ),
    };

    let next = format!("kubectl get {resource} -l istio.io/rev={revision} -o yaml");

    if seen.all.is_empty() {
        let what = format!("no {resource} has the label istio.io/rev={revision}: {lost}");
        health.add(Check::Webhooks, Level::Note, what, &next);
    }

    for name in seen.without_roots.iter().take(MAX_FINDINGS_PER_CHECK) {
        let what = format!(
            "caBundle of {name} ({resource}) lacks a root of the webhooks' certificate: {lost}"
        );
        health.add(Check::Webhooks, Level::Wrong, what, &next);
    }

    health.more(Check::Webhooks, seen.without_roots.len(), resource, &next);
}

/// Missing rights, by resource.
fn rights(denied: &[Right], user: &str, health: &mut Health) {
    let mut by_resource: BTreeMap<(String, &str, &str, &str), Vec<&str>> = BTreeMap::new();

    for right in denied {
        let key = (
            right.resource(),
            right.namespace.as_str(),
            right.name.as_str(),
            right.purpose,
        );
        by_resource.entry(key).or_default().push(right.verb);
    }

    let user = if user.is_empty() {
        "system:serviceaccount:istio-system:istiod"
    } else {
        user
    };

    for ((resource, namespace, name, purpose), verbs) in
        by_resource.iter().take(MAX_FINDINGS_PER_CHECK)
    {
        let place = if namespace.is_empty() {
            String::new()
        } else {
            format!(" in namespace {namespace}")
        };
        let object = if name.is_empty() {
            String::new()
        } else {
            format!(" named {name}")
        };
        let what = format!(
            "{user} may not {} {resource}{object}{place}: {purpose}",
            verbs.join(", ")
        );
        let (plain, part) = resource.split_once('/').unwrap_or((resource, ""));
        let part = if part.is_empty() {
            String::new()
        } else {
            format!(" --subresource={part}")
        };
        let place = if namespace.is_empty() {
            "-A".to_owned()
        } else {
            format!("-n {namespace}")
        };
        let object = if name.is_empty() {
            String::new()
        } else {
            format!("/{name}")
        };
        let verb = verbs.first().expect("every entry has a verb");
        let next = format!("kubectl auth can-i {verb} {plain}{object}{part} {place} --as={user}");
        health.add(Check::Rights, Level::Wrong, what, &next);
    }

    let next = format!("kubectl auth can-i --list --as={user}");
    health.more(
        Check::Rights,
        by_resource.len(),
        "resources with missing rights",
        &next,
    );
}

#[cfg(test)]
mod tests {
    use navarch_api::object::Kind;
    use navarch_source::KubernetesScope;

    use super::*;

    fn kinds() -> Vec<ReadKind> {
        let all = KubernetesScope::default().read_kinds();
        let wanted = [
            Kind::VirtualService,
            Kind::EnvoyFilter,
            Kind::HttpRoute,
            Kind::Pod,
        ];
        all.into_iter()
            .filter(|kind| wanted.contains(&kind.kind))
            .collect()
    }

    fn served(all: &[(&str, &str, &str)]) -> Served {
        let mut served = Served::new();
        for (group, version, resource) in all {
            let versions = served.entry((*group).to_owned()).or_default();
            versions
                .entry((*version).to_owned())
                .or_default()
                .insert((*resource).to_owned());
        }
        served
    }

    fn found(all: &[(&str, &str, &str)]) -> Vec<(Level, String)> {
        let mut health = Health::default();
        definitions(&kinds(), &served(all), &mut health);
        health
            .findings
            .into_iter()
            .map(|finding| (finding.level, finding.what))
            .collect()
    }

    #[test]
    fn missing_kinds_and_unsupported_versions_are_reported() {
        let services = (ISTIO, "v1", "virtualservices");
        let filters = (ISTIO, "v1alpha3", "envoyfilters");
        let routes = ("gateway.networking.k8s.io", "v1", "httproutes");
        assert_eq!(found(&[services, filters, routes]), []);
        let what =
            "CustomResourceDefinitions of kinds that are read are not installed: httproutes.gateway.networking.k8s.io"
                .to_owned();
        assert_eq!(found(&[services, filters]), [(Level::Note, what)]);

        let what =
            "CustomResourceDefinitions of kinds that are read are not installed: envoyfilters.networking.istio.io"
                .to_owned();
        assert_eq!(found(&[services, routes]), [(Level::Note, what)]);
        let none = found(&[routes]);
        assert_eq!(
            (none.len(), none[0].0),
            (1, Level::Wrong),
            "an installation without Istio's kinds: {none:?}"
        );

        let newer = found(&[services, (ISTIO, "v9", "envoyfilters"), routes]);
        let what = "envoyfilters.networking.istio.io is only served as v9, but Navarch reads v1alpha3; its objects are not read";
        assert_eq!(newer, [(Level::Wrong, what.to_owned())]);
    }

    #[test]
    fn missing_rights_are_reported_by_resource_with_a_command() {
        let status = Right {
            subresource: "status",
            ..Right::to("patch", ISTIO, "sidecars", "no conditions")
        };
        let denied = [
            Right::to("list", "", "pods", "they are not read"),
            Right::to("watch", "", "pods", "they are not read"),
            Right::to("create", "coordination.k8s.io", "leases", "nobody leads")
                .within("istio-system"),
            status,
        ];

        let mut health = Health::default();
        rights(&denied, "", &mut health);
        let all: Vec<_> = health
            .findings
            .iter()
            .map(|finding| (&*finding.what, &*finding.next))
            .collect();
        let who = "system:serviceaccount:istio-system:istiod";

        let wanted = [
            (
                format!(
                    "{who} may not create leases.coordination.k8s.io in namespace istio-system: nobody leads"
                ),
                format!(
                    "kubectl auth can-i create leases.coordination.k8s.io -n istio-system --as={who}"
                ),
            ),
            (
                format!("{who} may not list, watch pods: they are not read"),
                format!("kubectl auth can-i list pods -A --as={who}"),
            ),
            (
                format!("{who} may not patch sidecars.networking.istio.io/status: no conditions"),
                format!(
                    "kubectl auth can-i patch sidecars.networking.istio.io --subresource=status -A --as={who}"
                ),
            ),
        ];

        assert_eq!(
            all,
            wanted
                .each_ref()
                .map(|(what, next)| (what.as_str(), next.as_str()))
        );

        assert!(health.is_wrong() && health.findings[0].docs == Check::Rights.docs());
        let mut well = Health::default();
        rights(&[], who, &mut well);
        assert_eq!(well.findings, []);
    }

    #[test]
    fn missing_webhooks_and_missing_roots_are_reported() {
        let findings = |all: &[&str], without_roots: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let seen = FoundWebhooks {
                all: owned(all),
                without_roots: owned(without_roots),
            };
            let mut health = Health::default();
            webhooks(HookKind::Mutating, &seen, "canary", &mut health);
            health
                .findings
                .into_iter()
                .map(|finding| (finding.level, finding.what))
                .collect::<Vec<_>>()
        };

        assert_eq!(findings(&["a"], &[]), []);
        let none = "no mutatingwebhookconfigurations has the label istio.io/rev=canary: pods are not injected";
        assert_eq!(findings(&[], &[]), [(Level::Note, none.to_owned())]);
        let lacks = "caBundle of a (mutatingwebhookconfigurations) lacks a root of the webhooks' certificate: pods are not injected";
        assert_eq!(
            findings(&["a", "b"], &["a"]),
            [(Level::Wrong, lacks.to_owned())]
        );
    }

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(
            http_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            "1994-11-06T08:49:37Z".parse().ok()
        );
        assert_eq!(http_date("yesterday"), None);
    }
}
