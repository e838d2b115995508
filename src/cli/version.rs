//! `navarch version`: the versions of this program, of the control planes and of the proxies, in
//! the forms of `istioctl version`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, ValueEnum};
use navarch_agent::local_http::LocalResponse;
use navarch_base::printable::escape;
use serde::{Deserialize, Serialize};

use super::debug_api::{Among, DebugApi, DebugRequest, ReplicaResponse};
use super::output::{self, print_json, print_text, print_yaml};
use crate::admin::Build;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The component of all control planes, as in the label `istio` of their pods.
const COMPONENT: &str = "pilot";
/// In versions of builds without a tag; the build script writes it.
const UNTAGGED: &str = "-navarch.";

/// Show the versions of this program, the control planes and the proxies
///
/// Flags and output are those of `istioctl version`, without `golang_version`, and without `tag` for
/// builds without one. A control plane that does not respond is reported on the standard error and
/// left out; as with istioctl, the exit code is 0 nevertheless. If one of several does not list its
/// proxies, no proxies are shown.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch version                                        with the control planes of the kubeconfig's cluster
  navarch version --remote=false                         this program alone, without a request
  navarch version -o json | jq -r '.meshVersion[].Info.version'")]
pub(super) struct VersionCommand {
    /// Output format; text if unset
    #[arg(short = 'o', long, value_name = "FORMAT")]
    output: Option<Format>,
    /// Show versions alone; with --short=false, also commits
    #[arg(short = 's', long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    short: bool,
    /// Query the control planes and their proxies, too
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    remote: bool,
    #[command(flatten)]
    api: DebugApi,
}

/// A form for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Yaml,
}

/// All versions. Names and letter case of the fields are those of istioctl.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client_version: BuildInfo,
    /// `None` if no control plane was queried, or none responded.
    #[serde(skip_serializing_if = "Option::is_none")]
    mesh_version: Option<Vec<ControlPlaneVersion>>,
    /// `None` unless all queried control planes have listed their proxies.
    #[serde(skip_serializing_if = "Option::is_none")]
    data_plane_version: Option<Vec<ProxyVersion>>,
}

/// One build, as Istio's `BuildInfo` without `golang_version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct BuildInfo {
    version: String,
    /// The Git commit, or `unknown`.
    revision: String,
    /// `Clean`, or `Modified`.
    status: String,
    /// `None` for builds without a tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct ControlPlaneVersion {
    component: &'static str,
    /// The label `istio.io/rev` of its pod; `None` if it was queried by address.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    info: BuildInfo,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct ProxyVersion {
    #[serde(rename = "ID")]
    id: String,
    istio_version: String,
    /// `sidecar`, `gateway`, `waypoint`, …
    #[serde(rename = "Type")]
    kind: String,
}

/// What is read of an entry of `/debug/syncz`.
#[derive(Debug, Deserialize)]
struct SyncStatus {
    proxy: String,
    #[serde(default)]
    proxy_type: String,
    #[serde(default)]
    istio_version: String,
}

impl VersionCommand {
    /// Prints the versions.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut versions = Versions::of_this_program();
        if self.remote
            && let Err(error) = versions.query(&self.api)
        {
            report(&error);
        }

        match (self.output, self.short) {
            (Some(Format::Json), _) => print_json(&serde_json::to_string_pretty(&versions)?),
            (Some(Format::Yaml), _) => print_yaml(&serde_saphyr::to_string(&versions)?),
            (None, true) => print_text(&versions.short()),
            (None, false) => print_text(&versions.long()),
        }
    }
}

impl Versions {
    fn of_this_program() -> Self {
        let build = Build {
            version: env!("NAVARCH_VERSION"),
            revision: env!("NAVARCH_COMMIT"),
        };
        Self {
            client_version: BuildInfo::new(build.version, build.revision, build.status()),
            mesh_version: None,
            data_plane_version: None,
        }
    }

    /// Adds the control planes and their proxies. Failed requests are reported.
    ///
    /// # Errors
    /// If no control plane can be found.
    fn query(&mut self, api: &DebugApi) -> anyhow::Result<()> {
        let request = DebugRequest::get("/version".to_owned(), REQUEST_TIMEOUT);
        let mut control_planes = Vec::new();
        for ReplicaResponse {
            place,
            revision,
            answer,
            ..
        } in api.query_all(&request, Among::Ready)?
        {
            match answer.and_then(|answer| read_version(&answer).context(place)) {
                Ok(info) => control_planes.push(ControlPlaneVersion {
                    component: COMPONENT,
                    revision,
                    info,
                }),
                Err(error) => report(&error),
            }
        }

        if control_planes.is_empty() {
            return Ok(());
        }
        self.mesh_version = Some(control_planes);

        let request = DebugRequest::get("/debug/syncz".to_owned(), REQUEST_TIMEOUT);
        let mut proxies = Vec::new();
        let mut is_complete = true;
        for (place, answer) in api.query_each(&request)? {
            match answer.and_then(|answer| read_proxies(&answer).context(place)) {
                Ok(listed) => proxies.extend(listed),
                Err(error) => {
                    report(&error);
                    is_complete = false;
                }
            }
        }

        self.data_plane_version = is_complete.then_some(proxies);
        Ok(())
    }

    /// A line for this program, for the control planes and for the proxies.
    fn short(&self) -> String {
        let mut text = format!("client version: {}\n", self.client_version.version);

        let control_planes = self.mesh_version.as_deref().unwrap_or_default();
        if let [first, others @ ..] = control_planes {
            let version = &first.info.version;
            if others.iter().all(|other| other.info.version == *version) {
                text.push_str(&format!("control plane version: {}\n", escape(version)));
            } else {
                for one in control_planes {
                    let version = escape(&one.info.version);
                    text.push_str(&format!("{} version: {version}\n", one.component));
                }
            }
        }

        if let Some(proxies) = &self.data_plane_version {
            text.push_str(&format!("data plane version: {}\n", counts(proxies)));
        }

        text
    }

    /// A line for each build and each proxy, in the words of Go's `%#v`, which istioctl prints.
    fn long(&self) -> String {
        let mut text = format!("client version: {}\n", self.client_version.long());

        for one in self.mesh_version.iter().flatten() {
            text.push_str(&format!("{} version: {}\n", one.component, one.info.long()));
        }

        for ProxyVersion {
            id,
            istio_version,
            kind,
        } in self.data_plane_version.iter().flatten()
        {
            text.push_str(&format!(
                "data plane version: version.ProxyInfo{{ID:{id:?}, IstioVersion:{istio_version:?}, Type:{kind:?}}}\n"
            ));
        }

        text
    }
}

impl BuildInfo {
    fn new(version: &str, revision: &str, status: &str) -> Self {
        Self {
            version: version.to_owned(),
            revision: revision.to_owned(),
            status: status.to_owned(),
            tag: (!version.contains(UNTAGGED)).then(|| version.to_owned()),
        }
    }

    /// Parses a response to `/version`: version, commit and status, joined by `-`. A text of
    /// another form is a version, as for istioctl.
    fn parse(text: &str) -> Self {
        let text = text.trim();
        let Some((rest, status)) = text.rsplit_once('-') else {
            return Self::new(text, "", "");
        };
        let Some((version, revision)) = rest.rsplit_once('-') else {
            return Self::new(text, "", "");
        };

        // istiod marks the commit of a modified build.
        match version.rsplit_once('-') {
            Some((version, commit)) if revision == "dirty" => {
                Self::new(version, &format!("{commit}-{revision}"), status)
            }
            _ => Self::new(version, revision, status),
        }
    }

    fn long(&self) -> String {
        let Self {
            version,
            revision,
            status,
            tag,
        } = self;
        let tag = tag
            .as_ref()
            .map(|tag| format!(", GitTag:{tag:?}"))
            .unwrap_or_default();
        format!(
            "version.BuildInfo{{Version:{version:?}, GitRevision:{revision:?}, BuildStatus:{status:?}{tag}}}"
        )
    }
}

/// The number of proxies of each version; `none` without proxies.
fn counts(proxies: &[ProxyVersion]) -> String {
    if proxies.is_empty() {
        return "none".to_owned();
    }

    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for proxy in proxies {
        *counts.entry(&proxy.istio_version).or_default() += 1;
    }

    counts
        .iter()
        .map(|(version, count)| format!("{} ({count} proxies)", escape(version)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Parses a response to `/version`.
fn read_version(answer: &LocalResponse) -> anyhow::Result<BuildInfo> {
    let status = answer.status;
    ensure!(status.is_success(), "/version: HTTP status {status}");
    Ok(BuildInfo::parse(&answer.text()))
}

/// Parses a response to `/debug/syncz`.
fn read_proxies(answer: &LocalResponse) -> anyhow::Result<Vec<ProxyVersion>> {
    let status = answer.status;
    ensure!(status.is_success(), "/debug/syncz: HTTP status {status}");
    let listed: Vec<SyncStatus> = serde_json::from_slice(&answer.body).context("/debug/syncz")?;
    Ok(listed.into_iter().map(ProxyVersion::from).collect())
}

impl From<SyncStatus> for ProxyVersion {
    fn from(status: SyncStatus) -> Self {
        let kind = match status.proxy_type.as_str() {
            "router" => "gateway".to_owned(),
            _ => status.proxy_type,
        };
        Self {
            id: status.proxy,
            istio_version: status.istio_version,
            kind,
        }
    }
}

/// Prints an error to the standard error, so that the output stays valid.
fn report(error: &anyhow::Error) {
    output::report(&escape(&format!("{error:#}")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn proxy(id: &str, version: &str, kind: &str) -> ProxyVersion {
        let status = json!({ "proxy": id, "proxy_type": kind, "istio_version": version });
        serde_json::from_value::<SyncStatus>(status).unwrap().into()
    }

    fn control_plane(version: &str) -> ControlPlaneVersion {
        ControlPlaneVersion {
            component: COMPONENT,
            revision: Some("canary".to_owned()),
            info: BuildInfo::parse(&format!("{version}-0f092f8-Clean")),
        }
    }

    fn versions(control_planes: &[&str], proxies: Vec<ProxyVersion>) -> Versions {
        let planes = control_planes.iter().map(|version| control_plane(version));
        Versions {
            client_version: BuildInfo::new("1.32.0-navarch.0f092f8", "0f092f8", "Clean"),
            mesh_version: Some(planes.collect()),
            data_plane_version: Some(proxies),
        }
    }

    #[test]
    fn a_response_of_navarch_and_of_istiod_is_parsed() {
        let read = |text| {
            let info = BuildInfo::parse(text);
            (info.version, info.revision, info.status)
        };
        let wanted = |version: &str, revision: &str, status: &str| {
            (version.to_owned(), revision.to_owned(), status.to_owned())
        };

        assert_eq!(
            read("1.32.0-navarch.0f092f8-dirty-0f092f87-Modified"),
            wanted("1.32.0-navarch.0f092f8-dirty", "0f092f87", "Modified")
        );
        assert_eq!(
            read("1.31.0-016bc46f-dirty-Modified\n"),
            wanted("1.31.0", "016bc46f-dirty", "Modified")
        );
        assert_eq!(read("unknown"), wanted("unknown", "", ""));
    }

    #[test]
    fn json_has_the_fields_of_istioctl_and_no_invented_ones() {
        let all = versions(&["v1.0.0"], vec![proxy("web-1.shop", "1.32.0", "router")]);

        assert_eq!(
            serde_json::to_value(&all).unwrap(),
            json!({
                "clientVersion": { "version": "1.32.0-navarch.0f092f8", "revision": "0f092f8", "status": "Clean" },
                "meshVersion": [{
                    "Component": "pilot",
                    "Revision": "canary",
                    "Info": { "version": "v1.0.0", "revision": "0f092f8", "status": "Clean", "tag": "v1.0.0" },
                }],
                "dataPlaneVersion": [{ "ID": "web-1.shop", "IstioVersion": "1.32.0", "Type": "gateway" }],
            })
        );

        let own = serde_json::to_value(Versions::of_this_program()).unwrap();
        assert_eq!(
            own.as_object().unwrap().keys().collect::<Vec<_>>(),
            ["clientVersion"]
        );
    }

    #[test]
    fn text_names_each_version_once_unless_replicas_differ() {
        let same = versions(&["v1.0.0", "v1.0.0"], Vec::new());
        assert_eq!(
            same.short(),
            "client version: 1.32.0-navarch.0f092f8\ncontrol plane version: v1.0.0\ndata plane version: none\n"
        );

        let proxies = ["a", "b", "c"].map(|id| {
            let version = if id == "b" { "1.31.0" } else { "1.32.0" };
            proxy(id, version, "sidecar")
        });
        let other = versions(&["v1.0.0", "v1.0.1"], proxies.into());
        assert_eq!(
            other.short(),
            "client version: 1.32.0-navarch.0f092f8\npilot version: v1.0.0\npilot version: v1.0.1\n\
             data plane version: 1.31.0 (1 proxies), 1.32.0 (2 proxies)\n"
        );

        let long = other.long();
        for line in [
            "client version: version.BuildInfo{Version:\"1.32.0-navarch.0f092f8\", GitRevision:\"0f092f8\", BuildStatus:\"Clean\"}\n",
            "pilot version: version.BuildInfo{Version:\"v1.0.1\", GitRevision:\"0f092f8\", BuildStatus:\"Clean\", GitTag:\"v1.0.1\"}\n",
            "data plane version: version.ProxyInfo{ID:\"b\", IstioVersion:\"1.31.0\", Type:\"sidecar\"}\n",
        ] {
            assert!(long.contains(line), "{line}: {long}");
        }
    }
}
