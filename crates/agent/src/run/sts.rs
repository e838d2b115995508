//! The security token service, from pilot-agent's flags and variables.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::prepare::Prepared;
use crate::Clock;
use crate::sts::{
    self, ClientSecret, Endpoint, Exchange, GoogleConfig, GoogleExchange, HttpsClient,
    RemoteExchange, TokenManager,
};
use crate::upstream::{KeyFiles, Roots};
use crate::variables::Variables;
use navarch_net::listen::listen;
use navarch_net::rejections::Rejections;

/// The plugin for Google's servers.
const GOOGLE: &str = "GoogleTokenExchange";
/// The type of the tokens of Google's metadata server, and the identity provider of these tokens.
const GOOGLE_METADATA: &str = "GoogleComputeEngine";
/// The plugin for any other server.
const REMOTE: &str = "TokenExchange";

/// Errors of starting the token service.
#[derive(Debug, thiserror::Error)]
pub enum StsError {
    /// There is no such plugin.
    #[error("--tokenManagerPlugin={0:?} is unknown: set it to {GOOGLE} or {REMOTE}, or unset it")]
    Plugin(String),
    /// The project is unknown.
    #[error(
        "--tokenManagerPlugin={GOOGLE} requires Google's project number, which the metadata server or GCP_METADATA has"
    )]
    Project,
    /// There is no server for the exchange.
    #[error(
        "NAVARCH_STS_URL={0:?} must be an https URL, or an http URL of loopback, for --tokenManagerPlugin={REMOTE}"
    )]
    Url(String),
    /// A setting needs another.
    #[error("{0} and {1} require each other")]
    Pair(&'static str, &'static str),
    /// Listening on the port failed.
    #[error("failed to listen on {0} (--stsPort)")]
    Listen(SocketAddr, #[source] io::Error),
}

/// The running service, unless its port is 0 or there is nobody to exchange tokens.
pub(super) fn start(
    prepared: &Prepared,
    variables: &Variables,
    clock: Clock,
) -> Result<Option<impl Future<Output = ()> + Send + use<>>, StsError> {
    let settings = &prepared.settings;
    let port = settings.sts_port;
    if port == 0 {
        return Ok(None);
    }

    let plugin = plugin(
        &settings.token_manager_plugin,
        !variables.text("NAVARCH_STS_URL").is_empty(),
        project_number(prepared).is_some(),
    )?;
    let exchange: Box<dyn Exchange> = match plugin {
        Plugin::Remote => Box::new(remote(variables)?),
        Plugin::Google => Box::new(google(prepared, variables, clock)?),
        Plugin::None => {
            tracing::warn!(
                port,
                "--stsPort has no effect: no token server is known; set NAVARCH_STS_URL"
            );
            return Ok(None);
        }
    };

    let ip: IpAddr = if prepared.localhost() == "::1" {
        Ipv6Addr::LOCALHOST.into()
    } else {
        Ipv4Addr::LOCALHOST.into()
    };
    let address = SocketAddr::new(ip, port);
    let listener = listen(address).map_err(|error| StsError::Listen(address, error))?;
    tracing::info!(%address, ?plugin, "token service listening");
    let manager = TokenManager::new(exchange);
    Ok(Some(sts::serve(
        listener,
        manager,
        clock,
        Rejections::default(),
    )))
}

/// Who exchanges tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plugin {
    Google,
    Remote,
    None,
}

/// The plugin with a name. Without one it is that which is configured.
fn plugin(name: &str, has_url: bool, has_project: bool) -> Result<Plugin, StsError> {
    match name {
        GOOGLE if has_project => Ok(Plugin::Google),
        GOOGLE => Err(StsError::Project),
        REMOTE => Ok(Plugin::Remote),
        "" if has_url => Ok(Plugin::Remote),
        "" if has_project => Ok(Plugin::Google),
        "" => Ok(Plugin::None),
        other => Err(StsError::Plugin(other.to_owned())),
    }
}

/// The number of Google's project, if the proxy runs in one.
fn project_number(prepared: &Prepared) -> Option<&str> {
    let number = prepared.platform.get("gcp_project_number")?;
    Some(number.as_str()).filter(|number| !number.is_empty())
}

/// Google's exchange.
fn google(
    prepared: &Prepared,
    variables: &Variables,
    clock: Clock,
) -> Result<GoogleExchange, StsError> {
    let config = GoogleConfig {
        project_number: project_number(prepared)
            .ok_or(StsError::Project)?
            .to_owned(),
        identity_provider: identity_provider(variables, &prepared.platform),
        trust_domain: variables.text_or("TRUST_DOMAIN", "cluster.local"),
    };
    let client = HttpsClient {
        roots: Roots::System,
        certificate: None,
    };
    GoogleExchange::new(config, client, clock).ok_or(StsError::Project)
}

/// Who vouches for subject tokens, as in Istio 1.14: for tokens of a cloud's metadata server the
/// cloud, for others the GKE cluster.
fn identity_provider(variables: &Variables, platform: &BTreeMap<String, String>) -> String {
    let named = variables.text("CREDENTIAL_IDENTITY_PROVIDER");
    if !named.is_empty() {
        return named.to_owned();
    }
    if variables.text("CREDENTIAL_FETCHER_TYPE") == GOOGLE_METADATA {
        return GOOGLE_METADATA.to_owned();
    }

    let cluster = variables.text("GKE_CLUSTER_URL");
    if cluster.is_empty() {
        let detected = platform.get("gcp_gke_cluster_url");
        return detected.cloned().unwrap_or_default();
    }
    cluster.to_owned()
}

/// The exchange at the server of variables.
fn remote(variables: &Variables) -> Result<RemoteExchange, StsError> {
    let url = variables.text("NAVARCH_STS_URL");
    let endpoint = Endpoint::parse(url).ok_or_else(|| StsError::Url(url.to_owned()))?;

    let roots = match variables.text("NAVARCH_STS_CA_FILE") {
        "" => Roots::System,
        path => Roots::File(path.into()),
    };
    let chain = variables.text("NAVARCH_STS_CLIENT_CERTIFICATE");
    let key = variables.text("NAVARCH_STS_CLIENT_KEY");
    if chain.is_empty() != key.is_empty() {
        return Err(StsError::Pair(
            "NAVARCH_STS_CLIENT_CERTIFICATE",
            "NAVARCH_STS_CLIENT_KEY",
        ));
    }

    let id = variables.text("NAVARCH_STS_CLIENT_ID");
    let file = variables.text("NAVARCH_STS_CLIENT_SECRET_FILE");
    if id.is_empty() != file.is_empty() {
        return Err(StsError::Pair(
            "NAVARCH_STS_CLIENT_ID",
            "NAVARCH_STS_CLIENT_SECRET_FILE",
        ));
    }

    Ok(RemoteExchange {
        endpoint,
        client: HttpsClient {
            roots,
            certificate: (!chain.is_empty()).then(|| KeyFiles {
                chain: chain.into(),
                key: key.into(),
            }),
        },
        secret: (!id.is_empty()).then(|| ClientSecret {
            id: id.to_owned(),
            file: file.into(),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_plugin_is_rejected_and_none_is_chosen_by_what_is_configured() {
        let chosen = |name, has_url, has_project| plugin(name, has_url, has_project).unwrap();
        assert_eq!(chosen("", true, true), Plugin::Remote);
        assert_eq!(chosen("", false, true), Plugin::Google);
        assert_eq!(chosen("", false, false), Plugin::None);
        assert_eq!(chosen(REMOTE, false, false), Plugin::Remote);
        assert_eq!(chosen(GOOGLE, true, true), Plugin::Google);

        assert!(matches!(
            plugin(GOOGLE, true, false),
            Err(StsError::Project)
        ));
        let unknown = plugin("google", true, true).unwrap_err().to_string();
        assert!(unknown.contains("\"google\" is unknown"), "{unknown}");
    }

    #[test]
    fn tokens_of_a_metadata_server_have_another_identity_provider_than_those_of_a_cluster() {
        let detected = (
            "gcp_gke_cluster_url".to_owned(),
            "https://detected".to_owned(),
        );
        let platform = BTreeMap::from([detected]);
        let provider =
            |pairs: &[(&str, &str)]| identity_provider(&pairs.iter().copied().collect(), &platform);
        let of_google = ("CREDENTIAL_FETCHER_TYPE", "GoogleComputeEngine");
        let cluster = ("GKE_CLUSTER_URL", "https://cluster");

        assert_eq!(provider(&[]), "https://detected");
        assert_eq!(provider(&[cluster]), "https://cluster");
        assert_eq!(provider(&[cluster, of_google]), "GoogleComputeEngine");
        let named = ("CREDENTIAL_IDENTITY_PROVIDER", "https://issuer");
        assert_eq!(provider(&[cluster, of_google, named]), "https://issuer");
    }

    #[test]
    fn settings_of_a_server_that_are_incomplete_are_rejected() {
        let read = |pairs: &[(&str, &str)]| remote(&pairs.iter().copied().collect());
        let url = ("NAVARCH_STS_URL", "https://sts.example/token");
        assert_eq!(read(&[url]).unwrap().secret, None);

        let plain = read(&[("NAVARCH_STS_URL", "http://sts.example/token")]);
        assert!(matches!(plain, Err(StsError::Url(_))));
        for alone in [
            "NAVARCH_STS_CLIENT_CERTIFICATE",
            "NAVARCH_STS_CLIENT_KEY",
            "NAVARCH_STS_CLIENT_ID",
            "NAVARCH_STS_CLIENT_SECRET_FILE",
        ] {
            let error = read(&[url, (alone, "x")]).unwrap_err().to_string();
            assert!(error.contains(alone), "{error}");
        }
    }
}
