//! Artefacts of a registry: signed, unsigned, changed, and with other contents than Envoy.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use navarch_base::digest::sha256_hex;
use parking_lot::Mutex;
use rcgen::KeyPair;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::signature::tests::{key, payload, sign};
use super::super::wanted::Wanted;
use super::*;

const PROGRAM: &[u8] = b"\x7fELF and so on";

/// The manifests and blobs of a repository, by path.
type Files = BTreeMap<String, Vec<u8>>;

/// A registry with one repository.
struct TestRegistry {
    address: SocketAddr,
    /// The `Authorization` header of each request.
    seen: Arc<Mutex<Vec<Option<String>>>>,
    _serving: JoinSet<()>,
}

/// What a registry does with requests.
#[derive(Default)]
struct Rules {
    files: Files,
    /// The only accepted `Authorization` header, and the challenge to others.
    private: Option<(String, String)>,
    /// The registry to which it redirects requests.
    elsewhere: Option<SocketAddr>,
    seen: Arc<Mutex<Vec<Option<String>>>>,
}

async fn file(
    State(rules): State<Arc<Rules>>,
    headers: HeaderMap,
    UrlPath(path): UrlPath<String>,
) -> Response {
    let header = headers.get(AUTHORIZATION);
    let given = header.map(|value| value.to_str().unwrap().to_owned());
    rules.seen.lock().push(given.clone());
    if let Some((accepted, challenge)) = &rules.private
        && given.as_ref() != Some(accepted)
    {
        let headers = [(WWW_AUTHENTICATE, challenge.clone())];
        return (StatusCode::UNAUTHORIZED, headers).into_response();
    }
    if let Some(address) = rules.elsewhere {
        let url = format!("http://{address}/v2/me/envoy/{path}");
        return Redirect::temporary(&url).into_response();
    }
    match rules.files.get(&path) {
        Some(bytes) => bytes.clone().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

impl TestRegistry {
    async fn start(files: Files) -> Self {
        Self::with_rules(Rules {
            files,
            ..Rules::default()
        })
        .await
    }

    async fn with_rules(rules: Rules) -> Self {
        let seen = rules.seen.clone();
        let router = Router::new()
            .route("/v2/me/envoy/{*path}", get(file))
            .with_state(Arc::new(rules));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            seen,
            _serving: serving,
        }
    }

    fn name(&self, digest: &str) -> ArtefactName {
        let text = format!("oci://{}/me/envoy@sha256:{digest}", self.address);
        match Wanted::parse(&text).unwrap() {
            Wanted::Artefact(name) => name,
            Wanted::Original | Wanted::Path(_) => panic!("no artefact"),
        }
    }
}

/// Adds a blob; returns its descriptor.
fn add_blob(files: &mut Files, bytes: &[u8]) -> Value {
    let digest = sha256_hex(bytes);
    files.insert(format!("blobs/sha256:{digest}"), bytes.to_vec());
    json!({"digest": format!("sha256:{digest}"), "size": bytes.len(), "mediaType": "x"})
}

/// Adds an artefact with these layers; returns its digest.
fn add_artefact(files: &mut Files, layers: &[&[u8]]) -> String {
    let layers: Vec<_> = layers.iter().map(|layer| add_blob(files, layer)).collect();
    let manifest = json!({"schemaVersion": 2, "layers": layers}).to_string();
    let digest = sha256_hex(&manifest);
    files.insert(format!("manifests/sha256:{digest}"), manifest.into_bytes());
    digest
}

/// Adds a signature, by this key, of a payload for `signed`, beside the artefact.
fn add_signature(files: &mut Files, key: &KeyPair, digest: &str, signed: &str) {
    let payload = payload(signed);
    let mut layer = add_blob(files, &payload);
    layer["annotations"] = json!({SIGNATURE_ANNOTATION: sign(key, &payload)});
    let manifest = json!({"schemaVersion": 2, "layers": [layer]}).to_string();
    files.insert(
        format!("manifests/sha256-{digest}.sig"),
        manifest.into_bytes(),
    );
}

fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut builder = tar::Builder::new(gzip);
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// What the store makes of the artefact of a registry.
async fn fetch(
    files: Files,
    digest: &str,
    key: &KeyPair,
) -> (Result<PathBuf, ArtefactError>, tempfile::TempDir) {
    let registry = TestRegistry::start(files).await;
    let folder = tempfile::tempdir().unwrap();
    let fetched = fetch_to(folder.path(), &registry.name(digest), key, None).await;
    (fetched, folder)
}

/// What a store in a folder makes of an artefact, with these credentials.
async fn fetch_to(
    folder: &Path,
    name: &ArtefactName,
    key: &KeyPair,
    pull_secret: Option<&PullSecretFile>,
) -> Result<PathBuf, ArtefactError> {
    let store = Store::new(folder.join("envoy"));
    let keys = Keys::parse(key.public_key_pem().as_bytes()).unwrap();
    let rules = FetchRules {
        keys: &keys,
        pull_secret,
        timeout: Duration::from_secs(10),
    };
    store.program(name, rules).await
}

/// The files below a folder.
fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => count(&entry.path()),
            false => 1,
        })
        .sum()
}

#[tokio::test]
async fn a_signed_artefact_becomes_an_executable_file() {
    let packed = archive(&[("bin/envoy", PROGRAM)]);
    for layer in [PROGRAM, &packed] {
        let key = key();
        let mut files = Files::new();
        let digest = add_artefact(&mut files, &[layer]);
        add_signature(&mut files, &key, &digest, &digest);

        let (path, folder) = fetch(files, &digest, &key).await;
        let path = path.unwrap();
        assert_eq!(fs::read(&path).unwrap(), PROGRAM);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(count(folder.path()), 1, "the layer is removed");
    }
}

#[tokio::test]
async fn a_program_of_the_store_is_not_fetched_again_and_is_removed_when_unused() {
    let key = key();
    let mut files = Files::new();
    let digest = add_artefact(&mut files, &[PROGRAM]);
    add_signature(&mut files, &key, &digest, &digest);
    let (path, folder) = fetch(files, &digest, &key).await;
    let path = path.unwrap();

    // Nobody listens there any more.
    let text = format!("oci://127.0.0.1:1/me/envoy@sha256:{digest}");
    let Wanted::Artefact(name) = Wanted::parse(&text).unwrap() else {
        panic!("no artefact");
    };
    let again = fetch_to(folder.path(), &name, &key, None).await;
    assert_eq!(again.unwrap(), path);

    let store = Store::new(folder.path().join("envoy"));
    store.keep_only(&[&path]);
    assert!(path.exists());
    let other = folder.path().join("envoy/other");
    fs::write(&other, "").unwrap();
    store.keep_only(&[]);
    assert!(!path.exists() && other.exists());
}

#[tokio::test]
async fn unsigned_and_wrongly_signed_artefacts_are_refused_before_anything_is_written() {
    let own = key();
    let mut files = Files::new();
    let digest = add_artefact(&mut files, &[PROGRAM]);
    let (unsigned, _folder) = fetch(files.clone(), &digest, &own).await;
    assert!(matches!(unsigned, Err(ArtefactError::Unsigned(_))));

    let mut by_other = files.clone();
    add_signature(&mut by_other, &key(), &digest, &digest);
    let (refused, folder) = fetch(by_other, &digest, &own).await;
    let is_of_other_key = matches!(refused, Err(ArtefactError::Signature(SignatureError::Key)));
    assert!(is_of_other_key, "{refused:?}");
    assert_eq!(count(folder.path()), 0);

    // The signature of another artefact, moved beside this one.
    add_signature(&mut files, &own, &digest, &"b".repeat(64));
    let (refused, _folder) = fetch(files, &digest, &own).await;
    let is_of_other = matches!(
        refused,
        Err(ArtefactError::Signature(SignatureError::OtherDigest { .. }))
    );
    assert!(is_of_other, "{refused:?}");
}

#[tokio::test]
async fn a_good_signature_counts_after_bad_ones() {
    let own = key();
    let mut files = Files::new();
    let digest = add_artefact(&mut files, &[PROGRAM]);
    add_signature(&mut files, &own, &digest, &digest);
    let path = format!("manifests/sha256-{digest}.sig");

    let mut manifest: Value = serde_json::from_slice(&files[&path]).unwrap();
    let layers = manifest["layers"].as_array_mut().unwrap();
    let mut no_digest = layers[0].clone();
    no_digest["digest"] = "md5:1".into();
    let mut missing = layers[0].clone();
    missing["digest"] = format!("sha256:{}", "c".repeat(64)).into();
    layers.splice(0..0, [no_digest, missing]);
    files.insert(path, manifest.to_string().into_bytes());

    let (fetched, _folder) = fetch(files, &digest, &own).await;
    fetched.unwrap();
}

/// A pull secret with an entry of this registry: user `u`, password `p`.
fn pull_secret(folder: &Path, registry: SocketAddr) -> PullSecretFile {
    let path = folder.join("config.json");
    let config = json!({"auths": {registry.to_string(): {"username": "u", "password": "p"}}});
    fs::write(&path, config.to_string()).unwrap();
    PullSecretFile::new(path)
}

/// What it makes of that.
const LOGIN: &str = "Basic dTpw";

/// The rules of a registry for those with that login, with this challenge to others.
fn private(files: Files, challenge: &str) -> Rules {
    Rules {
        files,
        private: Some((LOGIN.to_owned(), challenge.to_owned())),
        ..Rules::default()
    }
}

#[tokio::test]
async fn a_private_registry_gets_the_credentials_of_its_own_entry() {
    let key = key();
    let mut files = Files::new();
    let digest = add_artefact(&mut files, &[PROGRAM]);
    add_signature(&mut files, &key, &digest, &digest);
    let registry = TestRegistry::with_rules(private(files, "Basic realm=\"x\"")).await;
    let name = registry.name(&digest);

    let folder = tempfile::tempdir().unwrap();
    let of_other = pull_secret(folder.path(), SocketAddr::from(([127, 0, 0, 1], 1)));
    for secret in [None, Some(&of_other)] {
        let refused = fetch_to(folder.path(), &name, &key, secret).await;
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("401"), "{text}");
    }
    assert!(registry.seen.lock().iter().all(Option::is_none));

    let missing = PullSecretFile::new(folder.path().join("missing.json"));
    let refused = fetch_to(folder.path(), &name, &key, Some(&missing)).await;
    let refused = refused.unwrap_err();
    assert!(refused.is_temporary(), "{refused}");

    let own = pull_secret(folder.path(), registry.address);
    let path = fetch_to(folder.path(), &name, &key, Some(&own)).await;
    assert_eq!(fs::read(path.unwrap()).unwrap(), PROGRAM);
}

#[tokio::test]
async fn a_server_that_a_registry_redirects_to_gets_no_credentials() {
    let key = key();
    let mut files = Files::new();
    let digest = add_artefact(&mut files, &[PROGRAM]);
    add_signature(&mut files, &key, &digest, &digest);
    let challenge = "Bearer realm=\"http://127.0.0.1:1/token\"";
    let other = TestRegistry::with_rules(private(files.clone(), challenge)).await;
    let folder = tempfile::tempdir().unwrap();

    // At once, and after the registry itself has accepted them.
    for accepted in [None, Some((LOGIN.to_owned(), "Basic".to_owned()))] {
        let is_private = accepted.is_some();
        let registry = TestRegistry::with_rules(Rules {
            private: accepted,
            elsewhere: Some(other.address),
            ..Rules::default()
        })
        .await;
        let secret = pull_secret(folder.path(), registry.address);
        let name = registry.name(&digest);
        let refused = fetch_to(folder.path(), &name, &key, Some(&secret)).await;
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("401"), "{text}");
        let has_logged_in = registry.seen.lock().contains(&Some(LOGIN.to_owned()));
        assert_eq!(has_logged_in, is_private);
    }

    let seen = other.seen.lock().clone();
    let is_without = seen.len() == 2 && seen.iter().all(Option::is_none);
    assert!(is_without, "it was asked without: {seen:?}");
}

#[test]
fn an_error_of_the_store_is_not_one_of_the_layer() {
    let mut full = File::options().write(true).open("/dev/full").unwrap();
    let stored = copy(PROGRAM, &mut full, 1000);
    assert!(matches!(stored, Err(UnpackError::Store(_))), "{stored:?}");

    let broken = GzDecoder::new(&b"\x1f\x8bbroken"[..]);
    let unpacked = copy(broken, &mut Vec::new(), 1000);
    assert!(
        matches!(unpacked, Err(UnpackError::Layer(_))),
        "{unpacked:?}"
    );

    let full = ArtefactError::Store {
        path: PathBuf::from("/store"),
        source: io::Error::from(io::ErrorKind::StorageFull),
    };
    assert!(full.is_temporary());
}

#[tokio::test]
async fn changed_manifests_and_layers_are_refused() {
    let key = key();
    let mut files = Files::new();
    let digest = add_artefact(&mut files, &[PROGRAM]);
    add_signature(&mut files, &key, &digest, &digest);

    let mut changed = files.clone();
    let manifest = changed.get_mut(&format!("manifests/sha256:{digest}"));
    manifest.unwrap().push(b' ');
    let (refused, _folder) = fetch(changed, &digest, &key).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("a manifest does not match"), "{text}");

    let layer = format!("blobs/sha256:{}", sha256_hex(PROGRAM));
    files.get_mut(&layer).unwrap()[5] = b'!';
    let (refused, folder) = fetch(files, &digest, &key).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("a layer does not match"), "{text}");
    assert_eq!(count(folder.path()), 0, "nothing is left");
}

#[tokio::test]
async fn layers_without_exactly_one_program_are_refused() {
    let script = b"#!/bin/sh\n".as_slice();
    let two = archive(&[("envoy", PROGRAM), ("more", script)]);
    let other = archive(&[("plugin.wasm", PROGRAM)]);
    let empty = archive(&[]);
    let broken = &archive(&[("envoy", PROGRAM)])[..20];
    for layers in [
        &[script][..],
        &[&two],
        &[&other],
        &[&empty],
        &[broken],
        &[PROGRAM, PROGRAM],
        &[],
    ] {
        let key = key();
        let mut files = Files::new();
        let digest = add_artefact(&mut files, layers);
        add_signature(&mut files, &key, &digest, &digest);
        let (refused, folder) = fetch(files, &digest, &key).await;
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(count(folder.path()), 0, "nothing is left");
    }
}

#[test]
fn a_program_that_unpacks_to_too_much_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let zeros = vec![0; 1 << 20];
    for (index, layer) in [zeros.clone(), archive(&[("envoy", &zeros)])]
        .into_iter()
        .enumerate()
    {
        let packed = folder.path().join(format!("layer{index}"));
        let program = folder.path().join(format!("envoy{index}"));
        let mut file = new_file(&packed).unwrap();
        std::io::Write::write_all(&mut file, &layer).unwrap();
        let error = unpack(file, &program, 1000).unwrap_err().to_string();
        assert!(error.contains("more than 1000 bytes"), "{error}");
    }
}
