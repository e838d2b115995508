//! gRPC server reflection (`grpc.reflection.v1` and `v1alpha`): the services of a port, and the
//! files that describe them.
//!
//! Tools such as grpcurl use it, and istiod and pilot-agent serve it. Descriptors are part of the
//! program as one encoded set of 740 KB. A request scans it, and keeps no memory, so that clients
//! cannot use it up.
//!
//! The crate `tonic-reflection` (0.14.9) was read and not taken. For each port and version of the
//! service it holds a copy of every file, and a map from every symbol, down to fields and values of
//! enums, to its file; here requests are rare, and memory counts. If a symbol is not found, it ends
//! the stream; gRPC for Go, which istiod uses, responds with an error and reads the next request.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use navarch_proto::DESCRIPTORS;
use prost::Message;
use prost::bytes::Bytes;
use prost_types::{DescriptorProto, FileDescriptorProto};
use tokio::sync::Semaphore;
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

const MAX_CONCURRENT_LOOKUPS: usize = 1;
/// Maximum size of a request.
const MAX_REQUEST: usize = 16 << 10;

/// A request for one of these.
#[derive(Clone, PartialEq, Message)]
struct ReflectionRequest {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(oneof = "MessageRequest", tags = "3, 4, 5, 6, 7")]
    message: Option<MessageRequest>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum MessageRequest {
    /// The file of this name.
    #[prost(string, tag = "3")]
    File(String),
    /// The file that declares this service, method, message or enum.
    #[prost(string, tag = "4")]
    Symbol(String),
    /// The file that declares an extension.
    #[prost(message, tag = "5")]
    Extension(Extension),
    /// The numbers of a message's extensions.
    #[prost(string, tag = "6")]
    ExtensionsOf(String),
    #[prost(string, tag = "7")]
    Services(String),
}

#[derive(Clone, PartialEq, Message)]
struct Extension {
    #[prost(string, tag = "1")]
    containing_type: String,
    #[prost(int32, tag = "2")]
    number: i32,
}

/// The response to one request.
#[derive(Clone, PartialEq, Message)]
struct ReflectionAnswer {
    #[prost(string, tag = "1")]
    valid_host: String,
    #[prost(message, optional, tag = "2")]
    original: Option<ReflectionRequest>,
    #[prost(oneof = "MessageResponse", tags = "4, 6, 7")]
    found: Option<MessageResponse>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum MessageResponse {
    #[prost(message, tag = "4")]
    Files(Files),
    #[prost(message, tag = "6")]
    Services(Services),
    #[prost(message, tag = "7")]
    Nothing(Nothing),
}

/// Encoded `FileDescriptorProto`s.
#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct Services {
    #[prost(message, repeated, tag = "1")]
    services: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// The set of files, read file by file.
#[derive(Clone, PartialEq, Message)]
struct FileSet {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

/// The services of a port and their descriptors.
#[derive(Clone, Debug)]
struct Lookup {
    /// The services of the port, by name.
    services: Arc<[&'static str]>,
    turns: Arc<Semaphore>,
}

/// The service `grpc.reflection.v1.ServerReflection`.
#[derive(Clone, Debug)]
pub struct ReflectionV1(Lookup);

/// The same service under its earlier name, `grpc.reflection.v1alpha.ServerReflection`.
#[derive(Clone, Debug)]
pub struct ReflectionV1Alpha(Lookup);

/// Both versions, for a port with the services of these full names; they list themselves, too.
/// Requests of all their streams are answered one after another.
pub fn reflection(
    services: impl IntoIterator<Item = &'static str>,
) -> (ReflectionV1, ReflectionV1Alpha) {
    let own = [ReflectionV1::NAME, ReflectionV1Alpha::NAME];
    let mut services: Vec<_> = services.into_iter().chain(own).collect();
    services.sort_unstable();
    let lookup = Lookup {
        services: services.into(),
        turns: Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)),
    };
    (ReflectionV1(lookup.clone()), ReflectionV1Alpha(lookup))
}

impl NamedService for ReflectionV1 {
    const NAME: &'static str = "grpc.reflection.v1.ServerReflection";
}

impl NamedService for ReflectionV1Alpha {
    const NAME: &'static str = "grpc.reflection.v1alpha.ServerReflection";
}

impl Lookup {
    /// Answers one request, when a permit is free.
    async fn answer(&self, question: ReflectionRequest) -> Result<ReflectionAnswer, Status> {
        let turn = self
            .turns
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| Status::unavailable("the server is going away"))?;

        let services = self.services.clone();
        let found = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            (find(&services, question.message.as_ref()), question)
        });
        let (found, question) = found
            .await
            .map_err(|error| Status::internal(error.to_string()))?;

        Ok(ReflectionAnswer {
            valid_host: question.host.clone(),
            original: Some(question),
            found: Some(found),
        })
    }

    /// Answers the requests of a stream.
    async fn call(self, request: Request<Body>) -> Response<Body> {
        Grpc::new(ProstCodec::default())
            .apply_max_message_size_config(Some(MAX_REQUEST), None)
            .streaming(self, request)
            .await
    }
}

impl StreamingService<ReflectionRequest> for Lookup {
    type Response = ReflectionAnswer;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<ReflectionAnswer, Status>> + Send>>;
    type Future = std::future::Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<ReflectionRequest>>) -> Self::Future {
        let lookup = self.clone();
        let answers = request.into_inner().then(move |question| {
            let lookup = lookup.clone();
            async move { lookup.answer(question?).await }
        });
        std::future::ready(Ok(tonic::Response::new(Box::pin(answers))))
    }
}

/// Computes the response of a request.
fn find(services: &[&'static str], message: Option<&MessageRequest>) -> MessageResponse {
    match message {
        Some(MessageRequest::Services(_)) => {
            let services = services
                .iter()
                .map(|name| Named {
                    name: (*name).to_owned(),
                })
                .collect();
            MessageResponse::Services(Services { services })
        }
        Some(MessageRequest::File(name)) => file(name, |file| file.name() == name),
        Some(MessageRequest::Symbol(symbol)) => file(symbol, |file| declares(file, symbol)),
        Some(
            MessageRequest::Extension(Extension {
                containing_type, ..
            })
            | MessageRequest::ExtensionsOf(containing_type),
        ) => nothing(
            Code::NotFound,
            format!("{containing_type} has no extensions"),
        ),
        None => nothing(Code::InvalidArgument, "the request is empty".to_owned()),
    }
}

/// The first matching file.
fn file(wanted: &str, fits: impl Fn(&FileDescriptorProto) -> bool) -> MessageResponse {
    let set = FileSet::decode(Bytes::from_static(DESCRIPTORS)).unwrap_or_default();
    let is_it =
        |bytes: &Bytes| FileDescriptorProto::decode(bytes.clone()).is_ok_and(|file| fits(&file));
    match set.files.into_iter().find(is_it) {
        Some(file) => MessageResponse::Files(Files { files: vec![file] }),
        None => nothing(Code::NotFound, format!("{wanted:?} not found")),
    }
}

fn nothing(code: Code, message: String) -> MessageResponse {
    MessageResponse::Nothing(Nothing {
        code: code.into(),
        message,
    })
}

/// Whether a file declares something of this full name.
fn declares(file: &FileDescriptorProto, symbol: &str) -> bool {
    let package = file.package();
    let within = match package {
        "" => Some(symbol),
        _ => symbol
            .strip_prefix(package)
            .and_then(|rest| rest.strip_prefix('.')),
    };

    let Some(within) = within else { return false };
    let is_service = file.service.iter().any(|service| {
        let rest = within.strip_prefix(service.name());
        rest.is_some_and(|rest| {
            rest.is_empty()
                || rest
                    .strip_prefix('.')
                    .is_some_and(|method| service.method.iter().any(|one| one.name() == method))
        })
    });

    is_service
        || file.enum_type.iter().any(|one| one.name() == within)
        || file.message_type.iter().any(|one| has_message(one, within))
}

/// Whether a message, or one inside it, has this name.
fn has_message(message: &DescriptorProto, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(message.name()) else {
        return false;
    };
    let Some(inner) = rest.strip_prefix('.') else {
        return rest.is_empty();
    };
    message
        .nested_type
        .iter()
        .any(|one| has_message(one, inner))
        || message.enum_type.iter().any(|one| one.name() == inner)
}

/// Implements a service with its lookup.
macro_rules! service {
    ($name:ident) => {
        impl Service<Request<Body>> for $name {
            type Response = Response<Body>;
            type Error = Infallible;
            type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: Request<Body>) -> Self::Future {
                let lookup = self.0.clone();
                Box::pin(async move { Ok(Lookup::call(lookup, request).await) })
            }
        }
    };
}

service!(ReflectionV1);
service!(ReflectionV1Alpha);

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(found: &MessageResponse) -> Option<String> {
        match found {
            MessageResponse::Files(files) => files.files.first().map(|file| {
                FileDescriptorProto::decode(file.clone())
                    .unwrap()
                    .name()
                    .to_owned()
            }),
            MessageResponse::Services(_) | MessageResponse::Nothing(_) => None,
        }
    }

    #[test]
    fn proto_files_are_found_by_name_and_by_symbol() {
        let find = |request: MessageRequest| find(&["b", "a"], Some(&request));
        let ads = "envoy/service/discovery/v3/ads.proto";

        for symbol in [
            "envoy.service.discovery.v3.AggregatedDiscoveryService",
            "envoy.service.discovery.v3.AggregatedDiscoveryService.StreamAggregatedResources",
        ] {
            assert_eq!(
                name_of(&find(MessageRequest::Symbol(symbol.to_owned()))).as_deref(),
                Some(ads),
                "{symbol}"
            );
        }

        let nested = find(MessageRequest::Symbol(
            "envoy.config.cluster.v3.Cluster.DiscoveryType".to_owned(),
        ));
        assert_eq!(
            name_of(&nested).as_deref(),
            Some("envoy/config/cluster/v3/cluster.proto")
        );
        assert_eq!(
            name_of(&find(MessageRequest::File(ads.to_owned()))).as_deref(),
            Some(ads)
        );

        for unknown in [
            "envoy.service.discovery.v3.Aggregated",
            "nobody",
            "envoy.config.cluster.v3.Cluster.",
        ] {
            assert!(
                matches!(
                    find(MessageRequest::Symbol(unknown.to_owned())),
                    MessageResponse::Nothing(_)
                ),
                "{unknown}"
            );
        }

        let MessageResponse::Services(listed) = find(MessageRequest::Services(String::new()))
        else {
            panic!("no list")
        };

        assert_eq!(listed.services.len(), 2);
    }
}
