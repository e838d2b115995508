//! All objects, indexed once for all analyzers.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use serde_json::Value;

use crate::kind::Kind;
use crate::labels::{self, is_subset};
use crate::read::Reader;
use crate::resource::{Content, Key, Resource, Spec, Texts};

/// The settings of the mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct Mesh {
    /// `meshConfig` over Istio's defaults; by default these defaults alone.
    pub config: MeshConfig,
    /// `meshNetworks`.
    pub networks: MeshNetworks,
    /// The namespace of the control plane.
    pub system_namespace: String,
}

impl Default for Mesh {
    fn default() -> Self {
        let config = MeshConfig::istio_defaults();
        let networks = MeshNetworks::default();
        Self {
            config,
            networks,
            system_namespace: "istio-system".to_owned(),
        }
    }
}

/// Objects by kind and name, pods by label, and the settings of the mesh.
#[derive(Debug)]
pub struct Context {
    pub(crate) mesh: Mesh,
    /// Objects in the order of kind, namespace, name and cluster.
    objects: BTreeMap<Key, Arc<Resource>>,
    /// Pods by each of their labels.
    pods: HashMap<(String, String), Vec<Arc<Resource>>>,
    /// Services by namespace.
    services: HashMap<String, Vec<Arc<Resource>>>,
    /// The kinds whose objects are not known.
    pub(crate) missing: BTreeSet<Kind>,
    /// The kinds that were read since the last call of [`Self::take_read_kinds`].
    read_kinds: RefCell<BTreeSet<Kind>>,
}

impl Context {
    /// Indexes what was read. Of the kinds that are `missing` it is not known what there is
    /// besides; of all others, what was not read is not there.
    #[must_use]
    pub fn new(reader: Reader, mesh: Mesh, missing: BTreeSet<Kind>) -> Self {
        let objects = reader.finish().0;
        let read_kinds = RefCell::default();
        let mut context = Self {
            mesh,
            objects,
            pods: HashMap::new(),
            services: HashMap::new(),
            missing,
            read_kinds,
        };

        let networks = networks(&context.mesh);
        context.objects.insert(networks.key(), Arc::new(networks));

        for (pod, _) in context
            .specs::<Pod>()
            .map(|(pod, spec)| (Arc::clone(pod), spec.metadata.uid.clone()))
            .collect::<Vec<_>>()
        {
            for (key, value) in &pod.labels {
                context
                    .pods
                    .entry((key.clone(), value.clone()))
                    .or_default()
                    .push(Arc::clone(&pod));
            }
        }

        for service in context.each(Kind::Service).cloned().collect::<Vec<_>>() {
            context
                .services
                .entry(service.namespace.clone())
                .or_default()
                .push(service);
        }

        context.take_read_kinds();
        context
    }

    /// The kinds that were read since the last call.
    pub(crate) fn take_read_kinds(&self) -> BTreeSet<Kind> {
        self.read_kinds.take()
    }

    pub(crate) fn each(&self, kind: Kind) -> impl Iterator<Item = &Arc<Resource>> {
        self.read_kinds.borrow_mut().insert(kind);
        let first = Key {
            kind,
            namespace: String::new(),
            name: String::new(),
            cluster: None,
        };
        self.objects
            .range(first..)
            .take_while(move |(key, _)| key.kind == kind)
            .map(|(_, resource)| resource)
    }

    /// The objects of a kind with what they say.
    pub(crate) fn specs<T: Spec>(&self) -> impl Iterator<Item = (&Arc<Resource>, &T)> {
        self.each(T::KIND)
            .filter_map(|resource| Some((resource, resource.spec()?)))
    }

    /// An object; where several clusters have it, that of the first.
    pub(crate) fn find(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Arc<Resource>> {
        self.read_kinds.borrow_mut().insert(kind);
        let first = Key {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster: None,
        };
        let (key, resource) = self.objects.range(&first..).next()?;
        ((key.kind, &key.namespace, &key.name) == (kind, &first.namespace, &first.name))
            .then_some(resource)
    }

    /// The labels of a namespace, if there is one of the name.
    pub(crate) fn namespace(&self, name: &str) -> Option<&Arc<Resource>> {
        self.find(Kind::Namespace, "", name)
    }

    /// The pods that have all these labels; an empty selector takes all.
    pub(crate) fn pods_with<'a>(
        &'a self,
        selector: &'a Texts,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.read_kinds.borrow_mut().insert(Kind::Pod);
        let lists = selector.iter().map(|(key, value)| {
            self.pods
                .get(&(key.clone(), value.clone()))
                .map(Vec::as_slice)
                .unwrap_or_default()
        });

        let shortest = lists.min_by_key(|list| list.len());
        let all = shortest
            .is_none()
            .then(|| self.each(Kind::Pod))
            .into_iter()
            .flatten();
        let some = shortest
            .into_iter()
            .flatten()
            .filter(move |pod| is_subset(selector, &pod.labels));

        some.chain(all)
    }

    /// The Services of a namespace with what they say.
    pub(crate) fn services_of(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = (&Arc<Resource>, &Service)> {
        self.read_kinds.borrow_mut().insert(Kind::Service);
        let services = self.services.get(namespace).into_iter().flatten();
        services.filter_map(|resource| Some((resource, resource.spec()?)))
    }

    /// The Services that select pods with these labels in a namespace; those without a selector
    /// select none.
    pub(crate) fn services_selecting<'a>(
        &'a self,
        namespace: &str,
        pod: &'a Texts,
    ) -> impl Iterator<Item = (&'a Arc<Resource>, &'a Service)> {
        self.services_of(namespace).filter(move |(_, service)| {
            let selector = labels::selector_of(service);
            selector.is_some_and(|selector| !selector.is_empty() && is_subset(selector, pod))
        })
    }
}

/// The settings of networks as an object that messages speak of.
fn networks(mesh: &Mesh) -> Resource {
    Resource {
        kind: Kind::MeshNetworks,
        namespace: mesh.system_namespace.clone(),
        name: "meshnetworks".to_owned(),
        labels: Texts::new(),
        annotations: Texts::new(),
        status: Value::Null,
        content: Content::Plain(Value::Null),
        place: None,
        cluster: None,
    }
}
