//! OpenShift assigns user and group IDs to each namespace, in annotations.

use std::collections::BTreeMap;

use serde_json::Value;

use super::context::{Ids, PROXY_ID};
use super::names::{INIT, PROXY, VALIDATION};
use super::pod::{self, List};

/// The user IDs of a namespace, as `1000/100` (first and count) or `1000-1099`.
const USERS: &str = "openshift.io/sa.scc.uid-range";

/// The group IDs of a namespace, as comma-separated ranges.
const GROUPS: &str = "openshift.io/sa.scc.supplemental-groups";

/// The user and group of a proxy: the last user of the namespace's range and the last group of its
/// first range, which applications rarely use.
pub(super) fn ids(annotations: Option<&BTreeMap<String, String>>) -> Ids {
    let get = |name: &str| {
        annotations
            .and_then(|annotations| annotations.get(name))
            .map(String::as_str)
    };
    let users = get(USERS);
    let groups = get(GROUPS).or(users);
    let first = groups.and_then(|groups| {
        groups
            .split(',')
            .map(last_of_range)
            .collect::<Option<Vec<_>>>()
    });

    Ids {
        user: users.and_then(last_of_range).unwrap_or(PROXY_ID),
        group: first
            .and_then(|lasts| lasts.first().copied())
            .unwrap_or(PROXY_ID),
    }
}

/// The last ID of a range.
fn last_of_range(range: &str) -> Option<i64> {
    let range = range.trim();
    match range.split_once('/') {
        Some((start, size)) => {
            let start: u32 = start.parse().ok()?;
            let size: u32 = size.parse().ok()?;
            Some(i64::from(start) + i64::from(size) - 1)
        }
        None => range.split_once('-')?.1.parse::<u32>().ok().map(i64::from),
    }
}

/// Removes user and group from the pod's own proxy container if the platform assigned the
/// application's IDs, because capture distinguishes proxy and application by user.
pub(super) fn part_users(pod: &mut Value) {
    let user = |container: &Value| container.get("securityContext")?.get("runAsUser")?.as_i64();
    let mut proxy = 0;
    let mut app = 0;
    for container in [List::Containers, List::Init]
        .into_iter()
        .flat_map(|list| pod::containers(pod, list))
    {
        match (pod::name(container), user(container)) {
            (PROXY, Some(user)) => proxy = user,
            (INIT | VALIDATION | PROXY, _) | (_, None) => {}
            (_, Some(user)) => app = user,
        }
    }

    if proxy == app
        && let Some(proxy) = pod::find_in_pod_mut(pod, PROXY)
        && let Some(context) = proxy
            .get_mut("securityContext")
            .and_then(Value::as_object_mut)
    {
        context.remove("runAsUser");
        context.remove("runAsGroup");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ids_of_the_namespace_range_are_used() {
        let annotations = |users: &str, groups: &str| {
            let pairs = [(USERS, users), (GROUPS, groups)]
                .into_iter()
                .filter(|(_, range)| !range.is_empty());
            pairs
                .map(|(name, range)| (name.to_owned(), range.to_owned()))
                .collect::<BTreeMap<_, _>>()
        };

        let taken = |users, groups| ids(Some(&annotations(users, groups)));
        assert_eq!(
            taken("1000/100", ""),
            Ids {
                user: 1099,
                group: 1099
            }
        );

        assert_eq!(
            taken("1000-1010", "5/2,9/1"),
            Ids {
                user: 1010,
                group: 6
            }
        );

        assert_eq!(
            taken("x", ""),
            Ids {
                user: PROXY_ID,
                group: PROXY_ID
            }
        );

        assert_eq!(
            ids(None),
            Ids {
                user: PROXY_ID,
                group: PROXY_ID
            }
        );
    }
}
