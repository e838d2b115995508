//! The lifetime of connections: keepalive, maximum age, and bytes that are not HTTP/2.

use std::time::Duration;

use http::uri::PathAndQuery;
use navarch_net::port::Port;
use navarch_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::StreamExt;
use tonic::{Code, Request};

use super::bench::*;
use crate::Limits;
use crate::transport::{ConnectionInfo, plain_connections};

/// The HTTP/2 preface, and empty settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The frame type PING.
const PING: u8 = 6;
/// The frame type GOAWAY.
const GOAWAY: u8 = 7;

/// The types of the frames that a server sends until it closes the connection.
async fn frames_until_the_end(mut stream: TcpStream) -> Vec<u8> {
    let mut types = Vec::new();
    let mut head = [0; 9];
    while soon(stream.read_exact(&mut head)).await.is_ok() {
        types.push(head[3]);
        let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if soon(stream.read_exact(&mut body)).await.is_err() {
            break;
        }
    }
    types
}

async fn says(mesh: &Mesh, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(mesh.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

#[test]
fn a_client_without_ping_acks_is_disconnected() {
    run(async {
        let [keepalive_interval, keepalive_timeout] = [50, 100].map(Duration::from_millis);
        let limits = Limits {
            keepalive_interval,
            keepalive_timeout,
            ..Limits::default()
        };
        let mesh = Mesh::with_limits(&[], limits).await;
        // The client reads, but does not respond to PINGs.
        let stream = says(&mesh, HELLO).await;
        assert!(frames_until_the_end(stream).await.contains(&PING));
    });
}

#[test]
fn an_incomplete_handshake_times_out() {
    run(async {
        let mesh = Mesh::new(&[]).await;
        frames_until_the_end(says(&mesh, &HELLO[..10]).await).await;
    });
}

#[test]
fn a_client_with_ping_acks_stays_connected() {
    run(async {
        let limits = Limits {
            keepalive_interval: Duration::from_millis(20),
            ..Limits::default()
        };
        let mesh = Mesh::with_limits(&[(LDS, "a", body("1"))], limits).await;
        let mut client = mesh.delta().await;
        client.subscribe(LDS, &[]).await;
        client.take().await.is(LDS, &["a=1"], &[]);
        tokio::time::sleep(Duration::from_millis(500)).await;
        mesh.edit(&[(LDS, "a", body("2"))]).await;
        client.take().await.is(LDS, &["a=2"], &[]);
    });
}

#[test]
fn connections_over_the_maximum_age_get_goaway_and_then_end() {
    run(async {
        let [age, grace] = [50, 100].map(Duration::from_millis);
        let limits = Limits {
            max_age: Some(age),
            max_age_grace: grace,
            ..Limits::default()
        };
        let mesh = Mesh::with_limits(&[(LDS, "a", body("1"))], limits).await;
        // The client sends no messages, so only the maximum age closes the connection.
        let stream = says(&mesh, HELLO).await;
        assert!(frames_until_the_end(stream).await.contains(&GOAWAY));
    });
}

/// A client whose credential expires soon.
#[derive(Clone)]
struct Expiring;

impl ConnectionInfo for Expiring {
    fn expires_in(&self) -> Option<Duration> {
        Some(Duration::from_millis(50))
    }
}

#[test]
fn connections_with_expired_credentials_get_goaway() {
    run(async {
        let limits = Limits {
            max_age: None,
            max_age_grace: Duration::from_millis(100),
            ..Limits::default()
        };
        let mesh = Mesh::with_limits(&[], limits).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = mesh.ads.plain_server("secure-grpc");
        let incoming = plain_connections(listener, Port::unlimited("test"))
            .map(|(stream, _)| (stream, Expiring));
        tokio::task::spawn_local(server.serve(incoming, std::future::pending()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(HELLO).await.unwrap();
        assert!(frames_until_the_end(stream).await.contains(&GOAWAY));
    });
}

#[test]
fn unsupported_http_requests_get_an_error_status() {
    run(async {
        let mesh = Mesh::new(&[]).await;
        for path in [
            "/no.such.Service/Method",
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/NoMethod",
            "/",
        ] {
            let mut client = tonic::client::Grpc::new(mesh.channel());
            client.ready().await.unwrap();
            let codec = tonic_prost::ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
            let request = Request::new(DiscoveryRequest::default());
            let answer = soon(client.unary(request, PathAndQuery::from_static(path), codec)).await;
            assert_eq!(answer.unwrap_err().code(), Code::Unimplemented, "{path}");
        }
    });
}

#[test]
fn a_non_http2_client_ends_only_its_own_connection() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(LDS, &[]).await;
        client.take().await.is(LDS, &["a=1"], &[]);

        // Another protocol, a frame above the maximum size, DATA on a stream that is not open,
        // invalid HEADERS.
        let large = [HELLO, b"\xff\xff\xff\0\0\0\0\0\x01"].concat();
        let unopened = [HELLO, b"\0\0\x01\0\0\0\0\0\x01x"].concat();
        let no_headers = [HELLO, b"\0\0\x02\x01\x05\0\0\0\x01\xff\xff"].concat();

        for garbage in [
            b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".as_slice(),
            &large,
            &unopened,
            &no_headers,
        ] {
            frames_until_the_end(says(&mesh, garbage).await).await;
        }

        mesh.edit(&[(LDS, "a", body("2"))]).await;
        client.take().await.is(LDS, &["a=2"], &[]);
    });
}
