//! The objects with a status: an incrementally updated list, since there may be tens of thousands
//! of routes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::StatusSubject;
use crate::gateway_api::route_kinds::RouteKind;
use crate::gateway_api::settings::ApiSettings;
use navarch_api::gateway_api::{
    BackendTlsPolicy, GatewayClass, InferencePool, KubernetesGateway, ListenerSet, XBackend,
    XBackendTrafficPolicy,
};
use navarch_api::names::ResourceName;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_push::Stored;
use navarch_push::name_list::NameList;
use navarch_push::name_parts::PARTS;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The names of the statuses of all objects that have one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Subjects;

/// The value of [`Subjects`].
#[derive(Clone, Debug, Default)]
pub(super) struct SubjectList {
    sets: Vec<Arc<Names>>,
    pub(super) names: NameList,
}

type Names = BTreeSet<ResourceName>;

/// The names for the routes of one part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RoutesIn(u8);

/// The names for all other objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Others;

fn name_of(kind: Kind, name: &NamespacedName) -> ResourceName {
    ResourceName::new(
        StatusSubject(ObjectRef {
            kind,
            name: name.clone(),
        })
        .to_string(),
    )
}

impl Query for RoutesIn {
    type Value = Arc<Names>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let routes = RouteKind::ALL
            .into_iter()
            .flat_map(|kind| kind.names_in(view, self.0));
        Arc::new(
            routes
                .map(|route| name_of(route.kind.kind(), &route.name))
                .collect(),
        )
    }
}

impl Query for Others {
    type Value = Arc<Names>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        fn of<T: Stored>(view: &View<'_>, all: &mut Names) {
            all.extend(view.names::<T>().map(|name| name_of(T::KIND, name)));
        }

        let mut all = Names::new();
        of::<GatewayClass>(view, &mut all);
        of::<KubernetesGateway>(view, &mut all);
        of::<ListenerSet>(view, &mut all);
        of::<BackendTlsPolicy>(view, &mut all);
        of::<XBackendTrafficPolicy>(view, &mut all);
        of::<XBackend>(view, &mut all);
        of::<InferencePool>(view, &mut all);

        Arc::new(all)
    }
}

impl Query for Subjects {
    type Value = SubjectList;

    fn compute(&self, view: &View<'_>) -> SubjectList {
        self.renew(&SubjectList::default(), view)
    }

    fn renew(&self, previous: &SubjectList, view: &View<'_>) -> SubjectList {
        if !view.get(&ApiSettings).api.enabled {
            return SubjectList::default();
        }

        let routes = (0..PARTS).map(|part| (*view.get(&RoutesIn(part))).clone());
        let sets: Vec<Arc<Names>> = routes.chain([(*view.get(&Others)).clone()]).collect();
        let nothing = Arc::default();
        let mut added = Names::new();
        let mut removed = Names::new();

        for (place, now) in sets.iter().enumerate() {
            let before = previous.sets.get(place).unwrap_or(&nothing);
            if !Arc::ptr_eq(before, now) {
                added.extend(now.difference(before).cloned());
                removed.extend(before.difference(now).cloned());
            }
        }

        let mut names = previous.names.clone();
        names.update(&added, &removed);
        SubjectList { sets, names }
    }
}

impl PartialEq for SubjectList {
    fn eq(&self, other: &Self) -> bool {
        // The input is not compared: it determines the result.
        self.names == other.names
    }
}
