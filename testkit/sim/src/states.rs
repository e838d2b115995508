//! The invariants about each state of a proxy, which are looked at with each response.

use std::sync::Arc;

use memchr::memmem::Finder;

use crate::KEY_LINE;
use crate::proxy::{Check, Held, Spec, Type};
use crate::story::Story;
use crate::world::{ANCHOR, ANCHOR_ENDPOINTS, NAMESPACES, PRIVATE_KEY, PRIVATE_PORT, private_name};

/// Looks at the states of proxies.
struct States {
    story: Story,
    /// The cluster of the service that never changes.
    anchor: String,
    /// A part of the gateway's private key.
    gateway_key: Finder<'static>,
    any_key: Finder<'static>,
    private: Vec<Private>,
}

/// What only proxies of a namespace may hold.
struct Private {
    namespace: &'static str,
    /// Parts of the resources that its private objects add to.
    parts: Vec<Finder<'static>>,
    /// The end of the names of its services.
    services: String,
}

/// The invariants: the service that never changes is in every state, private keys are only where
/// they belong, and objects of one namespace change nothing for proxies of others that may not see
/// them.
pub(crate) fn check(story: &Story) -> Check {
    let states = States::new(story);
    Arc::new(move |spec: &Spec, held: &Held| {
        states.check_anchor(spec, held);
        states.check_private(spec, held);
        states.check_keys(spec, held);
    })
}

impl States {
    fn new(story: &Story) -> Self {
        let key: String = PRIVATE_KEY.lines().skip(1).take(1).collect();
        Self {
            story: story.clone(),
            anchor: format!("outbound|80||{ANCHOR}"),
            gateway_key: finder(&key),
            any_key: finder(KEY_LINE),
            private: NAMESPACES.into_iter().map(Private::of).collect(),
        }
    }

    fn check_anchor(&self, spec: &Spec, held: &Held) {
        let is_partial = |what: String| {
            let text = format!("{} has {what}", spec.name);
            self.story.violated("no state is partial", &text);
        };
        let has = |kind: Type| held.of(kind).next().is_some();
        let anchor = &self.anchor;

        if has(Type::Cluster) && held.get(Type::Cluster, anchor).is_none() {
            is_partial(format!("clusters, but not {anchor}"));
        }
        if let Some(endpoints) = held.endpoints(anchor)
            && endpoints != ANCHOR_ENDPOINTS
        {
            is_partial(format!("{endpoints} endpoints of {anchor}"));
        }
        if has(Type::Listener)
            && spec.kind == "sidecar"
            && held.get(Type::Listener, "virtualOutbound").is_none()
        {
            is_partial("listeners, but not virtualOutbound".to_owned());
        }
    }

    fn check_private(&self, spec: &Spec, held: &Held) {
        let others = self.private.iter();
        for other in others.filter(|other| other.namespace != spec.namespace) {
            let mut names = held.of(Type::Cluster).map(|(name, _)| name);
            let has_service = names.any(|name| other.has_service(name));
            if has_service || all(held).any(|bytes| other.is_part_of(bytes)) {
                self.story.violated(
                    "objects reach only those who may see them",
                    &format!("{} has private ones of {}", spec.name, other.namespace),
                );
            }
        }
    }

    fn check_keys(&self, spec: &Spec, held: &Held) {
        let may_have_key = spec.account.as_deref() == Some("gateway");
        let mut has_key = false;
        let mut has_another = false;
        for bytes in all(held).filter(|bytes| self.any_key.find(bytes).is_some()) {
            match self.gateway_key.find(bytes) {
                Some(_) => has_key = true,
                None => has_another = true,
            }
        }

        if has_key && !may_have_key {
            self.story
                .violated("secrets go to those with the right", &spec.name);
        }
        if has_another {
            self.story
                .violated("private keys stay where they belong", &spec.name);
        }
    }
}

impl Private {
    fn of(namespace: &'static str) -> Self {
        let policies = format!("ns[{namespace}]-policy[");
        Self {
            namespace,
            parts: vec![finder(&private_name(namespace)), finder(&policies)],
            services: format!(".{namespace}.svc.cluster.local"),
        }
    }

    fn is_part_of(&self, resource: &[u8]) -> bool {
        self.parts.iter().any(|part| part.find(resource).is_some())
    }

    /// Whether a cluster is of a private service.
    fn has_service(&self, cluster: &str) -> bool {
        let port = format!("outbound|{PRIVATE_PORT}|");
        cluster.starts_with(&port) && cluster.ends_with(&self.services)
    }
}

fn finder(part: &str) -> Finder<'static> {
    Finder::new(part).into_owned()
}

/// The messages of all resources.
fn all(held: &Held) -> impl Iterator<Item = &[u8]> {
    let kinds = Type::ALL.into_iter();
    kinds.flat_map(move |kind| held.of(kind).map(|(_, resource)| &*resource.bytes))
}
