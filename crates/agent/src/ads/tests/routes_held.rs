//! What the agent adds to the first request of a stream: the routes that Envoy has.

use navarch_base::routes_held::NODE_KEY;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::config::route::v3::RouteConfiguration;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

use super::*;
use crate::ads::routes::tests::{response, routes};

const VIRTUAL_HOST: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

fn text(text: &str) -> Value {
    Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    }
}

/// Takes what a request says of routes; its node is then as Envoy sent it.
pub(super) fn said_in(request: &mut DeltaDiscoveryRequest) -> String {
    let node = request.node.as_mut().unwrap();
    let metadata = node.metadata.as_mut().unwrap();
    let said = metadata.fields.remove(NODE_KEY).unwrap().kind;
    if metadata.fields.is_empty() {
        node.metadata = None;
    }
    if *node == Node::default() {
        request.node = None;
    }
    match said {
        Some(Kind::StringValue(said)) => said,
        other => panic!("{other:?}"),
    }
}

/// Opens a stream; returns what its first request says, and checks that nothing else differs.
async fn open(world: &mut World, request: DeltaDiscoveryRequest) -> (String, DeltaStream) {
    let mut stream = world.open_delta(request.clone()).await;
    let said = said_in(&mut stream.first);
    assert_eq!(stream.first, request);
    (said, stream)
}

/// The first request of an Envoy that comes back with a cluster.
fn returning() -> DeltaDiscoveryRequest {
    let fields = BTreeMap::from([("NAMESPACE".to_owned(), text("shop"))]);
    let node = Node {
        id: "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local".to_owned(),
        metadata: Some(Struct { fields }),
        ..Node::default()
    };
    DeltaDiscoveryRequest {
        node: Some(node),
        initial_resource_versions: [("cluster".to_owned(), "1".to_owned())].into(),
        ..ask_delta(CLUSTER)
    }
}

/// Sends routes to Envoy, and waits until it has them.
async fn send_routes(stream: &mut DeltaStream, table: RouteConfiguration) {
    let response = response(vec![table]);
    stream
        .visit
        .answers
        .send(Ok(response.clone()))
        .await
        .unwrap();
    assert_eq!(stream.answers.message().await.unwrap().unwrap(), response);
}

#[tokio::test]
async fn the_first_request_says_which_routes_envoy_has() {
    let mut world = world().await;
    let (said, mut stream) = open(&mut world, ask_delta(CLUSTER)).await;
    assert_eq!(said, "nothing");
    send_routes(&mut stream, routes(&["a.example"], false)).await;
    drop(stream);

    let (said, mut stream) = open(&mut world, returning()).await;
    assert_eq!(said, "whole");
    send_routes(&mut stream, routes(&["*"], true)).await;
    drop(stream);

    // A control plane that does not send virtual hosts replaces the tables. Envoy subscribes to
    // virtual hosts on this stream, and on later ones, nevertheless.
    let (said, mut stream) = open(&mut world, returning()).await;
    assert_eq!(said, "virtual-hosts");
    stream.asks.send(ask_delta(VIRTUAL_HOST)).await.unwrap();
    let request = stream.visit.next_request().await;
    assert_eq!(request, ask_delta(VIRTUAL_HOST), "later requests pass");
    send_routes(&mut stream, routes(&["a.example", "*"], false)).await;
    drop(stream);

    let (said, _stream) = open(&mut world, returning()).await;
    assert_eq!(said, "whole");
    world.stop.cancel();
}

#[tokio::test]
async fn an_envoy_of_an_earlier_agent_has_whole_routes() {
    let mut world = world().await;
    let (said, _stream) = open(&mut world, returning()).await;
    assert_eq!(said, "whole");
    world.stop.cancel();
}
