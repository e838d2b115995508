//! An example of a signer plugin (`EXTERNAL_CA=NAVARCH_RA_SOCKET`): it signs with a key in a
//! PKCS#11 token, such as a hardware security module or SoftHSM.
//!
//! `pkcs11signer init MODULE TOKEN PIN-FILE ROOT` initializes an empty slot as TOKEN, generates a
//! P-256 key there that never leaves it, and writes its self-signed root to ROOT, in PEM.
//!
//! `pkcs11signer serve MODULE TOKEN PIN-FILE ROOT SOCKET` serves
//! `proto/navarch/signer/v1/signer.proto` on a Unix socket that only its own user can connect to.
//! ROOT is read for each stream of roots.
//!
//! A program for production would also bound what it signs per second, keep a record of it, and
//! have an intermediate in place of the root. It would not check identities: the control plane does.

#![expect(clippy::print_stdout, reason = "it reports that it is ready")]
#![allow(
    clippy::disallowed_methods,
    reason = "an example may use the clock, and its arguments"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::types::AuthPin;
use futures_util::{Stream, StreamExt as _, stream};
use navarch_proto::navarch::signer::v1::signer_server::{Signer, SignerServer};
use navarch_proto::navarch::signer::v1::{Roots, SignRequest, SignResponse, WatchRootsRequest};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PublicKeyData, SanType, SerialNumber, SignatureAlgorithm, SigningKey,
};
use sha2::{Digest as _, Sha256};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

const USAGE: &str = "init MODULE TOKEN PIN-FILE ROOT | serve MODULE TOKEN PIN-FILE ROOT SOCKET";
/// The label of the key in the token.
const KEY_LABEL: &str = "navarch-ca";
/// `secp256r1` as an object identifier in DER.
const P256: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// The length of an uncompressed point on P-256.
const POINT_BYTES: usize = 65;
/// Random bytes of a serial number.
const SERIAL_BYTES: usize = 16;
/// The lifetime of the root.
const ROOT_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long before now validity begins, because clocks may be late.
const BACKDATE: Duration = Duration::from_secs(120);
/// The longest lifetime that is signed.
const MAX_LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
/// The mode of the socket: its user alone.
const SOCKET_MODE: u32 = 0o600;

/// A P-256 key that does not leave its token.
struct TokenKey {
    session: Mutex<Session>,
    private: ObjectHandle,
    /// The public key as an uncompressed point.
    point: Vec<u8>,
}

struct TokenSigner {
    key: Arc<TokenKey>,
    /// The file with the root.
    root: PathBuf,
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["init", module, token, pin, root] => init(module, token, &read_pin(pin)?, Path::new(root)),
        ["serve", module, token, pin, root, socket] => {
            let key = open(module, token, &read_pin(pin)?)?;
            let signer = TokenSigner {
                key: Arc::new(key),
                root: PathBuf::from(root),
            };
            serve(signer, Path::new(socket)).await
        }
        _ => bail!("{USAGE}"),
    }
}

fn read_pin(file: &str) -> Result<AuthPin> {
    let pin = std::fs::read_to_string(file).with_context(|| format!("failed to read {file}"))?;
    Ok(AuthPin::new(pin.trim().into()))
}

/// Loads a PKCS#11 library.
fn load(module: &str) -> Result<Pkcs11> {
    let library = Pkcs11::new(module).with_context(|| format!("failed to load {module}"))?;
    library.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))?;
    Ok(library)
}

/// Makes a token with a key, and writes its root.
fn init(module: &str, token: &str, pin: &AuthPin, root: &Path) -> Result<()> {
    let library = load(module)?;
    let slots = library.get_slots_with_token()?;
    let slot = *slots.last().context("there is no slot")?;
    library.init_token(slot, pin, token)?;
    {
        let session = library.open_rw_session(slot)?;
        session.login(UserType::So, Some(pin))?;
        session.init_pin(pin)?;
    }

    let session = library.open_rw_session(slot)?;
    session.login(UserType::User, Some(pin))?;
    let label = Attribute::Label(KEY_LABEL.into());
    let public = [
        Attribute::Token(true),
        Attribute::Private(false),
        Attribute::KeyType(KeyType::EC),
        Attribute::EcParams(P256.to_vec()),
        Attribute::Verify(true),
        label.clone(),
    ];
    let private = [
        Attribute::Token(true),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
        label,
    ];
    session.generate_key_pair(&Mechanism::EccKeyPairGen, &public, &private)?;

    let key = find(session)?;
    let now = SystemTime::now();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, token);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = (now - BACKDATE).into();
    params.not_after = (now + ROOT_LIFETIME).into();
    params.serial_number = Some(key.serial()?);
    std::fs::write(root, params.self_signed(&key)?.pem())?;
    Ok(())
}

fn open(module: &str, token: &str, pin: &AuthPin) -> Result<TokenKey> {
    let library = load(module)?;
    for slot in library.get_slots_with_initialized_token()? {
        if library.get_token_info(slot)?.label().trim_end() == token {
            let session = library.open_ro_session(slot)?;
            session.login(UserType::User, Some(pin))?;
            return find(session);
        }
    }
    bail!("there is no token {token}")
}

/// The key of a session.
fn find(session: Session) -> Result<TokenKey> {
    let one = |class: ObjectClass| -> Result<ObjectHandle> {
        let template = [Attribute::Class(class), Attribute::Label(KEY_LABEL.into())];
        let found = session.find_objects(&template)?;
        found
            .first()
            .copied()
            .with_context(|| format!("the token has no {class} {KEY_LABEL}"))
    };

    let private = one(ObjectClass::PRIVATE_KEY)?;
    let public = one(ObjectClass::PUBLIC_KEY)?;
    let attributes = session.get_attributes(public, &[AttributeType::EcPoint])?;
    let Some(Attribute::EcPoint(point)) = attributes.into_iter().next() else {
        bail!("the token does not show the public key");
    };

    // An OCTET STRING with the point.
    let start = point.len().saturating_sub(POINT_BYTES);
    let point = point.get(start..).unwrap_or_default().to_vec();
    ensure!(point.len() == POINT_BYTES, "the key is not one of P-256");
    Ok(TokenKey {
        session: Mutex::new(session),
        private,
        point,
    })
}

impl TokenKey {
    /// A random serial number: positive, without an additional byte.
    fn serial(&self) -> Result<SerialNumber> {
        let mut bytes = [0; SERIAL_BYTES];
        self.session.lock().generate_random_slice(&mut bytes)?;
        if let Some(first) = bytes.first_mut() {
            *first = (*first & 0x7f) | 0x40;
        }
        Ok(SerialNumber::from_slice(&bytes))
    }
}

impl PublicKeyData for TokenKey {
    fn der_bytes(&self) -> &[u8] {
        &self.point
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl SigningKey for TokenKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let digest = Sha256::digest(message);
        let session = self.session.lock();
        let signature = session
            .sign(&Mechanism::Ecdsa, self.private, &digest)
            .map_err(|_| rcgen::Error::RemoteKeyError)?;
        Ok(in_der(&signature))
    }
}

/// The two numbers of a signature, which tokens return one after the other, as X.509 has them: in
/// a sequence.
fn in_der(signature: &[u8]) -> Vec<u8> {
    let half = signature.len() / 2;
    let number = |bytes: &[u8]| {
        let mut digits: Vec<u8> = bytes
            .iter()
            .copied()
            .skip_while(|byte| *byte == 0)
            .collect();
        if digits.first().is_none_or(|first| first & 0x80 != 0) {
            digits.insert(0, 0);
        }
        element(0x02, &digits)
    };
    let (r, s) = signature.split_at(half);
    element(0x30, &[number(r), number(s)].concat())
}

/// A DER element of less than 128 bytes.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap_or(0x7f);
    [&[tag, length], content].concat()
}

impl TokenSigner {
    /// Signs a certificate for the SPIFFE ID and the key of a request.
    fn certify(&self, request: &SignRequest) -> Result<String> {
        let root = std::fs::read_to_string(&self.root)?;
        let issuer = Issuer::from_ca_cert_pem(&root, &*self.key)?;
        let csr = CertificateSigningRequestParams::from_der(&request.csr_der.to_vec().into())?;
        let now = SystemTime::now();
        let lifetime = Duration::from_secs(request.seconds.into());
        ensure!(lifetime <= MAX_LIFETIME, "the lifetime is too long");

        // Nothing of the request is copied but its key.
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![SanType::URI(request.spiffe_id.as_str().try_into()?)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(self.key.serial()?);
        params.not_before = (now - BACKDATE).into();
        params.not_after = (now + lifetime).into();
        Ok(params.signed_by(&csr.public_key, &issuer)?.pem())
    }
}

#[tonic::async_trait]
impl Signer for TokenSigner {
    async fn sign(&self, request: Request<SignRequest>) -> Result<Response<SignResponse>, Status> {
        let request = request.into_inner();
        let signer = Self {
            key: self.key.clone(),
            root: self.root.clone(),
        };
        // A token takes its time.
        let signed = tokio::task::spawn_blocking(move || signer.certify(&request)).await;
        let signed = signed.map_err(|error| Status::internal(error.to_string()))?;
        let chain_pem = signed.map_err(|error| Status::internal(format!("{error:#}")))?;
        Ok(Response::new(SignResponse { chain_pem }))
    }

    type WatchRootsStream = Pin<Box<dyn Stream<Item = Result<Roots, Status>> + Send>>;

    async fn watch_roots(
        &self,
        _: Request<WatchRootsRequest>,
    ) -> Result<Response<Self::WatchRootsStream>, Status> {
        let pem = std::fs::read_to_string(&self.root)
            .map_err(|error| Status::internal(error.to_string()))?;
        let once = stream::once(async move { Ok(Roots { pem }) });
        // The stream stays open.
        let stream: Self::WatchRootsStream = Box::pin(once.chain(stream::pending()));
        Ok(Response::new(stream))
    }
}

/// Serves until the process ends.
async fn serve(signer: TokenSigner, socket: &Path) -> Result<()> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(SOCKET_MODE))?;

    println!("listening");
    tonic::transport::Server::builder()
        .add_service(SignerServer::new(signer))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await?;
    Ok(())
}
