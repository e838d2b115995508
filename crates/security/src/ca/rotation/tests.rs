//! The sequence of root sets, and their storage in files.

use super::*;
use navarch_pki::KeyType;

const HOUR: Duration = Duration::from_secs(3600);
const RULES: RotationRules = RotationRules {
    overlap: HOUR,
    longest: Duration::from_secs(24 * 3600),
    renewed_at: Some(20),
};

fn now() -> SystemTime {
    // Whole seconds, as certificates have them.
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn root(hours: u32) -> Bundle {
    Bundle::self_signed("cluster.local", KeyType::P256, HOUR * hours, now()).unwrap()
}

fn absent() -> Vec<Missing> {
    vec![Missing {
        who: "web-1.shop".to_owned(),
        why: "has not taken it".to_owned(),
    }]
}

fn count(set: &RootSet) -> usize {
    bundle::certificates(&set.roots().unwrap(), "")
        .unwrap()
        .len()
}

#[test]
fn the_next_root_signs_once_trusted_by_all_and_the_old_one_is_removed_last() {
    let old = root(1000);
    let new = root(1000);
    let settled = RootSet::single(old.clone(), Origin::SelfSigned);
    assert_eq!(settled.roots().unwrap(), old.certificate);
    assert_eq!(
        settled.switch(&RULES, now()).unwrap(),
        Err(CommandRejection::NothingToDo)
    );

    let both = settled
        .begin(new.clone(), Origin::SelfSigned, &RULES, now())
        .unwrap()
        .unwrap();
    assert_eq!(
        (both.phase(), count(&both), &both.signer),
        (Phase::Distributing, 2, &old)
    );

    assert_eq!(
        both.begin(root(1000), Origin::SelfSigned, &RULES, now())
            .unwrap(),
        Err(CommandRejection::UnderWay)
    );

    // Neither while proxies lack the root nor before its time.
    assert_eq!(both.advance(&absent(), &RULES, now() + HOUR).unwrap(), None);
    assert_eq!(both.advance(&[], &RULES, now() + HOUR / 2).unwrap(), None);
    let later = now() + HOUR;
    let switched = both.advance(&[], &RULES, later).unwrap().unwrap();
    assert_eq!(
        (switched.phase(), count(&switched), &switched.signer),
        (Phase::Retiring, 2, &new)
    );

    // The last certificate signed by the old root was issued just before, for a day.
    assert_eq!(
        switched
            .advance(&[], &RULES, later + RULES.longest)
            .unwrap(),
        None
    );

    let done = switched
        .advance(&[], &RULES, later + RULES.longest + BACKDATE)
        .unwrap()
        .unwrap();
    assert_eq!(done, RootSet::single(new, Origin::SelfSigned));
}

#[test]
fn an_expiring_root_is_renewed_and_finally_without_waiting() {
    let set = RootSet::single(root(1000), Origin::SelfSigned);
    assert!(!set.is_due(&RULES, now() + HOUR * 799).unwrap());
    assert!(set.is_due(&RULES, now() + HOUR * 801).unwrap());
    assert!(
        !set.is_due(
            &RotationRules {
                renewed_at: None,
                ..RULES
            },
            now() + HOUR * 801
        )
        .unwrap()
    );

    let both = set
        .begin(root(2000), Origin::SelfSigned, &RULES, now())
        .unwrap()
        .unwrap();
    assert!(
        !both.is_due(&RULES, now() + HOUR * 801).unwrap(),
        "a rotation is in progress"
    );

    assert_eq!(
        both.advance(&absent(), &RULES, now() + HOUR * 980).unwrap(),
        None
    );
    let switched = both
        .advance(&absent(), &RULES, now() + HOUR * 995)
        .unwrap()
        .unwrap();
    assert_eq!(switched.phase(), Phase::Retiring);

    // The old root expires before the certificates that it could have signed.
    assert_eq!(switched.former[0].until, now() + HOUR * 1000);
}

#[test]
fn another_intermediate_of_the_same_root_signs_at_once() {
    let root = root(1000);
    let plugged = |serial: &str| {
        let bundle = root.clone();
        // The same certificate with another revocation list is the smallest possible difference.
        Bundle {
            revocations: serial.to_owned(),
            ..bundle
        }
    };

    let set = RootSet::single(plugged("1"), Origin::PluggedIn);
    let next = set
        .begin(plugged("2"), Origin::PluggedIn, &RULES, now())
        .unwrap()
        .unwrap();
    assert_eq!(
        (next.phase(), next.signer.revocations.as_str()),
        (Phase::Settled, "2")
    );

    assert!(
        set.begin(
            Bundle {
                key: self::root(1).key,
                ..root
            },
            Origin::PluggedIn,
            &RULES,
            now()
        )
        .is_err()
    );
}

/// A rotation by hand, as Istio's documents describe it: both roots, then the other signer, then
/// its root alone.
#[test]
fn a_plugged_in_ca_is_replaced_in_the_operators_own_steps() {
    let old = root(1000);
    let new = root(1000);
    let with_roots = |bundle: &Bundle, roots: &[&Bundle]| Bundle {
        roots: roots.iter().map(|one| one.certificate.as_str()).collect(),
        ..bundle.clone()
    };
    let follow = |set: &RootSet, files: &Bundle, at| {
        set.with_files(files, None, &RULES, at).unwrap().unwrap()
    };

    let begun = RootSet::single(old.clone(), Origin::PluggedIn);
    let both = follow(&begun, &with_roots(&old, &[&old, &new]), now());
    assert_eq!((both.phase(), count(&both)), (Phase::Distributing, 2));

    // The other signer is one of the roots that are being distributed: their time goes on.
    let half = now() + HOUR / 2;
    let other = follow(&both, &with_roots(&new, &[&old, &new]), half);
    assert_eq!((other.phase(), &other.signer), (Phase::Distributing, &old));
    assert_eq!(
        other.advance(&absent(), &RULES, now() + HOUR).unwrap(),
        None
    );
    let switched = other.advance(&[], &RULES, now() + HOUR).unwrap().unwrap();
    assert_eq!(switched.signer.certificate, new.certificate);
    let order = switched.roots().unwrap();
    assert!(
        order.starts_with(&new.certificate),
        "the signing root is the first"
    );
    assert_eq!(count(&switched), 2);

    // A root that is new to all begins its own time.
    let third = root(1000);
    let restarted = follow(&other, &with_roots(&third, &[&old, &third]), half);
    assert_eq!(restarted.next.unwrap().since, half);

    // What the operator removes is trusted no more.
    let done = follow(&switched, &with_roots(&new, &[&new]), now() + HOUR);
    assert_eq!(done, RootSet::single(new, Origin::PluggedIn));
}

#[test]
fn files_hold_every_set() {
    let settled = RootSet::single(root(10), Origin::SelfSigned);
    let both = settled
        .begin(root(10), Origin::PluggedIn, &RULES, now())
        .unwrap()
        .unwrap();
    let switched = both.switch(&RULES, now()).unwrap().unwrap();

    for set in [settled, both, switched] {
        let files = set.to_files().unwrap();
        assert_eq!(RootSet::from_files(&files).unwrap().as_ref(), Some(&set));
        for name in ["ca-cert.pem", "ca-key.pem"] {
            let mut less = files.clone();
            less.remove(name);
            assert!(matches!(
                RootSet::from_files(&less),
                Err(StoredFilesError::Incomplete(missing)) if missing == name
            ));
        }
    }

    assert_eq!(RootSet::from_files(&StoredFiles::new()).unwrap(), None);
}

#[test]
fn a_rotation_of_a_later_release_is_rejected() {
    let both = RootSet::single(root(10), Origin::SelfSigned)
        .begin(root(10), Origin::PluggedIn, &RULES, now())
        .unwrap()
        .unwrap();
    let mut files = both.to_files().unwrap();
    let text = String::from_utf8(files["rotation.json"].expose().to_vec()).unwrap();
    let text = text.replace(r#""format":1"#, r#""format":2"#);
    files.insert(
        "rotation.json".to_owned(),
        navarch_api::kubernetes::SecretBytes::new(text),
    );

    let error = RootSet::from_files(&files).unwrap_err();
    assert!(
        matches!(&error, StoredFilesError::Format("rotation.json", why) if why.is_newer()),
        "{error:?}"
    );
}

#[test]
fn secrets_written_by_istiod_are_read_with_extra_roots() {
    let own = root(10);
    let further = root(10);
    let mut files = RootSet::single(own.clone(), Origin::SelfSigned)
        .to_files()
        .unwrap();
    files.insert(
        "root-cert.pem".to_owned(),
        navarch_api::kubernetes::SecretBytes::new(further.certificate),
    );
    let set = RootSet::from_files(&files).unwrap().unwrap();
    assert_eq!((count(&set), set.signer.certificate), (2, own.certificate));
}

#[test]
fn missing_proxies_are_named() {
    let many = vec![absent().remove(0); 12];
    let text = CommandRejection::Missing(many).to_string();
    assert!(
        text.contains("web-1.shop (has not taken it), ") && text.ends_with(" and 2 more"),
        "{text}"
    );
}
