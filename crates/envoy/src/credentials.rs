//! Keys, certificates and roots in Secrets and ConfigMaps, and the resource names by which Envoys
//! ask for them. Agrees with Istio's `pilot/pkg/credentials`; who may read them is decided in
//! `secrets`.

mod material;
pub(crate) mod pem;
pub(crate) mod reference;

pub use material::READ_SECRET_KEYS;
pub(crate) use material::{DOCKER_CONFIG, Material, MaterialError, Roots};
