//! The output of `navarch plan` without a control plane.

use std::fmt::Write as _;
use std::time::Instant;

use crate::{command_output, edited, json, sample};

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn plan_describes_a_changed_split_and_applies_nothing() {
    let change = file(&edited(
        "reviews-routing.yaml",
        &[
            ("weight: 90", "weight: 50"),
            ("weight: 10\n", "weight: 50\n"),
        ],
    ));

    let change = change.path().to_str().unwrap();
    let sample = sample();
    let arguments = ["plan", "-f", change, "--against", sample.to_str().unwrap()];
    let (text, code) = command_output(&arguments);
    assert_eq!(code, 0, "{text}");

    for line in [
        "VirtualService bookshop/reviews",
        "5 of 5 receive changes",
        "~ rds 9080 (5 proxies)",
        "-          weight: 90",
        "+          weight: 50",
        ": v1 90 %, v2 10 % → v1 50 %, v2 50 %",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }

    let (plan, _) = json(&arguments);
    assert_eq!((&plan["reached"], &plan["proxies"]), (&5.into(), &5.into()));
    assert_eq!(plan["objects"][0]["action"], "changed");
    assert_eq!(plan["objects"][1]["action"], "unchanged");
    assert_eq!(
        plan["types"],
        serde_json::json!({"rds": {"added": 0, "changed": 1, "removed": 0, "proxies": 5}})
    );

    assert!(plan["bytes"].as_u64().unwrap() > 1000, "{plan}");

    // `--fail-on` fails if the change has such an effect; a plan of an unchanged object has none.
    assert_eq!(
        command_output(&[&arguments[..], &["--fail-on", "traffic"]].concat()).1,
        3
    );
    let same = file(&edited("reviews-routing.yaml", &[]));
    let arguments = [
        "plan",
        "-f",
        same.path().to_str().unwrap(),
        "--against",
        sample.to_str().unwrap(),
    ];

    let (plan, code) = json(&[&arguments[..], &["--fail-on", "change"]].concat());
    assert_eq!(
        (code, &plan["reached"], &plan["traffic"]),
        (0, &0.into(), &serde_json::json!([]))
    );
}

#[test]
fn plan_rejects_invalid_objects_and_evaluates_the_rest() {
    let change = file(&format!(
        "{}---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: bad, namespace: bookshop}}\n\
         spec: {{host: catalog, subsets: [{{labels: {{a: b}}}}]}}\n",
        edited("reviews-routing.yaml", &[("subset: v2", "subset: v3")])
    ));
    let sample = sample();
    let arguments = [
        "plan",
        "-f",
        change.path().to_str().unwrap(),
        "--against",
        sample.to_str().unwrap(),
    ];

    let (plan, code) = json(&arguments);
    assert_eq!(code, 3, "an object is not valid");
    let objects = plan["objects"].as_array().unwrap();
    let bad = objects
        .iter()
        .find(|object| object["object"] == "DestinationRule bookshop/bad")
        .unwrap();
    assert!(
        bad["errors"][0].as_str().unwrap().contains("subsets"),
        "{bad}"
    );

    // The undefined subset is reported as a warning, and as lost traffic.
    assert!(objects[0]["warnings"].to_string().contains("v3"), "{plan}");
    let after = plan["traffic"][0]["after"].as_str().unwrap();
    assert!(
        after.contains("v3 10 % (503: the cluster does not exist)"),
        "{after}"
    );
    assert_eq!(
        command_output(&[&arguments[..], &["--fail-on", "never"]].concat()).1,
        0
    );
}

#[test]
fn plan_reports_new_services_and_removed_objects() {
    let sample = sample();
    let against = ["--against", sample.to_str().unwrap()];
    let (plan, _) = json(&[&["plan", "--remove", "vs/bookshop/reviews"][..], &against].concat());
    assert_eq!(plan["objects"][0]["action"], "removed");
    assert_eq!(plan["traffic"][0]["after"], "reviews 100 %");
    let new = file(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: tax, namespace: bookshop}\n\
         spec: {hosts: [tax.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, \
         endpoints: [{address: 192.0.2.7}]}\n",
    );
    let (plan, _) = json(&[&["plan", "-f", new.path().to_str().unwrap()][..], &against].concat());
    assert_eq!(plan["types"]["cds"]["added"], 1, "{plan}");

    assert_eq!(
        plan["types"]["eds"]["added"], 1,
        "the cluster's endpoints are part of the plan: {plan}"
    );
    let traffic = plan["traffic"].as_array().unwrap();
    let change = traffic
        .iter()
        .find(|change| change["request"] == "GET tax.example.com:80/")
        .unwrap();
    assert_eq!(change["after"], "tax.example.com 100 %", "{plan}");

    let (text, code) =
        command_output(&[&["plan", "--remove", "widget/a/b"][..], &against].concat());
    assert!(code == 3 && text.contains("widget"), "{text}");
    assert_eq!(
        command_output(&["plan", "-f", "/nowhere.yaml", against[0], against[1]]).1,
        1
    );
    assert_eq!(command_output(&["plan"]).1, 2);
}

#[test]
fn plan_predicts_rejections_and_omitted_configuration() {
    let filter = file(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: broken, namespace: bookshop}\n\
         spec: {configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: -5s}}}]}\n",
    );
    let sample = sample();
    let arguments = [
        "plan",
        "-f",
        filter.path().to_str().unwrap(),
        "--against",
        sample.to_str().unwrap(),
    ];

    let (plan, _) = json(&arguments);
    let left_out = plan["leftOut"].to_string();
    assert!(left_out.contains("EnvoyFilter bookshop/broken"), "{plan}");
    assert_eq!(
        command_output(&[&arguments[..], &["--fail-on", "left-out"]].concat()).1,
        3
    );
}

/// 5,000 services, 100 of them with two pods each, and a VirtualService for one of them.
#[test]
fn a_plan_on_five_thousand_services_is_made_in_reasonable_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::from("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n");

    for n in 0..5000 {
        let a = n / 250;
        let b = n % 250;
        writeln!(
            text,
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: s{n}, namespace: shop}}\n\
             spec: {{clusterIP: 10.{}.{b}.1, selector: {{app: s{n}}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}\n\
             ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: s{n}-x, namespace: shop, labels: {{kubernetes.io/service-name: s{n}}}}}\naddressType: IPv4\n\
             ports: [{{name: http, port: 8080}}]\nendpoints: [{{addresses: [10.{}.{b}.2], conditions: {{ready: true}}}}]",
            100 + a,
            130 + a,
        )

        .unwrap();

        if n < 200 {
            writeln!(
                text,
                "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}, namespace: shop, labels: {{app: s{}}}}}\n\
                 spec: {{}}\nstatus: {{phase: Running, podIP: 10.{}.{b}.3}}",
                n / 2,
                160 + a,
            )
            .unwrap();
        }
    }

    std::fs::write(folder.path().join("all.yaml"), text).unwrap();
    let change = file(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: s7, namespace: shop}\n\
         spec: {hosts: [s7], http: [{route: [{destination: {host: s8}}]}]}\n",
    );
    let begin = Instant::now();
    let (plan, code) = json(&[
        "plan",
        "-f",
        change.path().to_str().unwrap(),
        "--against",
        folder.path().to_str().unwrap(),
    ]);

    println!(
        "a plan on 5,000 services and 200 proxies: {:?}",
        begin.elapsed()
    );
    assert_eq!(
        (code, &plan["proxies"], &plan["reached"]),
        (0, &200.into(), &200.into())
    );

    assert_eq!(
        plan["traffic"][0]["after"], "s8 100 %",
        "{}",
        plan["traffic"]
    );
    assert!(plan["bytes"].as_u64().unwrap() > 200 * 1000);
}
