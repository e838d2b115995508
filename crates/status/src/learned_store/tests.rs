use std::sync::Arc;

use super::*;

fn workload(name: &str) -> LearnedWorkload {
    LearnedWorkload {
        namespace: Namespace::new("shop"),
        account: ServiceAccount::new("default"),
        name: Arc::from(name),
    }
}

fn hosts(names: &[&str]) -> LearnedHosts {
    names.iter().map(Hostname::new).collect()
}

fn kept(name: &str, names: &[&str]) -> KeptScope {
    KeptScope {
        workload: workload(name),
        hosts: hosts(names),
        version: Some("7".to_owned()),
    }
}

fn by_workload(all: impl IntoIterator<Item = KeptScope>) -> BTreeMap<LearnedWorkload, KeptScope> {
    all.into_iter()
        .map(|kept| (kept.workload.clone(), kept))
        .collect()
}

fn stored(readable: impl IntoIterator<Item = KeptScope>, unreadable: &[&str]) -> StoredScopes {
    let invalid = |name: &&str| {
        (
            KeptScope::map_name(&workload(name)),
            UnreadableMap::Entry(HOSTS),
        )
    };
    Stored {
        readable: by_workload(readable),
        unreadable: unreadable.iter().map(invalid).collect(),
    }
}

#[test]
fn a_scope_survives_its_config_map() {
    let web = kept("web", &["a.example", "b.example"]);
    let mut map = web.to_config_map().unwrap();
    assert_eq!(KeptScope::from_config_map(&map), Ok(web));

    map.metadata.name = Some("navarch-scope-of-another".to_owned());
    let error = KeptScope::from_config_map(&map);
    assert_eq!(error, Err(UnreadableMap::Entry(WORKLOAD)));
}

#[test]
fn an_edited_config_map_is_read_as_far_as_hosts_are_kept() {
    let mut map = kept("web", &[]).to_config_map().unwrap();
    let lines: String = (0..2 * MAX_HOSTS)
        .map(|at| format!(" h{at} \n\n"))
        .collect();
    map.data.as_mut().unwrap().insert(HOSTS.to_owned(), lines);
    let read = KeptScope::from_config_map(&map).unwrap();
    assert_eq!(read.hosts.len(), MAX_HOSTS + 1);
    assert!(read.hosts.contains("h7"));
}

#[test]
fn the_config_map_of_the_largest_scope_fits_into_the_api_server() {
    let longest = |at: usize| Hostname::new(format!("{at:0>253}"));
    let largest = KeptScope {
        hosts: (0..=MAX_HOSTS).map(longest).collect(),
        ..kept("web", &[])
    };
    let data = largest.to_config_map().unwrap().data.unwrap();
    assert!(data.values().map(String::len).sum::<usize>() < 1 << 20);
}

#[test]
fn deleted_hosts_are_forgotten_but_not_those_that_cannot_be_read() {
    let before = by_workload([
        kept("web", &["a", "b"]),
        kept("gone", &["a"]),
        kept("new-format", &["a"]),
        kept("same", &["a"]),
    ]);
    let now = stored(
        [kept("web", &["b", "c"]), kept("same", &["a"])],
        &["new-format"],
    );
    let expected = [
        (workload("gone"), hosts(&["a"])),
        (workload("web"), hosts(&["a"])),
    ];
    assert_eq!(forgotten(&before, &now), expected);
}

#[test]
fn hosts_of_a_config_map_that_is_mended_or_deleted_are_forgotten() {
    let before = || by_workload([kept("web", &["a", "b"])]);
    let mut invalid = stored([], &["web"]);
    invalid.keep_unreadable(before());
    assert_eq!(invalid.readable, before());
    assert_eq!(forgotten(&before(), &stored([], &["web"])), []);

    let deleted = forgotten(&invalid.readable, &stored([], &[]));
    assert_eq!(deleted, [(workload("web"), hosts(&["a", "b"]))]);
    let mended = stored([kept("web", &["b"])], &[]);
    let gone = forgotten(&invalid.readable, &mended);
    assert_eq!(gone, [(workload("web"), hosts(&["a"]))]);

    // It is not written meanwhile.
    let used = BTreeMap::from([(workload("web"), hosts(&["c"]))]);
    let written = to_store(&used, &invalid.readable, &invalid.unreadable, |_| true);
    assert_eq!(written, []);
}

#[test]
fn what_is_used_is_added_to_what_is_stored() {
    let used = BTreeMap::from([
        (workload("web"), hosts(&["b", "gone"])),
        (workload("new"), hosts(&["a"])),
        (workload("same"), hosts(&["a"])),
        (workload("new-format"), hosts(&["a"])),
        (workload("of-gone"), hosts(&["gone"])),
    ]);
    let now = stored(
        [kept("web", &["a", "gone-too"]), kept("same", &["a", "b"])],
        &["new-format"],
    );
    let exists = |host: &Hostname| !host.as_str().starts_with("gone");
    let written = to_store(&used, &now.readable, &now.unreadable, exists);
    let new = KeptScope {
        version: None,
        ..kept("new", &["a"])
    };
    assert_eq!(written, [new, kept("web", &["a", "b", "gone-too"])]);
}

#[test]
fn hosts_without_services_leave_a_long_list() {
    let all: LearnedHosts = (0..MAX_WITH_GONE)
        .map(|at| Hostname::new(format!("h{at}")))
        .collect();
    let long = KeptScope {
        hosts: all,
        ..kept("web", &[])
    };
    let used = BTreeMap::from([(workload("web"), hosts(&["a"]))]);
    let exists = |host: &Hostname| host.as_str() != "h7";
    let written = to_store(&used, &by_workload([long]), &UnreadableMaps::new(), exists);
    assert_eq!(written[0].hosts.len(), MAX_WITH_GONE);
    assert!(written[0].hosts.contains("a") && !written[0].hosts.contains("h7"));
}

#[test]
fn a_list_that_tells_of_too_many_hosts_is_not_written_again() {
    let many = |prefix: &str| -> LearnedHosts {
        let names = (0..MAX_HOSTS).map(|at| Hostname::new(format!("{prefix}{at}")));
        names.collect()
    };
    let stored = KeptScope {
        hosts: many("a"),
        ..kept("web", &[])
    };
    let used = BTreeMap::from([(workload("web"), many("b"))]);
    let none = UnreadableMaps::new();
    let written = to_store(&used, &by_workload([stored]), &none, |_| true);
    assert_eq!(written[0].hosts.len(), MAX_HOSTS + 1);
    let now = by_workload(written);
    assert_eq!(to_store(&used, &now, &none, |_| true), []);
}

#[test]
fn full_namespaces_leave_room_to_others_and_keep_what_they_have() {
    let many = |prefix: &str| -> LearnedHosts {
        let names = (0..MAX_HOSTS).map(|at| Hostname::new(format!("{prefix}{at}")));
        names.collect()
    };
    let of = |namespace: &str, name: &str, hosts: LearnedHosts| KeptScope {
        workload: LearnedWorkload {
            namespace: Namespace::new(namespace),
            ..workload(name)
        },
        hosts,
        version: None,
    };
    let all_of = |namespace: &str| -> Vec<KeptScope> {
        let scopes = (0..25).map(|at| of(namespace, &at.to_string(), many("h")));
        scopes.collect()
    };
    let hosts_of = |stored: &BTreeMap<LearnedWorkload, KeptScope>, namespace: &str| -> usize {
        let own = stored.values();
        let own = own.filter(|kept| kept.workload.namespace.as_str() == namespace);
        own.map(|kept| kept.hosts.len()).sum()
    };

    // Five namespaces use as much as is kept in memory for each: together more than is stored.
    let mut stored = BTreeMap::new();
    for namespace in ["a", "b", "c", "d", "e"] {
        let used = all_of(namespace);
        let used = used.iter().map(|scope| (&scope.workload, &scope.hosts));
        let written = to_store(used, &stored, &UnreadableMaps::new(), |_| true);
        stored.extend(by_workload(written));
    }
    assert_eq!(hosts_of(&stored, "a"), 50_000);
    assert_eq!(hosts_of(&stored, "e"), 25_000);

    let late = of("late", "web", many("h"));
    let full = of("a", "0", many("other"));
    let used = [&full, &late].map(|scope| (&scope.workload, &scope.hosts));
    let written = to_store(used, &stored, &UnreadableMaps::new(), |_| true);
    assert_eq!(written, [late]);
    assert_eq!(hosts_of(&stored, "a"), 50_000, "it keeps what it has");
}

#[test]
fn a_config_map_that_has_lost_its_label_is_joined_if_it_is_the_workloads() {
    let new = KeptScope {
        version: None,
        ..kept("web", &["b.example"])
    };
    let mut map = kept("web", &["a.example"]).to_config_map().unwrap();
    assert_eq!(
        new.joined_with_unlabelled(&map),
        Ok(None),
        "it has its label"
    );

    map.metadata.labels = None;
    let joined = new.joined_with_unlabelled(&map).unwrap();
    assert_eq!(joined, Some(kept("web", &["a.example", "b.example"])));

    let data = map.data.as_mut().unwrap();
    data.insert(WORKLOAD.to_owned(), "{}".to_owned());
    let error = new.joined_with_unlabelled(&map);
    assert_eq!(error, Err(UnreadableMap::Entry(WORKLOAD)));
    map.data = None;
    assert!(new.joined_with_unlabelled(&map).is_err(), "it is another's");
}

#[test]
fn a_joined_scope_has_no_more_hosts_than_are_kept() {
    let many = |prefix: &str| KeptScope {
        hosts: (0..=MAX_HOSTS)
            .map(|at| Hostname::new(format!("{prefix}{at}")))
            .collect(),
        ..kept("web", &[])
    };
    let mut map = many("a").to_config_map().unwrap();
    map.metadata.labels = None;
    let joined = many("b").joined_with_unlabelled(&map).unwrap();
    assert_eq!(joined, Some(many("a")));
}

#[test]
fn no_more_scopes_are_created_than_are_read() {
    let all = (0..MAX_STORED).map(|at| kept(&at.to_string(), &["a"]));
    let now = by_workload(all);
    let used = BTreeMap::from([
        (workload("more"), hosts(&["a"])),
        (workload("7"), hosts(&["b"])),
    ]);
    let written = to_store(&used, &now, &UnreadableMaps::new(), |_| true);
    assert_eq!(written, [kept("7", &["a", "b"])]);
}

#[test]
fn a_kept_scope_of_an_unreadable_config_map_takes_the_room_of_one() {
    // One namespace may have half of all, and has them but for one.
    let all = (1..MAX_STORED / 2).map(|at| kept(&at.to_string(), &["a"]));
    let now = by_workload(all);
    let used = BTreeMap::from([(workload("more"), hosts(&["a"]))]);
    let unreadable = stored([], &["1", "2"]).unreadable;
    let written = to_store(&used, &now, &unreadable, |_| true);
    assert_eq!(written.len(), 1);
}

#[test]
fn scopes_of_workloads_that_are_gone_make_room_in_a_crowded_namespace() {
    let of_bank = |kept: KeptScope| KeptScope {
        workload: LearnedWorkload {
            namespace: Namespace::new("bank"),
            ..kept.workload
        },
        ..kept
    };
    let runs = |count: usize| (0..count).map(|at| kept(&format!("run-{at}"), &["a"]));
    let none = UnreadableMaps::new();
    let few = by_workload(runs(CROWDED_NAMESPACE));
    assert_eq!(to_delete(&few, &none, || unreachable!(), |_| true), []);

    let elsewhere = runs(3).map(of_bank);
    let many = by_workload(runs(CROWDED_NAMESPACE + 1).chain(elsewhere));
    let last = workload(&format!("run-{CROWDED_NAMESPACE}"));
    let deleted = to_delete(&many, &none, || BTreeSet::from([last.clone()]), |_| true);
    assert_eq!(deleted.len(), CROWDED_NAMESPACE);
    let is_gone =
        |kept: &KeptScope| kept.workload != last && kept.workload.namespace.as_str() == "shop";
    assert!(deleted.iter().all(is_gone));

    // Its pods may be those of another revision, as long as it exists.
    assert_eq!(to_delete(&many, &none, BTreeSet::new, |_| true), []);
    let of_gone_namespace = to_delete(&many, &none, BTreeSet::new, |_| false);
    assert_eq!(of_gone_namespace.len(), CROWDED_NAMESPACE + 1);

    // Deleting what has changed since would fail each time, and take the turns of others.
    let unreadable = stored([], &["run-0", "run-1"]).unreadable;
    let readable = to_delete(&many, &unreadable, BTreeSet::new, |_| false);
    assert_eq!(readable.len(), CROWDED_NAMESPACE - 1);
}
