//! Records that somebody else has written: what is finished and undone for them.

use serde_json::{Value, json};

use super::world::World;
use super::{GET_ONLY, plan_of};
use crate::edit::{Change, Edit};
use crate::objects::{ObjectName, Objects};
use crate::plan::PlannedStep;
use crate::state::DoneStep;

const TIME: &str = "2026-11-29T10:15:00Z";

/// A namespace with a policy that needs a waypoint, which sidecars use.
fn world() -> World {
    let mut world = World {
        sidecars_use_waypoints: true,
        ..World::default()
    };
    world.add_policy("get-only", GET_ONLY);
    world
}

/// A step as it is recorded.
fn recorded(planned: &PlannedStep) -> DoneStep {
    DoneStep {
        title: planned.step.title.clone(),
        time: TIME.to_owned(),
        edits: planned.step.edits.clone(),
        undo: planned.undo.clone(),
    }
}

/// A record of one edit and what undoes it.
fn planted(object: &Value, change: Change, undo: Change) -> DoneStep {
    let edit = |change| Edit {
        object: ObjectName::of(object),
        change,
    };
    DoneStep {
        title: "a step".to_owned(),
        time: TIME.to_owned(),
        edits: vec![edit(change)],
        undo: vec![edit(undo)],
    }
}

fn objects(of: &[&Value]) -> Objects {
    let mut objects = Objects::default();
    of.iter().for_each(|object| objects.add((*object).clone()));
    objects
}

fn is_undone(step: &DoneStep, objects: &Objects) -> bool {
    step.against_reverting(objects, "shop").is_empty()
}

#[test]
fn every_step_can_be_undone_while_it_is_in_force_and_once_it_is_undone() {
    let world = world();
    let plan = plan_of(&world);
    let mut objects = world.objects();
    for planned in &plan.steps {
        let step = recorded(planned);
        let reasons = |objects: &Objects| step.against_reverting(objects, "shop");
        assert_eq!(reasons(&objects), Vec::<String>::new(), "{step:?}");
        for edit in &planned.step.edits {
            edit.apply(&mut objects);
        }
        assert_eq!(reasons(&objects), Vec::<String>::new(), "{step:?}");
    }
}

#[test]
fn what_no_step_has_made_is_not_undone() {
    let deny = json!({
        "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
        "metadata": { "name": "deny", "namespace": "shop" },
        "spec": { "action": "DENY", "rules": [{}] },
    });
    let mut allow_all = deny.clone();
    allow_all["spec"] = json!({ "rules": [{}] });
    let mut gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": "waypoint", "namespace": "shop" },
        "spec": { "gatewayClassName": "istio-waypoint", "listeners": [] },
    });
    gateway["spec"]["infrastructure"] = json!({ "parametersRef": { "name": "evil" } });
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "shop", "labels": { "istio.io/use-waypoint": "waypoint" } },
    });

    let create = |content: &Value| Change::Create {
        content: content.clone(),
    };
    let rules = |rules: Value| Change::Patch {
        patch: json!({ "spec": { "rules": rules } }),
    };
    let waypoint = |name: &str| Change::Patch {
        patch: json!({ "metadata": { "labels": { "istio.io/use-waypoint": name } } }),
    };
    let all = objects(&[&deny, &gateway, &namespace]);
    for step in [
        planted(&deny, create(&deny), Change::Delete),
        planted(&allow_all, Change::Delete, create(&allow_all)),
        planted(&gateway, Change::Delete, create(&gateway)),
        planted(&gateway, create(&gateway), Change::Delete),
        planted(&deny, rules(json!([{}])), rules(json!([]))),
        planted(&namespace, waypoint("waypoint"), waypoint("evil")),
    ] {
        assert!(!is_undone(&step, &all), "{step:?}");
    }

    let mut shorter = planted(&deny, rules(json!([{}])), rules(json!([])));
    shorter.edits.clear();
    assert!(!is_undone(&shorter, &all));
}

#[test]
fn an_object_that_somebody_has_changed_or_not_a_step_has_created_is_not_deleted() {
    let plan = plan_of(&world());
    let created = [&plan.steps[0], &plan.steps[1]];
    for planned in created {
        let step = recorded(planned);
        let Change::Create { content } = &step.edits[0].change else {
            panic!("{step:?}")
        };
        assert!(is_undone(&step, &objects(&[content])), "{step:?}");

        let mut without_mark = content.clone();
        without_mark["metadata"]["labels"] = json!({});
        let mut with_parameters = content.clone();
        with_parameters["spec"]["infrastructure"] = json!({ "parametersRef": {} });
        for changed in [without_mark, with_parameters] {
            assert!(!is_undone(&step, &objects(&[&changed])), "{changed}");
        }
    }
}

#[test]
fn rules_are_restored_only_if_they_are_as_the_step_left_them() {
    let mut world = world();
    let plan = plan_of(&world);
    let trusting = recorded(&plan.steps[2]);
    for edit in &trusting.edits {
        edit.apply(&mut world.all);
    }
    assert!(is_undone(&trusting, &world.all), "{trusting:?}");

    let edited = r#"{ "rules": [{ "to": [{ "operation": { "methods": ["PUT"] } }] }] }"#;
    world.add_policy("get-only", edited);
    assert!(!is_undone(&trusting, &world.all), "{trusting:?}");
}

#[test]
fn a_step_that_was_begun_is_finished_only_as_the_next_step_of_a_plan() {
    let mut world = world();
    let deny = r#"{ "action": "DENY", "selector": { "matchLabels": { "app": "api" } },
        "rules": [{ "to": [{ "operation": { "methods": ["PUT"] } }] }] }"#;
    world.add_policy("no-put", deny);
    let first = plan_of(&world);
    for edit in &first.steps[0].step.edits {
        edit.apply(&mut world.all);
    }

    // The policies are bound: one of two copies exists.
    let begun = recorded(&first.steps[1]);
    assert_eq!(begun.edits.len(), 2, "{begun:?}");
    assert!(begun.planned(&world.all, &plan_of(&world)).is_some());
    begun.edits[0].apply(&mut world.all);
    let plan = plan_of(&world);
    assert_eq!(begun.unfinished(&world.all).count(), 1);
    assert!(begun.planned(&world.all, &plan).is_some(), "{plan}");

    let mut invented = begun.clone();
    invented.title = "another one".to_owned();
    assert!(invented.planned(&world.all, &plan).is_none());
    let mut allow_all = begun.clone();
    if let Change::Create { content } = &mut allow_all.edits[1].change {
        content["spec"]["rules"] = json!([{}]);
    }
    assert!(allow_all.planned(&world.all, &plan).is_none());
    let later = recorded(&first.steps[2]);
    assert!(later.planned(&world.all, &plan).is_none());
}
