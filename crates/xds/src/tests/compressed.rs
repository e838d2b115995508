//! Streams whose messages are compressed.

use tonic::codec::CompressionEncoding::{Gzip, Zstd};

use super::bench::*;

/// A text of this many bytes.
fn long(bytes: usize) -> String {
    "endpoint ".repeat(bytes / 9)
}

/// The value of a metric's line for an encoding.
fn sent(mesh: &Mesh, encoding: &str) -> usize {
    let start = format!("navarch_xds_sent_bytes{{encoding=\"{encoding}\"}} ");
    let lines = mesh.metric(&start);
    lines[0].trim_start_matches(&start).parse().unwrap()
}

#[test]
fn clients_of_all_encodings_get_the_same_resources() {
    run(async {
        let long = long(200_000);
        let mesh = Mesh::new(&[(LDS, "a", body(&long)), (LDS, "b", body("1"))]).await;
        let a = format!("a={long}");
        let b = "b=1";

        let mut plain = mesh.delta().await;
        plain.subscribe(LDS, &[]).await;
        plain.take().await.is(LDS, &[&a, b], &[]);
        assert!(sent(&mesh, "identity") > long.len());
        let before = sent(&mesh, "identity");

        for (encoding, name) in [(Zstd, "zstd"), (Gzip, "gzip")] {
            let mut client = mesh.compressed_delta(encoding).await;
            client.subscribe(LDS, &[]).await;
            client.take().await.is(LDS, &[&a, b], &[]);
            let bytes = sent(&mesh, name);
            assert!(bytes > 0 && bytes < long.len() / 20, "{name}: {bytes}");
        }
        assert_eq!(sent(&mesh, "identity"), before);

        let kept = mesh.metric("navarch_xds_encoded_bytes{");
        assert_eq!(kept.len(), 3, "{kept:?}");
        assert!(kept.iter().all(|line| !line.ends_with(" 0")), "{kept:?}");
    });
}

#[test]
fn a_change_is_compressed_from_the_second_client_on() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1"))]).await;
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = mesh.compressed_delta(Zstd).await;
            client.subscribe(LDS, &[]).await;
            client.take().await.is(LDS, &["a=1"], &[]);
            clients.push(client);
        }
        assert_eq!(sent(&mesh, "zstd"), 0, "a tiny response is sent as it is");

        let before = sent(&mesh, "identity");
        let long = long(5000);
        let expected = format!("a={long}");
        mesh.edit(&[(LDS, "a", body(&long))]).await;
        for client in &mut clients {
            client.take().await.is(LDS, &[&expected], &[]);
        }
        let plain = sent(&mesh, "identity") - before;
        assert!(plain > long.len() && plain < 2 * long.len(), "{plain}");
        assert!(sent(&mesh, "zstd") > 0);
    });
}
