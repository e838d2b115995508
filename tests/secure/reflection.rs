//! Server reflection, as grpcurl uses it.

use anyhow::{Context, Result, ensure};
use prost::Message;
use prost_types::FileDescriptorProto;
use tonic::Request;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::client::{self, Proof};
use crate::pod::Pod;
use crate::server::Server;

#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(string, optional, tag = "4")]
    symbol: Option<String>,
    #[prost(string, optional, tag = "7")]
    services: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "4")]
    files: Option<Files>,
    #[prost(message, optional, tag = "6")]
    services: Option<Services>,
}

#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Services {
    #[prost(message, repeated, tag = "1")]
    services: Vec<Service>,
}

#[derive(Clone, PartialEq, Message)]
struct Service {
    #[prost(string, tag = "1")]
    name: String,
}

/// Requests the list of services, then the file of the first service except reflection itself.
async fn ask(channel: Channel, version: &str) -> Result<(Vec<String>, FileDescriptorProto)> {
    let services = Question {
        symbol: None,
        services: Some(String::new()),
    };
    let symbol = Some("envoy.service.discovery.v3.AggregatedDiscoveryService".to_owned());
    let questions = tokio_stream::iter([
        services,
        Question {
            symbol,
            services: None,
        },
    ]);

    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await?;
    let path: PathAndQuery =
        format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo").parse()?;
    let codec = ProstCodec::<Question, Answer>::default();
    let mut answers = client
        .streaming(Request::new(questions), path, codec)
        .await?
        .into_inner();
    let listed = answers
        .message()
        .await?
        .and_then(|answer| answer.services)
        .context("no list")?;

    let files = answers
        .message()
        .await?
        .and_then(|answer| answer.files)
        .context("no file")?;
    ensure!(answers.message().await?.is_none(), "one answer each");
    let file = FileDescriptorProto::decode(files.files.first().context("no file")?.as_slice())?;

    Ok((
        listed
            .services
            .into_iter()
            .map(|service| service.name)
            .collect(),
        file,
    ))
}

#[tokio::test]
async fn both_ports_list_their_services() -> Result<()> {
    let server = Server::start().await?;
    let plain = Endpoint::from_shared(format!("http://{}", server.plain()))?
        .connect()
        .await?;
    let secure = client::channel(server.secure, &server.root(), &Proof::Nothing);
    let ads = "envoy.service.discovery.v3.AggregatedDiscoveryService";

    for (channel, signs) in [(plain, false), (secure, true)] {
        for version in ["v1", "v1alpha"] {
            let (services, file) = ask(channel.clone(), version).await?;
            ensure!(services.iter().any(|name| name == ads), "{services:?}");
            let certificates = services
                .iter()
                .any(|name| name == "istio.v1.auth.IstioCertificateService");
            ensure!(certificates == signs, "{services:?}");
            ensure!(
                file.name() == "envoy/service/discovery/v3/ads.proto",
                "{}",
                file.name()
            );
        }
    }

    Ok(())
}

#[tokio::test]
async fn the_sockets_of_an_agent_list_their_services() -> Result<()> {
    let server = Server::start().await?;
    let mut pod = Pod::start(&server, &[])?;
    pod.wait_ready().await?;

    for (socket, service) in [
        (
            "etc/istio/proxy/XDS",
            "envoy.service.discovery.v3.AggregatedDiscoveryService",
        ),
        (
            "var/run/secrets/workload-spiffe-uds/socket",
            "envoy.service.secret.v3.SecretDiscoveryService",
        ),
    ] {
        let address = format!("unix://{}", pod.path(socket).display());
        let channel = Endpoint::from_shared(address)?.connect().await?;
        for version in ["v1", "v1alpha"] {
            let (services, file) = ask(channel.clone(), version).await?;
            let own = format!("grpc.reflection.{version}.ServerReflection");
            for expected in [service, own.as_str()] {
                ensure!(services.iter().any(|name| name == expected), "{services:?}");
            }
            ensure!(
                file.name() == "envoy/service/discovery/v3/ads.proto",
                "{}",
                file.name()
            );
        }
    }

    Ok(())
}
