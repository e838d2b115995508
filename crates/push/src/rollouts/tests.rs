//! The version of an object that each proxy sees, with a mesh state and an engine.

use bytes::Bytes;
use navarch_api::istio::VirtualService;
use navarch_api::names::ResourceName;
use navarch_api::settings::Settings;
use navarch_api::testing::object;
use proptest::prelude::*;

use super::*;
use crate::engine::{Engine, Interest, ProxyId, SMALL};
use crate::mesh_state::MeshState;
use crate::proxy::{Locality, Proxy};
use crate::resource::ResourceType;
use crate::testing::NoSink;
use crate::view::{Translator, View};

/// One route per VirtualService by name, and one that lists all hosts: objects are read one by one,
/// by name, by namespace and all at once.
struct Hosts;

fn hosts<'a>(
    rules: impl Iterator<Item = &'a Arc<navarch_api::object::Object<VirtualService>>>,
) -> String {
    rules
        .flat_map(|rule| rule.spec.hosts.iter().cloned())
        .collect::<Vec<_>>()
        .join(",")
}

impl Translator for Hosts {
    fn names(&self, _: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        let names = view
            .names::<VirtualService>()
            .map(|name| ResourceName::new(&*name.name));
        names
            .chain(["all", "shop"].map(ResourceName::new))
            .collect()
    }

    fn resource(&self, _: ResourceType, name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
        let text = match name.as_str() {
            "all" => hosts(view.list_all::<VirtualService>()),
            "shop" => {
                hosts(view.list::<VirtualService>(&navarch_api::names::Namespace::new("shop")))
            }
            name => hosts(
                view.object::<VirtualService>(&NamespacedName::new("shop", name))
                    .into_iter(),
            ),
        };
        Some(Bytes::from(text))
    }
}

/// A mesh state, an engine, and proxies that subscribe to everything.
struct Mesh {
    state: MeshState,
    engine: Engine,
    proxies: Vec<ProxyId>,
}

fn rule(name: &str, host: &str, annotations: &str) -> AnyObject {
    let yaml = format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: shop, annotations: {{{annotations}}}}}\n\
         spec: {{hosts: [{host}], http: [{{route: [{{destination: {{host: a}}}}]}}]}}\n"
    );
    object(&yaml)
}

const STAGED: &str = "navarch.io/rollout: '30%,60%'";

fn staged(host: &str) -> Change {
    Change::Put(rule("v", host, STAGED))
}

fn plain(host: &str) -> Change {
    Change::Put(rule("v", host, ""))
}

fn name() -> ObjectRef {
    rule("v", "a", "").object_ref()
}

fn command(command: RolloutCommand) -> Change {
    Change::Rollout(name(), Arc::new(command))
}

fn stage(at: usize, chosen: &[&str]) -> Change {
    let chosen = Arc::new(chosen.iter().map(|name| Arc::from(*name)).collect());
    command(RolloutCommand::Stage {
        serial: None,
        at,
        chosen,
    })
}

fn proxy(n: usize) -> String {
    format!("p{n}.shop")
}

impl Mesh {
    /// The initial objects are applied before any rollout.
    fn new(proxies: usize, changes: impl IntoIterator<Item = Change>) -> Self {
        let mut state = MeshState::new(Settings::default());
        state.apply(changes);
        let engine = Engine::with_config(SMALL, state.context(), Arc::new(Hosts));
        let mut mesh = Self {
            state,
            engine,
            proxies: Vec::new(),
        };

        for n in 0..proxies {
            let id = format!("sidecar~10.0.0.1~{}~shop.svc.cluster.local", proxy(n));
            let proxy = Proxy::parse(&id, serde_json::json!({}), Locality::default()).unwrap();
            let id = mesh.engine.connect(Arc::new(proxy), Arc::new(NoSink));
            mesh.engine.subscribe(
                id,
                ResourceType::Cluster,
                Interest {
                    wildcard: true,
                    ..Interest::default()
                },
            );
            mesh.proxies.push(id);
        }

        mesh
    }

    fn apply(&mut self, changes: impl IntoIterator<Item = Change>) -> crate::engine::PushStats {
        let facts = self.state.apply(changes);
        if facts.is_empty() {
            return crate::engine::PushStats::default();
        }
        self.engine.apply(self.state.context(), facts)
    }

    /// The content of each of a proxy's resources.
    fn shown(&self, n: usize) -> Vec<(String, String)> {
        let shown = self
            .engine
            .published(self.proxies[n], ResourceType::Cluster)
            .unwrap();
        let text = |body: &Bytes| String::from_utf8_lossy(body).into_owned();
        shown
            .resources
            .iter()
            .map(|one| (one.name.to_string(), text(&one.body)))
            .collect()
    }

    /// The host that each proxy sees, which must be the same in all resources.
    fn hosts(&self) -> Vec<Option<String>> {
        let host = |n: usize| {
            let shown: BTreeMap<String, String> = self.shown(n).into_iter().collect();
            let own = shown.get("v").cloned();
            assert_eq!(shown["all"], shown["shop"]);
            assert!(
                own.iter()
                    .all(|own| shown["all"].split(',').any(|host| host == own)),
                "{shown:?}"
            );
            own
        };
        (0..self.proxies.len()).map(host).collect()
    }

    fn count(&self, host: &str) -> usize {
        self.hosts()
            .iter()
            .filter(|one| one.as_deref() == Some(host))
            .count()
    }

    fn rollout(&self) -> Arc<Rollout> {
        self.state.context().rollouts[&name()].clone()
    }
}

#[test]
fn a_rollout_only_adds_proxies() {
    let mut mesh = Mesh::new(40, [plain("old")]);
    mesh.apply([Change::Stages]);
    mesh.apply([staged("new")]);
    assert_eq!(
        mesh.count("old"),
        40,
        "no proxy gets the new version before a stage is set"
    );

    mesh.apply([stage(0, &["p3.shop"])]);
    let first = mesh.hosts();
    let count = mesh.count("new");
    assert!((5..20).contains(&count), "{count} of 40 are about 30 %");
    assert_eq!(first[3].as_deref(), Some("new"));

    // Two groups of proxies share all computations.
    mesh.apply([stage(1, &["p3.shop"])]);
    let second = mesh.hosts();
    assert!(mesh.count("new") > count);
    for (first, second) in first.iter().zip(&second) {
        assert!(first.as_deref() != Some("new") || second.as_deref() == Some("new"));
    }

    mesh.apply([stage(2, &[])]);
    assert_eq!(mesh.count("new"), 40);
    let stats = mesh.apply([command(RolloutCommand::Complete { serial: None })]);
    assert_eq!(
        (mesh.count("new"), stats.published),
        (40, 0),
        "all proxies have it already"
    );

    assert!(
        mesh.state.context().rollouts.is_empty()
            && mesh.state.context().new_versions.all().next().is_none()
    );
}

#[test]
fn results_of_either_version_are_computed_once() {
    let mut mesh = Mesh::new(40, [plain("old"), Change::Put(rule("other", "x", ""))]);
    mesh.apply([Change::Stages]);
    let begun = mesh.apply([staged("new")]);
    // The previous version is computed once more, because results now depend on the proxy: its own
    // route, both lists, the names and the collection.
    assert!(begun.published == 0 && begun.computed < 60, "{begun:?}");
    let moved = mesh.apply([stage(0, &[])]);
    assert_eq!(
        moved.published,
        mesh.count("new"),
        "only proxies that see another version get a push"
    );
    // For each proxy it is computed whether it sees the new version; the resources for that version
    // are computed for the first one only.
    assert!(moved.computed < 40 + 30, "{moved:?}");
}

#[test]
fn without_rollouts_no_extra_queries_are_made() {
    let mut mesh = Mesh::new(10, [plain("old")]);
    let before = mesh.engine.sizes();
    mesh.apply([Change::Stages]);
    mesh.apply([plain("new")]);
    mesh.apply([staged("new")]);
    assert_eq!(
        mesh.count("new"),
        10,
        "a changed annotation alone starts no rollout"
    );
    let sizes = mesh.engine.sizes();
    assert_eq!(
        (sizes.attributes, sizes.attribute_values),
        (before.attributes, before.attribute_values)
    );
}

#[test]
fn a_stopped_version_is_not_served_until_the_object_is_edited() {
    let mut mesh = Mesh::new(10, [plain("old")]);
    mesh.apply([Change::Stages, staged("bad"), stage(1, &["p0.shop"])]);
    assert!(mesh.count("bad") > 0);

    // A rejection is attributed to the version in progress, and no object is quarantined.
    mesh.apply([Change::Quarantine(name(), "no such filter".into())]);
    assert_eq!(
        (mesh.count("old"), mesh.state.context().quarantined.len()),
        (10, 0)
    );
    assert_eq!(
        mesh.rollout().progress,
        RolloutProgress::Stopped("no such filter".into())
    );

    mesh.apply([
        stage(2, &[]),
        command(RolloutCommand::Complete { serial: None }),
        staged("bad"),
    ]);

    assert_eq!(
        mesh.count("old"),
        10,
        "neither a command nor the same object starts it again"
    );
    mesh.apply([Change::Quarantine(name(), "again".into())]);
    assert_eq!(
        (mesh.count("old"), mesh.state.context().quarantined.len()),
        (10, 0)
    );

    // An edit starts from the last complete version.
    mesh.apply([staged("mended")]);
    assert_eq!(
        (mesh.count("old"), mesh.rollout().progress.clone()),
        (10, RolloutProgress::Waiting)
    );
    mesh.apply([plain("for all")]);
    assert_eq!(
        (mesh.count("for all"), mesh.state.context().rollouts.len()),
        (10, 0)
    );
}

#[test]
fn an_edit_during_a_rollout_replaces_the_new_version() {
    let mut mesh = Mesh::new(10, [plain("old")]);
    mesh.apply([Change::Stages, staged("one"), stage(1, &["p0.shop"])]);
    let serial = mesh.rollout().serial;
    mesh.apply([staged("two")]);
    assert_eq!(mesh.count("old"), 10);
    let late = RolloutCommand::Stage {
        serial: Some(serial),
        at: 1,
        chosen: Arc::default(),
    };
    mesh.apply([command(late)]);

    assert_eq!(
        mesh.count("old"),
        10,
        "a command for the previous rollout has no effect"
    );
    mesh.apply([stage(2, &[])]);
    assert_eq!(mesh.count("two"), 10);

    // Back to the previous version: no rollout is left.
    mesh.apply([plain("old")]);
    assert_eq!(
        (mesh.count("old"), mesh.state.context().rollouts.len()),
        (10, 0)
    );
}

#[test]
fn a_new_object_follows_stages_and_a_deletion_applies_at_once() {
    let mut mesh = Mesh::new(10, []);
    mesh.apply([Change::Stages, staged("new"), stage(0, &["p0.shop"])]);
    let hosts = mesh.hosts();
    assert!(
        hosts.contains(&None) && hosts[0].as_deref() == Some("new"),
        "{hosts:?}"
    );

    // Deleted and recreated in one batch, as when a source reads all objects again.
    assert_eq!(
        mesh.apply([Change::Removed(name()), staged("new")])
            .published,
        0
    );
    assert_eq!(mesh.hosts(), hosts);
    mesh.apply([Change::Removed(name())]);

    assert_eq!(
        (mesh.hosts(), mesh.state.context().rollouts.len()),
        (vec![None; 10], 0)
    );
}

#[test]
fn a_copy_of_the_world_has_both_versions() {
    let mut mesh = Mesh::new(10, [plain("old")]);
    mesh.apply([Change::Stages, staged("new"), stage(0, &["p0.shop"])]);
    let mut copy = MeshState::fork(&mesh.state.context());
    let one = mesh.state.context();
    let other = copy.context();
    assert_eq!(
        (&one.rollouts, one.new_versions.any(&name())),
        (&other.rollouts, other.new_versions.any(&name()))
    );

    // A tried version applies to all proxies of the copy.
    copy.apply([staged("tried")]);
    let tried = copy.context();
    assert!(
        tried.rollouts.is_empty()
            && tried
                .objects
                .virtual_services
                .iter()
                .next()
                .unwrap()
                .spec
                .hosts
                == ["tried"]
    );
}

#[test]
fn rollouts_resume_after_a_restart() {
    let object = |host| rule("v", host, STAGED);
    let kept = |progress| RolloutCommand::Restore {
        new: object("new"),
        before: Some(object("old")),
        progress,
    };

    let begun = || {
        kept(RolloutProgress::Stage {
            at: 1,
            chosen: Arc::default(),
        })
    };

    // Before the object is read, and after.
    for changes in [
        [command(begun()), staged("new")],
        [staged("new"), command(begun())],
    ] {
        let mut mesh = Mesh::new(20, changes);
        mesh.apply([Change::Stages]);
        assert!(
            mesh.count("new") > 0 && mesh.count("old") > 0,
            "{:?}",
            mesh.hosts()
        );
    }

    let mut aborted = Mesh::new(
        20,
        [
            command(kept(RolloutProgress::Stopped("bad".into()))),
            staged("new"),
        ],
    );

    aborted.apply([Change::Stages]);
    assert_eq!(aborted.count("old"), 20);

    // The object was edited while no control plane was running.
    let mut edited = Mesh::new(20, [command(begun()), staged("newer"), Change::Stages]);
    edited.apply([staged("newer")]);
    assert_eq!(
        (edited.count("newer"), edited.state.context().rollouts.len()),
        (20, 0)
    );
}

/// A random event of one of two objects.
fn event() -> impl Strategy<Value = Change> {
    let object = prop_oneof![Just("v"), Just("w")];
    let host = prop_oneof![Just("a"), Just("b"), Just("c")];
    let annotations =
        prop_oneof![3 => Just(STAGED), 1 => Just(""), 1 => Just("navarch.io/rollout: '100%'")];
    let put = (object.clone(), host, annotations)
        .prop_map(|(name, host, with)| Change::Put(rule(name, host, with)));
    let of = |name: &str| rule(name, "a", "").object_ref();
    let step = (object.clone(), 0..4_usize, any::<bool>()).prop_map(move |(name, at, chosen)| {
        let chosen = if chosen {
            Arc::new([Arc::from("p0.shop")].into())
        } else {
            Arc::default()
        };
        Change::Rollout(
            of(name),
            Arc::new(RolloutCommand::Stage {
                serial: None,
                at,
                chosen,
            }),
        )
    });

    let end = (object.clone(), any::<bool>()).prop_map(move |(name, is_good)| {
        let end = if is_good {
            RolloutCommand::Complete { serial: None }
        } else {
            RolloutCommand::Stop {
                serial: None,
                reason: "no".into(),
            }
        };
        Change::Rollout(of(name), Arc::new(end))
    });

    let quarantined = object
        .clone()
        .prop_map(move |name| Change::Quarantine(of(name), "no".into()));
    let gone = object.prop_map(move |name| Change::Removed(of(name)));
    prop_oneof![5 => put, 5 => step, 2 => end, 1 => quarantined, 1 => gone]
}

/// The resources of a new control plane with the versions in force.
fn fresh(context: &crate::context::PushContext) -> Mesh {
    let old = context.objects.all().map(Change::Put);
    let restored = context.rollouts.iter().map(|(name, rollout)| {
        let new = context.new_versions.any(name).unwrap();
        let before = context.objects.any(name);
        let command = RolloutCommand::Restore {
            new,
            before,
            progress: rollout.progress.clone(),
        };
        Change::Rollout(name.clone(), Arc::new(command))
    });

    let written = context.new_versions.all().map(Change::Put);
    let changes: Vec<Change> = old
        .chain(restored)
        .chain(written)
        .chain([Change::Stages])
        .collect();

    Mesh::new(6, changes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_edits_and_stages_equals_a_fresh_start(
        batches in prop::collection::vec(prop::collection::vec(event(), 1..4), 1..12),
    ) {
        let mut mesh = Mesh::new(6, [plain("a"), Change::Put(rule("w", "b", ""))]);
        mesh.apply([Change::Stages]);

        for batch in batches {
            mesh.apply(batch);
            let fresh = fresh(&mesh.state.context());
            for n in 0..6 {
                prop_assert_eq!(fresh.shown(n), mesh.shown(n), "proxy {}", n);
            }
        }

        // If it is complete or stopped, all proxies see the same version.
        let context = mesh.state.context();
        for name in context.rollouts.keys() {
            let command = RolloutCommand::Complete { serial: None };
            mesh.apply([Change::Rollout(name.clone(), Arc::new(command))]);
        }

        let context = mesh.state.context();
        let left: Vec<Change> = context.objects.all().map(Change::Put).collect();
        let fresh = Mesh::new(6, left);
        for n in 0..6 {
            prop_assert_eq!(fresh.shown(n), mesh.shown(n), "proxy {}", n);
        }
    }
}
