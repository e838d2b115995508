//! Limits of label sets, and their values.

use super::*;

#[test]
fn label_sets_are_bounded_and_idle_ones_evicted() {
    let metrics = MeshMetrics::with_limit(workload("client", "buyers"), "", 8);
    let log = metrics.log(&log(Reporter::Source, Vec::new())).unwrap();
    let begin = Instant::now();
    let ask = |host: &str, now| {
        let mut entry = request(&[]);
        entry.request.as_mut().unwrap().authority = host.to_owned().into();
        metrics.count_requests(&log, &[entry], now);
    };

    ["a", "b", "c", "c"]
        .into_iter()
        .for_each(|host| ask(host, begin));
    let text = metrics.exposition();
    assert!(
        text.contains("navarch_mesh_metrics_label_sets 8\n") && text.contains("dropped_total 8\n"),
        "{text}"
    );

    assert!(!text.contains("destination_service=\"c\""));
    let later = begin + Duration::from_mins(16);
    ask("b", later - Duration::from_mins(8));
    ask("c", later);
    let text = metrics.exposition();
    assert!(!text.contains("destination_service=\"a\""), "{text}");
    assert!(
        text.contains("destination_service=\"b\"") && text.contains("destination_service=\"c\""),
        "{text}"
    );

    ask("b", later);
    let text = metrics.exposition();
    let of_b = text
        .lines()
        .find(|line| line.starts_with("istio_requests_total") && line.contains("=\"b\""))
        .unwrap();
    assert!(of_b.ends_with("} 3"), "{of_b}");
}

#[test]
fn non_utf8_values_create_no_label_set() {
    let mut entry = request(&OUTBOUND);
    entry.request.as_mut().unwrap().authority = vec![0xff].into();
    let common = entry.common_properties.as_mut().unwrap();
    common.custom_tags.insert("value.0".to_owned(), vec![0xff]);
    common.stream_id = vec![0xc3].into();
    let change = MetricChange {
        set: BTreeMap::from([("path".to_owned(), LabelValue::Tag("value.0".to_owned()))]),
        ..MetricChange::default()
    };

    let entry = HttpEntry::decode(entry.encode_to_vec().as_slice()).unwrap();
    let text = counted(
        workload("client", "buyers"),
        &log(Reporter::Source, vec![change]),
        &[entry],
    );

    assert!(
        text.lines()
            .any(|line| line.starts_with("istio_requests_total")
                && line.ends_with(",path=\"unknown\"} 1")),
        "{text}"
    );
}
