//! Random mixed meshes: no verdict changes in any step, or the plan is refused.

use serde_json::{Value, json};

use super::world::{Mode, Workload, World, deep};
use crate::at_rest::{bring_to_rest, restart};
use crate::judge::{Judge, MeshSettings};
use crate::objects::Objects;
use crate::plan::{Plan, plan};
use crate::pods::{DataPlane, sidecars_of};
use crate::requests::{RequestKind, Requests};
use crate::verdict::{Effect, Verdict};

/// The meshes that are tried.
const SEEDS: u64 = 50;

/// Random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// True in so many of a hundred cases.
    fn happens(&mut self, percent: u64) -> bool {
        self.number() % 100 < percent
    }

    fn of<T: Clone>(&mut self, items: &[T]) -> T {
        let count = u64::try_from(items.len()).unwrap();
        let index = usize::try_from(self.number() % count).unwrap();
        items[index].clone()
    }
}

/// A mesh of a seed.
fn mesh(seed: u64) -> World {
    let mut random = Random(seed);
    let mut world = World::empty();
    world.sidecars_use_waypoints = random.happens(60);
    let accepts_hbone = random.happens(80);
    let sidecar = Mode::Sidecar { accepts_hbone };
    let port = random.of(&[80, 8080]);

    for (namespace, name, modes, subnet) in [
        ("shop", "web", vec![sidecar], 1),
        ("shop", "api", vec![sidecar, sidecar, Mode::Outside], 2),
        ("client", "client", vec![sidecar, Mode::Ambient], 3),
        ("client", "other", vec![sidecar, Mode::Ambient], 4),
        ("outside", "stranger", vec![Mode::Outside], 5),
    ] {
        let pods = random.of(&[1, 2]);
        world.add_workload(Workload {
            namespace,
            name,
            mode: random.of(&modes),
            subnet,
            pods,
            port,
            target: 8080,
        });
    }

    for index in 0..random.of(&[0, 0, 1, 1, 2, 3]) {
        let spec = policy(&mut random);
        world.add_policy(&format!("p{index}"), &spec.to_string());
    }
    if random.happens(40) {
        let mode = random.of(&["STRICT", "PERMISSIVE"]);
        let namespace = random.of(&["shop", "istio-system"]);
        world.all.add(json!({
            "apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication",
            "metadata": { "name": "default", "namespace": namespace },
            "spec": { "mtls": { "mode": mode } },
        }));
    }
    if random.happens(25) {
        add_split(&mut world, &mut random);
    }
    world
}

/// The spec of a random AuthorizationPolicy.
fn policy(random: &mut Random) -> Value {
    let mut rule = json!({});
    if random.happens(60) {
        let account = random.of(&["client", "other"]);
        rule["from"] = random.of(&[
            json!([{ "source": { "principals": [format!("cluster.local/ns/client/sa/{account}")] } }]),
            json!([{ "source": { "namespaces": ["client"] } }]),
            json!([{ "source": { "notPrincipals": [format!("cluster.local/ns/client/sa/{account}")] } }]),
        ]);
    }
    if random.happens(60) {
        rule["to"] = random.of(&[
            json!([{ "operation": { "methods": ["GET"] } }]),
            json!([{ "operation": { "paths": ["/public/*"], "methods": ["GET", "POST"] } }]),
            json!([{ "operation": { "ports": ["8080"] } }]),
            json!([{ "operation": { "notPaths": ["/admin"] } }]),
        ]);
    }
    if random.happens(20) {
        rule["when"] = json!([{ "key": "request.headers[x-tier]", "values": ["gold"] }]);
    }

    let mut spec = json!({ "rules": [rule], "action": random.of(&["ALLOW", "ALLOW", "DENY"]) });
    if random.happens(60) {
        let labels = random.of(&[
            json!({ "app": "web" }),
            json!({ "app": "api" }),
            json!({ "app": "web", "version": "v1" }),
        ]);
        spec["selector"] = json!({ "matchLabels": labels });
    }
    spec
}

/// Splits the requests to `web` by version, for some clients or all.
fn add_split(world: &mut World, random: &mut Random) {
    let namespace = random.of(&["shop", "client"]);
    let host = "web.shop.svc.cluster.local";
    world.all.add(json!({
        "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "host": host, "subsets": [
            { "name": "v1", "labels": { "version": "v1" } },
            { "name": "v2", "labels": { "version": "v2" } },
        ] },
    }));
    let to = |subset: &str, weight: u32| json!({ "destination": { "host": host, "subset": subset }, "weight": weight });
    world.all.add(json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": { "name": "web", "namespace": namespace },
        "spec": { "hosts": [host], "http": [
            { "match": [{ "uri": { "prefix": "/beta" } }], "route": [to("v1", 100)] },
            { "route": [to("v1", 90), to("v2", 10)] },
        ] },
    }));
}

/// Whether verdicts are equal: who refuses, and rounding, does not matter.
fn is_equal(before: &Verdict, after: &Verdict) -> bool {
    match (before, after) {
        (
            Verdict::Passes { destinations },
            Verdict::Passes {
                destinations: others,
            },
        ) => destinations.keys().eq(others.keys()),
        (Verdict::Refused { except, .. }, Verdict::Refused { except: others, .. }) => {
            except == others
        }
        _ => before == after,
    }
}

/// Checks that no verdict changes while the steps of a plan are done.
fn check(seed: u64, objects: &Objects, settings: &MeshSettings, plan: &Plan) {
    let mut objects = objects.clone();
    bring_to_rest(&mut objects, settings.domain());
    let moving = ["shop".to_owned()].into();
    let requests = Requests::of(&objects, &moving, settings.root(), settings.domain());
    let first = Judge::of(&objects, settings);
    let of = |judge: &Judge, kind: &RequestKind| judge.verdicts(kind);
    let before: Vec<Vec<Verdict>> = requests.kinds.iter().map(|kind| of(&first, kind)).collect();

    for planned in &plan.steps {
        for edit in &planned.step.edits {
            edit.apply(&mut objects);
        }
        if let Some(owner) = &planned.step.restarts {
            let restarted: Vec<_> = sidecars_of(&objects, "shop")
                .filter(|name| {
                    objects
                        .get(name)
                        .is_some_and(|pod| crate::pods::owner(pod) == *owner)
                })
                .cloned()
                .collect();
            for pod in restarted {
                restart(&mut objects, &pod);
            }
        }
        bring_to_rest(&mut objects, settings.domain());

        let now = Judge::of(&objects, settings);
        for (kind, before) in requests.kinds.iter().zip(&before) {
            for after in of(&now, kind) {
                let unjudged = planned
                    .changes
                    .iter()
                    .any(|change| change.effect == Effect::NotJudged && change.request == *kind);
                assert!(
                    unjudged || before.iter().any(|before| is_equal(before, &after)),
                    "seed {seed}, {}: {kind}: {before:?} became {after:?}\n{plan}",
                    planned.step.title
                );
            }
        }
    }

    let left: Vec<_> = sidecars_of(&objects, "shop").collect();
    assert!(left.is_empty(), "seed {seed}: {left:?} still have sidecars");
    let pods = objects.within(crate::objects::POD, "shop");
    for (name, pod) in pods {
        assert_ne!(
            DataPlane::of(pod),
            DataPlane::Outside,
            "seed {seed}: {name}"
        );
    }
}

#[test]
fn verdicts_of_random_meshes_stay_the_same_in_every_step_or_the_plan_is_refused() {
    let mut done = 0;
    let mut refused = 0;
    for seed in 0..SEEDS {
        let world = mesh(seed);
        let is_refused = deep(move || {
            let objects = world.objects();
            let settings = world.settings();
            let moving = ["shop".to_owned()];
            let plan = plan(&objects, &settings, &moving, &mut |_| ()).unwrap();
            if !plan.is_refused() {
                check(seed, &objects, &settings, &plan);
            }
            plan.is_refused()
        });

        if is_refused {
            refused += 1;
        } else {
            done += 1;
        }
    }

    let few = SEEDS / 5;
    assert!(
        done >= few && refused >= few,
        "{done} done, {refused} refused"
    );
}
