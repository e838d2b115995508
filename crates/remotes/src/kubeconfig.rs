//! Kubeconfigs of remote clusters. Their authors must not be able to make this process run programs
//! or send its files elsewhere, so only inline data is used (Istio's `sanitizeKubeConfig`).

use std::collections::BTreeSet;
use std::path::Path;

use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use navarch_base::regular_file;
use navarch_kubernetes::{ApiRate, ClientError};

/// Why a kubeconfig is rejected. The error does not contain its content.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// It has no content.
    #[error("the kubeconfig is empty")]
    Empty,
    /// It is not a kubeconfig.
    #[error("failed to parse the kubeconfig: {0}")]
    Unreadable(String),
    /// It uses an option that is not allowed.
    #[error(
        "the kubeconfig uses {0}, which is not allowed; see PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS"
    )]
    Insecure(String),
    /// A file that it names cannot be used.
    #[error("the kubeconfig names the file {path} as {option}")]
    File {
        /// The name of the field.
        option: &'static str,
        /// The value of the field.
        path: String,
        /// Why not.
        #[source]
        error: std::io::Error,
    },
    /// No client can be created from it.
    #[error("failed to create a client from the kubeconfig")]
    Unusable(#[source] ClientError),
}

/// A client from a kubeconfig that may use these otherwise insecure options. No request is sent
/// yet.
///
/// # Errors
/// If it cannot be parsed, or is rejected.
pub async fn client(
    content: &[u8],
    allowed: &BTreeSet<String>,
    rate: Option<ApiRate>,
) -> Result<kube::Client, KubeconfigError> {
    let config = read(content)?;
    for auth in config
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref())
    {
        if let Some(option) = insecure_option(auth, allowed) {
            return Err(KubeconfigError::Insecure(option));
        }
        check_files_of_user(auth).await?;
    }

    for cluster in config
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref())
    {
        check_files_of_cluster(cluster, allowed).await?;
    }

    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let config = config.map_err(|error| KubeconfigError::Unreadable(error.to_string()))?;
    navarch_kubernetes::client_of(config, rate).map_err(KubeconfigError::Unusable)
}

/// The cluster name of a kubeconfig: that of its current context, or else of its first context or
/// cluster by name.
///
/// # Errors
/// If it cannot be parsed.
pub fn cluster_of(content: &[u8]) -> Result<Option<String>, KubeconfigError> {
    let config = read(content)?;
    let mut contexts: Vec<(&str, &str)> = Vec::new();
    for named in &config.contexts {
        let cluster = named
            .context
            .as_ref()
            .map(|context| context.cluster.as_str())
            .unwrap_or_default();
        if !cluster.is_empty() {
            contexts.push((&named.name, cluster));
        }
    }

    contexts.sort_unstable();
    let current = contexts
        .iter()
        .find(|(name, _)| Some(*name) == config.current_context.as_deref());
    if let Some((_, cluster)) = current.or_else(|| contexts.first()) {
        return Ok(Some((*cluster).to_owned()));
    }

    let clusters = config.clusters.iter().map(|cluster| cluster.name.as_str());
    Ok(clusters
        .filter(|name| !name.is_empty())
        .min()
        .map(str::to_owned))
}

fn read(content: &[u8]) -> Result<Kubeconfig, KubeconfigError> {
    if content.is_empty() {
        return Err(KubeconfigError::Empty);
    }
    let text = std::str::from_utf8(content)
        .map_err(|error| KubeconfigError::Unreadable(error.to_string()))?;
    // Errors of the parser can quote the text.
    Kubeconfig::from_yaml(text)
        .map_err(|_| KubeconfigError::Unreadable("it is not a valid kubeconfig".to_owned()))
}

/// The first option that is not allowed.
fn insecure_option(auth: &AuthInfo, allowed: &BTreeSet<String>) -> Option<String> {
    let provider = auth
        .auth_provider
        .as_ref()
        .map(|provider| provider.name.as_str())
        .filter(|name| *name != "oidc");
    if let Some(name) = provider.filter(|name| !allowed.contains(*name)) {
        return Some(format!("auth provider {name}"));
    }

    let is_set = |path: &Option<String>| path.as_ref().is_some_and(|path| !path.is_empty());
    let options = [
        ("clientKey", is_set(&auth.client_key)),
        ("clientCertificate", is_set(&auth.client_certificate)),
        ("tokenFile", is_set(&auth.token_file)),
        ("exec", auth.exec.is_some()),
    ];

    options
        .into_iter()
        .find(|(name, given)| *given && !allowed.contains(*name))
        .map(|(name, _)| name.to_owned())
}

/// The field of a cluster that names a file. istiod allows it; here it needs leave as the others
/// do.
const CERTIFICATE_AUTHORITY: &str = "certificateAuthority";

/// Rejects a cluster that names a file without leave, or one that cannot be read.
async fn check_files_of_cluster(
    cluster: &Cluster,
    allowed: &BTreeSet<String>,
) -> Result<(), KubeconfigError> {
    let Some(path) = named_file(cluster.certificate_authority.as_deref()) else {
        return Ok(());
    };
    if !allowed.contains(CERTIFICATE_AUTHORITY) {
        return Err(KubeconfigError::Insecure(CERTIFICATE_AUTHORITY.to_owned()));
    }

    check_file(CERTIFICATE_AUTHORITY, path).await
}

/// Rejects a user that names files which cannot be read.
async fn check_files_of_user(auth: &AuthInfo) -> Result<(), KubeconfigError> {
    for (option, path) in [
        ("clientKey", &auth.client_key),
        ("clientCertificate", &auth.client_certificate),
        ("tokenFile", &auth.token_file),
    ] {
        if let Some(path) = named_file(path.as_deref()) {
            check_file(option, path).await?;
        }
    }
    Ok(())
}

fn named_file(path: Option<&str>) -> Option<&str> {
    path.filter(|path| !path.is_empty())
}

/// Reads a file before the client does, which would wait at a FIFO, and read a device without end.
async fn check_file(option: &'static str, path: &str) -> Result<(), KubeconfigError> {
    let read = regular_file::read_async(Path::new(path), regular_file::MAX_SETTINGS_BYTES).await;
    read.map(drop).map_err(|error| KubeconfigError::File {
        option,
        path: path.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: east, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
             contexts: [{{name: b, context: {{cluster: west, user: u}}}}, {{name: c, context: {{cluster: east, user: u}}}}]\n\
             users: [{{name: u, user: {user}}}]\n"
        )
    }

    /// Why a client is rejected; empty if it is not.
    async fn rejection(user: &str, allowed: &[&str]) -> String {
        let allowed = allowed.iter().map(|name| (*name).to_owned()).collect();
        match client(config(user).as_bytes(), &allowed, None).await {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn kubeconfigs_that_run_programs_or_read_files_are_rejected() {
        assert_eq!(rejection("{token: secret}", &[]).await, "");

        for (user, option) in [
            (
                "{exec: {apiVersion: client.authentication.k8s.io/v1, command: 'true'}}",
                "exec",
            ),
            ("{tokenFile: /etc/passwd}", "tokenFile"),
            ("{client-key: /k}", "clientKey"),
            ("{client-certificate: /c}", "clientCertificate"),
            (
                "{auth-provider: {name: gcp, config: {}}}",
                "auth provider gcp",
            ),
        ] {
            let reason = rejection(user, &[]).await;
            assert!(
                reason.contains(&format!("uses {option}, which is not allowed")),
                "{user}: {reason}"
            );
        }

        let allowed = rejection("{tokenFile: /nowhere/token}", &["tokenFile"]).await;
        assert!(!allowed.contains("not allowed"), "{allowed}");
    }

    #[tokio::test]
    async fn files_must_be_permitted_and_regular() {
        let with_ca = |path: &str| {
            config("{token: secret}").replace(
                "server: 'https",
                &format!("certificate-authority: {path}, server: 'https"),
            )
        };
        let rejection = async |path: &str, allowed: &[&str]| {
            let allowed = allowed.iter().map(|name| (*name).to_owned()).collect();
            let made = client(with_ca(path).as_bytes(), &allowed, None).await;
            made.err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };

        let reason = rejection("/dev/zero", &[]).await;
        assert!(
            reason.contains("uses certificateAuthority, which is not allowed"),
            "{reason}"
        );

        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in ["/dev/zero", "/nowhere/ca.crt", fifo.to_str().unwrap()] {
            let reason = rejection(path, &["certificateAuthority"]).await;
            assert!(
                reason.contains("names the file") && reason.contains(path),
                "{path}: {reason}"
            );
        }
    }

    #[tokio::test]
    async fn an_invalid_kubeconfig_is_rejected_without_quoting_it() {
        let allowed = BTreeSet::new();
        assert!(matches!(
            client(b"", &allowed, None).await,
            Err(KubeconfigError::Empty)
        ));
        let error = client(b"users: [secret", &allowed, None)
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_kubeconfig_is_for_the_cluster_of_its_current_context() {
        assert_eq!(
            cluster_of(config("{}").as_bytes()).unwrap().as_deref(),
            Some("east")
        );
        let elsewhere = config("{}").replace("current-context: c", "current-context: none");
        assert_eq!(
            cluster_of(elsewhere.as_bytes()).unwrap().as_deref(),
            Some("west")
        );
        assert_eq!(
            cluster_of(b"clusters: [{name: y}, {name: x}]")
                .unwrap()
                .as_deref(),
            Some("x")
        );
        assert_eq!(cluster_of(b"apiVersion: v1").unwrap(), None);
    }
}
