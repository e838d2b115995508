//! Streams whose clients compute the versions of resources.

use std::collections::BTreeMap;

use navarch_base::resource_version::Version;

use super::bench::*;

fn versions(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter()
        .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()))
        .collect()
}

#[test]
fn only_those_who_ask_get_resources_without_versions() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1"))]).await;
        let computed = Version::of(b"1").to_string();

        for _ in 0..2 {
            let mut client = mesh.delta().await;
            client.subscribe(LDS, &[]).await;
            let response = client.take().await.is(LDS, &["a=1"], &[]);
            assert_eq!(response.versions, versions(&[("a", &computed)]));

            let mut client = mesh.delta_without_versions().await;
            client.subscribe(LDS, &[]).await;
            let response = client.take().await.is(LDS, &["a=1"], &[]);
            assert_eq!(response.versions, versions(&[("a", "")]));
        }
    });
}

#[test]
fn a_client_that_computed_versions_is_sent_what_has_changed() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1")), (LDS, "b", body("2"))]).await;
        let a = Version::of(b"1").to_string();
        let mut client = mesh.delta_without_versions().await;

        let held = versions(&[("a", &a), ("b", "of-another-body")]);
        client.come_back(LDS, &[], &held).await;

        client.take().await.is(LDS, &["b=2"], &[]);
    });
}
