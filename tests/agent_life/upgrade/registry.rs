//! A registry with signed artefacts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use navarch_base::digest::sha256_hex;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The manifests and blobs of a repository, by path.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// Adds a blob; returns its descriptor.
fn add_blob(files: &mut Files, bytes: Vec<u8>) -> Value {
    let digest = sha256_hex(&bytes);
    let size = bytes.len();
    files.insert(format!("blobs/sha256:{digest}"), bytes);
    json!({"digest": format!("sha256:{digest}"), "size": size})
}

/// Adds an artefact with a program; returns its digest.
pub(super) fn add_artefact(files: &mut Files, program: Vec<u8>) -> String {
    let layer = add_blob(files, program);
    let manifest = json!({"schemaVersion": 2, "layers": [layer]}).to_string();
    let digest = sha256_hex(&manifest);
    files.insert(format!("manifests/sha256:{digest}"), manifest.into_bytes());
    digest
}

/// Signs an artefact as cosign does.
pub(super) fn add_signature(files: &mut Files, key: &KeyPair, digest: &str) -> Result<()> {
    let payload = json!({
        "critical": {
            "identity": {"docker-reference": "example/envoy"},
            "image": {"docker-manifest-digest": format!("sha256:{digest}")},
            "type": "cosign container image signature",
        },
        "optional": null,
    });
    let payload = payload.to_string().into_bytes();
    let signature = STANDARD.encode(key.sign(&payload)?);
    let mut layer = add_blob(files, payload);
    layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
    let manifest = json!({"schemaVersion": 2, "layers": [layer]}).to_string();
    files.insert(
        format!("manifests/sha256-{digest}.sig"),
        manifest.into_bytes(),
    );
    Ok(())
}

/// Serves the repository `me/envoy`.
pub(super) async fn registry(files: Files) -> Result<(SocketAddr, JoinSet<()>)> {
    let files = Arc::new(files);
    let app = axum::Router::new().fallback(move |request: axum::extract::Request| {
        let path = request.uri().path().trim_start_matches("/v2/me/envoy/");
        let file = files.get(path).cloned();
        async move { file.ok_or(axum::http::StatusCode::NOT_FOUND) }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(axum::serve(listener, app).await) });
    Ok((address, tasks))
}
