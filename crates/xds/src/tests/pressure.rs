//! Many streams, and slow ones.

use super::bench::*;
use navarch_push::resource::ResourceType;

#[test]
fn a_slow_reader_blocks_no_one_and_gets_the_latest_version() {
    run(async {
        let big = "x".repeat(100_000);
        let mesh = Mesh::new(&[(LDS, "big", body(&big))]).await;
        let mut slow = mesh.state().await;
        slow.subscribe(LDS, &[]).await;
        let mut quick = mesh.delta().await;
        quick.subscribe(EDS, &["a"]).await;
        quick.take().await;

        for round in 0..500 {
            let text = format!("{round}{big}");
            mesh.edit(&[
                (LDS, "big", body(&text)),
                (EDS, "a", body(&round.to_string())),
            ])
            .await;
            quick.take().await;
        }

        // Fifty megabytes were computed; only the first response and the newest one wait.
        let mut read = 0;
        while !slow.take(&[]).await.resources[0].starts_with("499x") {
            read += 1;
        }

        // The size of the kernel's buffers depends on the machine.
        assert!(read < 100, "{read}");
    });
}

#[test]
fn streams_share_encoded_resources() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1"))]).await;
        let mut clients = Vec::new();

        for _ in 0..50 {
            let mut client = mesh.delta().await;
            client.subscribe(LDS, &[]).await;
            client.take().await.is(LDS, &["a=1"], &[]);
            clients.push(client);
        }

        mesh.edit(&[(LDS, "b", body("1"))]).await;
        for client in &mut clients {
            client.take().await.is(LDS, &["b=1"], &[]);
        }

        mesh.until(|streams| {
            streams
                .iter()
                .all(|stream| stream.types.iter().all(|one| one.in_sync))
        })
        .await;
        let streams = mesh.ads.connections().list();
        let first = streams[0].types[0].resources.clone().unwrap();

        assert!(streams.iter().all(|stream| {
            stream.types[0]
                .resources
                .as_ref()
                .is_some_and(|all| std::sync::Arc::ptr_eq(all, &first))
        }));

        assert_eq!(streams[0].types[0].resource_type, ResourceType::Listener);
        drop(clients);
        mesh.until(<[_]>::is_empty).await;
    });
}
