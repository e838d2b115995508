//! Plans of small meshes, and of random ones.

mod planted_records;
mod random_meshes;
mod world;

use super::edit::Change;
use super::objects::ObjectName;
use super::plan::{Plan, plan};
use super::state::{State, StateError};
use super::verdict::{Effect, Verdict};
use world::{Mode, Workload, World, deep};

fn plan_of(world: &World) -> Plan {
    let objects = world.objects();
    let settings = world.settings();
    deep(move || {
        let moving = ["shop".to_owned()];
        plan(&objects, &settings, &moving, &mut |_| ()).unwrap()
    })
}

fn titles(plan: &Plan) -> Vec<&str> {
    plan.steps
        .iter()
        .map(|planned| planned.step.title.as_str())
        .collect()
}

const GET_ONLY: &str = r#"{
    "selector": { "matchLabels": { "app": "web" } },
    "rules": [{
        "from": [{ "source": { "principals": ["cluster.local/ns/client/sa/client"] } }],
        "to": [{ "operation": { "methods": ["GET"] } }]
    }]
}"#;

#[test]
fn a_namespace_without_rules_about_requests_needs_no_waypoint() {
    let plan = plan_of(&World::default());
    assert_eq!(
        titles(&plan),
        [
            "label namespace shop istio.io/dataplane-mode=ambient",
            "restart Deployment shop/api without sidecars",
            "restart Deployment shop/web without sidecars",
            "turn injection off in namespace shop",
        ],
        "{plan}"
    );
    assert!(!plan.is_refused(), "{plan}");
    assert!(
        plan.steps
            .iter()
            .all(|planned| planned.is_judged && planned.changed == 0),
        "{plan}"
    );
    assert!(plan.requests > 0);
}

#[test]
fn rules_about_requests_move_to_a_waypoint_before_any_request_does() {
    let mut world = World {
        sidecars_use_waypoints: true,
        ..World::default()
    };
    world.add_policy("get-only", GET_ONLY);
    let plan = plan_of(&world);
    assert_eq!(
        titles(&plan)[..6],
        [
            "create waypoint shop/waypoint",
            "bind the policies of shop to its waypoint (targetRefs)",
            "let the policies of shop accept what has passed the waypoint",
            "prepare the waypoint of shop for its services",
            "bind the services of shop to the waypoint",
            "send requests to services of shop through the waypoint",
        ],
        "{plan}"
    );
    assert!(!plan.is_refused(), "{plan}");
}

#[test]
fn requests_to_the_service_of_a_waypoint_do_not_pass_the_waypoint() {
    let mut world = World {
        sidecars_use_waypoints: true,
        ..World::default()
    };
    world.add_policy("get-only", GET_ONLY);
    world.add_workload(Workload {
        namespace: "client",
        name: "walker",
        mode: Mode::Ambient,
        subnet: 5,
        pods: 1,
        port: 80,
        target: 8080,
    });
    // As the gateway controller creates it.
    world.add(
        r#"{
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "waypoint", "namespace": "shop",
                "labels": { "gateway.istio.io/managed": "istio.io-mesh-controller" }
            },
            "spec": {
                "clusterIP": "10.96.9.1", "clusterIPs": ["10.96.9.1"],
                "selector": { "gateway.networking.k8s.io/gateway-name": "waypoint" },
                "ports": [{ "name": "mesh", "port": 15008, "appProtocol": "hbone" }]
            }
        }"#,
    );

    let plan = plan_of(&world);
    assert!(
        plan.steps.iter().all(|planned| !planned.has_unjudged()),
        "{plan}"
    );
}

#[test]
fn a_step_by_which_sidecars_would_go_past_a_policy_is_refused_with_the_request() {
    let mut world = World::default();
    world.add_policy("get-only", GET_ONLY);
    let plan = plan_of(&world);
    let refused = plan
        .steps
        .iter()
        .find(|planned| planned.is_refused())
        .unwrap_or_else(|| panic!("{plan}"));
    assert_eq!(
        refused.step.title, "restart Deployment shop/web without sidecars",
        "{plan}"
    );

    let change = &refused.changes[0];
    assert_eq!(change.effect, Effect::Broken, "{plan}");
    assert_eq!(change.request.method, "GET");
    let Verdict::Refused { reason, .. } = &change.after else {
        panic!("{plan}")
    };
    assert!(
        reason.contains("AuthorizationPolicy shop/get-only"),
        "{plan}"
    );
    assert!(
        plan.steps.last().is_some_and(|last| !last.is_judged),
        "{plan}"
    );
    assert!(plan.to_string().contains("Refused: no step may be done."));
}

#[test]
fn what_has_no_counterpart_is_named_per_workload() {
    let mut world = World::default();
    world.add(
        r#"{
            "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
            "metadata": { "name": "headers", "namespace": "shop" },
            "spec": {
                "workloadSelector": { "labels": { "app": "web" } },
                "configPatches": [{ "applyTo": "CLUSTER", "match": { "context": "SIDECAR_OUTBOUND" },
                    "patch": { "operation": "MERGE", "value": { "connect_timeout": "5s" } } }]
            }
        }"#,
    );
    world.add(
        r#"{
            "apiVersion": "networking.istio.io/v1", "kind": "Sidecar",
            "metadata": { "name": "default", "namespace": "shop" },
            "spec": { "egress": [{ "hosts": ["./*"] }] }
        }"#,
    );
    let plan = plan_of(&world);
    let lost: Vec<String> = plan
        .counterparts
        .iter()
        .filter_map(|one| Some(format!("{} {}", one.workload.as_ref()?.name, one.object)))
        .collect();
    assert_eq!(
        lost,
        [
            "web EnvoyFilter shop/headers",
            "api Sidecar shop/default",
            "web Sidecar shop/default",
        ],
        "{plan}"
    );

    let unjudged: Vec<&str> = plan
        .steps
        .iter()
        .filter(|planned| planned.has_unjudged())
        .map(|planned| planned.step.title.as_str())
        .collect();
    assert!(
        unjudged.contains(&"restart Deployment shop/web without sidecars")
            && !unjudged.contains(&"restart Deployment shop/api without sidecars"),
        "{unjudged:?}"
    );
}

#[test]
fn a_plan_is_refused_without_the_components_of_ambient_mode() {
    let world = World {
        has_components: false,
        ..World::default()
    };
    let plan = plan_of(&world);
    assert!(plan.is_refused());
    assert_eq!(plan.blockers.len(), 2, "{plan}");
}

#[test]
fn a_record_agrees_with_the_plan_after_each_step_until_an_object_is_edited() {
    let mut world = World::default();
    let first = plan_of(&world);
    let mut state = State::of(&first);
    state.check(&first).unwrap();

    let label = &first.steps[0];
    for edit in &label.step.edits {
        edit.apply(&mut world.all);
    }
    let second = plan_of(&world);
    assert!(matches!(state.check(&second), Err(StateError::Changed(_))));
    state
        .done
        .push(label.begun("2026-01-01T00:00:00Z").unwrap());
    state.check(&second).unwrap();

    world.add_policy(
        "deny",
        r#"{ "action": "DENY", "rules": [{ "to": [{ "operation": { "methods": ["GET"] } }] }] }"#,
    );
    let third = plan_of(&world);
    assert!(matches!(state.check(&third), Err(StateError::Changed(_))));
    state.replan(&third);
    state.check(&third).unwrap();
}

#[test]
fn every_edit_of_a_plan_is_one_that_records_may_name() {
    let mut world = World {
        sidecars_use_waypoints: true,
        ..World::default()
    };
    world.add_policy("get-only", GET_ONLY);
    let plan = plan_of(&world);
    for planned in &plan.steps {
        assert!(planned.begun("").is_some(), "{}", planned.step.title);
        for edit in planned.step.edits.iter().chain(&planned.undo) {
            assert!(super::state::is_permitted(edit, "shop"), "{edit:?}");
        }
    }
}

#[test]
fn undoing_all_steps_restores_all_objects() {
    let mut world = World {
        sidecars_use_waypoints: true,
        ..World::default()
    };
    world.add_policy("get-only", GET_ONLY);
    let plan = plan_of(&world);
    let before = world.objects();

    let mut objects = before.clone();
    for planned in &plan.steps {
        for edit in &planned.step.edits {
            edit.apply(&mut objects);
        }
    }
    assert_ne!(objects, before);

    for planned in plan.steps.iter().rev() {
        for edit in &planned.undo {
            edit.apply(&mut objects);
        }
    }

    let names = |objects: &super::objects::Objects| -> Vec<ObjectName> {
        objects.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&objects), names(&before));
    for (name, object) in before.iter() {
        assert_eq!(
            world::without_empty_maps(objects.get(name).unwrap()),
            world::without_empty_maps(object),
            "{name}"
        );
    }
}

#[test]
fn restarts_are_awaited_in_both_directions() {
    use super::at_rest::{bring_to_rest, restart};
    use super::pods::sidecars_of;
    use super::steps::{returning, waiting};

    let world = World::default();
    let plan = plan_of(&world);
    let mut objects = world.objects();
    let restarted = &plan.steps[1];
    assert_eq!(
        restarted.step.title,
        "restart Deployment shop/api without sidecars"
    );
    for planned in &plan.steps[..2] {
        for edit in &planned.step.edits {
            edit.apply(&mut objects);
        }
    }
    assert_eq!(
        waiting(&objects, "shop"),
        ["Deployment shop/api has 2 pods with sidecars"]
    );

    let of_api: Vec<ObjectName> = sidecars_of(&objects, "shop")
        .filter(|name| name.name.starts_with("api"))
        .cloned()
        .collect();
    for pod in &of_api {
        restart(&mut objects, pod);
    }
    bring_to_rest(&mut objects, "cluster.local");
    assert!(waiting(&objects, "shop").is_empty());
    assert!(returning(&objects, "shop").is_empty());

    for edit in &restarted.undo {
        edit.apply(&mut objects);
    }
    assert_eq!(
        returning(&objects, "shop"),
        ["Deployment shop/api has pods without sidecars"]
    );
}

#[test]
fn policies_of_other_revisions_are_neither_judged_nor_copied() {
    let mut world = World {
        sidecars_use_waypoints: true,
        revision: "canary".to_owned(),
        tags: ["prod".to_owned()].into(),
        ..World::default()
    };
    let deny_all = r#"{ "action": "DENY", "rules": [{}] }"#;
    world.add_policy("of-stable", deny_all);
    world.add_policy("of-prod", GET_ONLY);
    for (name, revision) in [("of-stable", "stable"), ("of-prod", "prod")] {
        world.set_revision(name, revision);
    }

    let plan = plan_of(&world);
    assert!(!plan.is_refused(), "{plan}");
    let edits = || plan.steps.iter().flat_map(|planned| &planned.step.edits);
    let policies: Vec<&str> = edits()
        .filter(|edit| edit.object.kind == "AuthorizationPolicy")
        .map(|edit| edit.object.name.as_str())
        .collect();
    assert_eq!(policies, ["of-prod-waypoint", "of-prod"], "{plan}");

    // The copy is in force where the original is.
    let mut copies = edits().filter_map(|edit| match &edit.change {
        Change::Create { content } => Some(content),
        Change::Patch { .. } | Change::Delete => None,
    });
    let copy = copies
        .find(|content| content["metadata"]["name"] == "of-prod-waypoint")
        .unwrap();
    assert_eq!(copy["metadata"]["labels"]["istio.io/rev"], "prod");

    // Without a revision, the control plane reads both.
    world.revision.clear();
    let edits = plan_of(&world)
        .steps
        .into_iter()
        .flat_map(|one| one.step.edits);
    let names: Vec<String> = edits.map(|edit| edit.object.name).collect();
    assert!(names.contains(&"of-stable".to_owned()), "{names:?}");
}

#[test]
fn a_copy_that_another_revision_has_must_be_deleted_first() {
    let mut world = World {
        sidecars_use_waypoints: true,
        revision: "canary".to_owned(),
        ..World::default()
    };
    world.add_policy("get-only", GET_ONLY);
    world.add_policy("get-only-waypoint", GET_ONLY);
    world.set_revision("get-only-waypoint", "stable");
    let plan = plan_of(&world);
    assert_eq!(
        plan.blockers,
        [
            "AuthorizationPolicy shop/get-only-waypoint exists, and is of another revision: delete \
             it"
        ],
        "{plan}"
    );
}

#[test]
fn ztunnel_must_be_where_the_control_plane_trusts_it() {
    let world = World {
        ztunnel_namespace: "other-mesh",
        ..World::default()
    };
    let plan = plan_of(&world);
    assert!(
        plan.blockers[0].starts_with("there is no DaemonSet ztunnel in the namespace istio-system"),
        "{plan}"
    );
}
