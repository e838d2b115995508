//! `navarch why`: explains a proxy's resources, and why its requests fail.

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use navarch_base::printable::escape;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::debug_api::{DebugApi, DebugRequest, query};
use super::output::{Output, print};
use super::progress::Progress;
use navarch_answers::why::{WhyNot, WhyProxy, WhyPush};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The exit code if the request fails.
const FAILED_EXIT_CODE: u8 = 3;

/// Explain the configuration of a proxy, or why its requests fail
///
/// Shows from which objects a resource of a proxy is generated, what caused its last pushes, or why
/// a request of its workload fails.
///
/// The request is sent to every ready control plane of the kubeconfig's cluster, or to each
/// --address; the one to which the proxy is connected responds.
///
/// Exit codes: 0 there is a response, and the request does not fail; 1 there is none; 2 the command
/// line is wrong; 3 the request fails.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch why proxy web-1.shop 'outbound|9080||reviews.shop.svc.cluster.local'
  navarch why push web-1.shop
  navarch why not web-1.shop reviews:9080/api
  navarch why not ingress-1.istio-system shop.example:443/ --token-claims '{\"iss\": \"https://issuer.example\", \"sub\": \"me\"}'")]
pub(super) struct Why {
    #[command(subcommand)]
    question: WhyQuery,
    /// Output format
    #[arg(
        short = 'o',
        long,
        value_name = "FORMAT",
        default_value = "text",
        global = true
    )]
    output: Output,
    #[command(flatten)]
    api: DebugApi,
}

/// What is asked.
#[derive(Debug, Subcommand)]
enum WhyQuery {
    /// Show the objects from which a resource of a proxy is generated, in the order in which they
    /// were read, with the fields of each that matter
    Proxy {
        /// The proxy, as POD.NAMESPACE
        pod: String,
        /// Name of a cluster, endpoint, listener or route, as in `config_dump`
        resource: String,
        /// Type, such as cds or rds; if unset, all types with a resource of this name
        #[arg(long, value_name = "TYPE")]
        r#type: Option<String>,
    },
    /// Show the last pushes to a proxy: time, objects that caused them, size, and time until the
    /// acknowledgement
    Push {
        /// The proxy, as POD.NAMESPACE
        pod: String,
    },
    /// Show why a request of a pod to a host fails: the first reason on its path, including
    /// policies of the destination. For the pod of a gateway, it is a request from outside to the
    /// gateway
    Not {
        /// The pod, as POD.NAMESPACE
        pod: String,
        /// Destination: HOST, HOST:PORT or HOST:PORT/PATH
        host: String,
        /// The method
        #[arg(long, default_value = "GET")]
        method: String,
        /// Claims of the token of the request, as JSON, such as '{"iss": "https://issuer.example",
        /// "sub": "me"}'; if unset, the request has no token
        #[arg(long, value_name = "JSON")]
        token_claims: Option<String>,
    },
}

impl Why {
    /// Sends the request, and prints the response.
    ///
    /// # Errors
    /// If no control plane responds.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.question {
            WhyQuery::Proxy {
                pod,
                resource,
                r#type,
            } => {
                let mut parameters = vec![
                    ("proxy", pod.as_str()),
                    ("resource", resource),
                    ("fields", "true"),
                ];
                parameters.extend(r#type.as_deref().map(|kind| ("type", kind)));
                self.print_response::<WhyProxy>("/debug/why/proxy", &parameters)?;
            }
            WhyQuery::Push { pod } => {
                _ = self.print_response::<WhyPush>("/debug/why/push", &[("proxy", pod)])?
            }
            WhyQuery::Not {
                pod,
                host,
                method,
                token_claims,
            } => {
                let (authority, path) = host.split_once('/').unwrap_or((host, ""));
                let path = format!("/{path}");
                let (host, port) = match authority.rsplit_once(':') {
                    Some((host, port)) => (host, Some(port)),
                    None => (authority, None),
                };
                let mut parameters = vec![
                    ("proxy", pod.as_str()),
                    ("host", host),
                    ("path", &path),
                    ("method", method),
                ];

                parameters.extend(port.map(|port| ("port", port)));
                parameters.extend(token_claims.as_deref().map(|claims| ("claims", claims)));
                let answer = self.print_response::<WhyNot>("/debug/why/not", &parameters)?;
                if answer.reason.is_some() {
                    return Ok(ExitCode::from(FAILED_EXIT_CODE));
                }
            }
        }

        Ok(ExitCode::SUCCESS)
    }

    /// Asks all control planes until one has the proxy, and prints its response.
    fn print_response<T: DeserializeOwned + Serialize + Display>(
        &self,
        page: &str,
        parameters: &[(&str, &str)],
    ) -> anyhow::Result<T> {
        let request = DebugRequest::get(format!("{page}?{}", query(parameters)), REQUEST_TIMEOUT);
        let mut messages = Vec::new();
        let progress = Progress::begin("querying the control planes");
        let answers = self.api.query_each(&request)?;
        drop(progress);

        for (address, answer) in answers {
            match answer {
                Ok(answer) if answer.status.is_success() => {
                    let response: T = serde_json::from_slice(&answer.body)
                        .context("the response is of an incompatible Navarch release")?;
                    print(self.output, &response, &response)?;
                    return Ok(response);
                }
                Ok(answer) => messages.push(format!("{address}: {}", escape(answer.text().trim()))),
                Err(error) => messages.push(escape(&format!("{error:#}")).into_owned()),
            }
        }

        bail!("{}", messages.join("\n"))
    }
}
