//! Deletions of objects that have stages, to which stages do not apply.

use navarch_api::object::ObjectRef;
use navarch_api::rollout::requests_stages;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::Change;

/// The deleted objects that have stages. An object that is added again in the same batch, as when a
/// source reads everything again, is not deleted.
#[must_use]
pub fn deleted_at_once(context: &PushContext, changes: &[Change]) -> Vec<ObjectRef> {
    let is_put = |name: &ObjectRef| {
        changes.iter().any(|change| {
            if let Change::Put(object) = change {
                object.object_ref() == *name
            } else {
                false
            }
        })
    };

    let has_stages = |name: &&ObjectRef| {
        let object = context
            .objects
            .any(name)
            .or_else(|| context.new_versions.any(name));
        object.is_some_and(|object| requests_stages(name.kind, object.meta()))
    };

    let removed = changes.iter().filter_map(|change| {
        if let Change::Removed(name) = change {
            Some(name)
        } else {
            None
        }
    });

    removed
        .filter(has_stages)
        .filter(|name| !is_put(name))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::any_object::AnyObject;
    use navarch_api::settings::Settings;
    use navarch_api::testing::object;
    use navarch_push::mesh_state::MeshState;

    fn rule(name: &str, stages: &str) -> AnyObject {
        let yaml = format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
             metadata: {{name: {name}, namespace: shop, annotations: {{navarch.io/rollout: '{stages}'}}}}\n\
             spec: {{hosts: [a], http: [{{route: [{{destination: {{host: a}}}}]}}]}}\n"
        );
        object(&yaml)
    }

    #[test]
    fn permanent_deletions_of_staged_objects_are_reported() {
        let staged = rule("a", "5%");
        let read_anew = rule("b", "5%");
        let at_once = rule("c", "off");
        let mut state = MeshState::new(Settings::default());
        state.apply([&staged, &read_anew, &at_once].map(|object| Change::Put(object.clone())));
        let gone =
            [&staged, &read_anew, &at_once].map(|object| Change::Removed(object.object_ref()));
        let changes: Vec<_> = gone.into_iter().chain([Change::Put(read_anew)]).collect();
        assert_eq!(
            deleted_at_once(&state.context(), &changes),
            [staged.object_ref()]
        );
    }
}
