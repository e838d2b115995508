//! Network filters, for connections that are not parsed as HTTP.

use std::collections::BTreeMap;

use navarch_proto::any::pack;
use navarch_proto::envoy::config::listener::v3::{Filter, filter};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::mongo_proxy::v3::MongoProxy;
use navarch_proto::envoy::extensions::filters::network::mysql_proxy::v3::MySqlProxy;
use navarch_proto::envoy::extensions::filters::network::redis_proxy::v3::RedisProxy;
use navarch_proto::envoy::extensions::filters::network::redis_proxy::v3::redis_proxy::{
    ConnPoolSettings, PrefixRoutes, prefix_routes,
};
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy};
use prost::{Message, Name};
use prost_types::Any;

use super::http::{add_labels, bool_value, text, typed_struct};
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;

/// The configuration type of the metadata exchange over TCP.
const METADATA_EXCHANGE_TYPE: &str =
    "type.googleapis.com/envoy.tcp.metadataexchange.config.MetadataExchange";

/// The filters of protocols.
const MONGO: &str = "envoy.filters.network.mongo_proxy";
const MYSQL: &str = "envoy.filters.network.mysql_proxy";
const REDIS: &str = "envoy.filters.network.redis_proxy";
/// Timeout of one Redis operation.
const REDIS_TIMEOUT: prost_types::Duration = prost_types::Duration {
    seconds: 5,
    nanos: 0,
};

/// A filter with this name and configuration.
#[must_use]
pub fn network_filter<M: Message + Name>(name: &str, config: &M) -> Filter {
    packed_network_filter(name, pack(config))
}

/// A filter with this name and packed configuration.
#[must_use]
pub fn packed_network_filter(name: &str, config: Any) -> Filter {
    Filter {
        name: name.to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(config)),
    }
}

/// The HTTP connection manager as a network filter.
#[must_use]
pub fn http_filter(manager: &HttpConnectionManager) -> Filter {
    network_filter("envoy.filters.network.http_connection_manager", manager)
}

/// The TCP proxy as a network filter.
#[must_use]
pub fn tcp_filter(proxy: &TcpProxy) -> Filter {
    network_filter("envoy.filters.network.tcp_proxy", proxy)
}

/// Sends all connections to `cluster`. Its other settings have Envoy's defaults.
#[must_use]
pub fn tcp_proxy(stat_prefix: &str, cluster: &str) -> TcpProxy {
    TcpProxy {
        stat_prefix: stat_prefix.to_owned(),
        cluster_specifier: Some(tcp_proxy::ClusterSpecifier::Cluster(cluster.to_owned())),
        ..TcpProxy::default()
    }
}

/// Istio's exchange of peer metadata over TCP. `None` if disabled or if the proxy does not support
/// it.
#[must_use]
pub fn metadata_exchange(view: &View<'_>) -> Option<Filter> {
    let settings = &view.mesh().settings;
    if !settings.metadata_exchange
        || !view
            .proxy()
            .supports("envoy.filters.network.metadata_exchange")
    {
        return None;
    }
    let mut fields = BTreeMap::from([
        ("protocol".to_owned(), text("istio-peer-exchange")),
        ("enable_discovery".to_owned(), bool_value(true)),
    ]);
    add_labels(&mut fields, &settings.metadata_exchange_labels);
    Some(packed_network_filter(
        "istio.metadata_exchange",
        typed_struct(METADATA_EXCHANGE_TYPE, fields),
    ))
}

/// The last filters of a chain of this protocol: those of the protocol, and the TCP proxy unless
/// they are terminal.
#[must_use]
pub fn protocol_stack(
    view: &View<'_>,
    protocol: Protocol,
    proxy: &TcpProxy,
    stat_prefix: &str,
    cluster: &str,
) -> Vec<Filter> {
    let settings = &view.mesh().settings;
    let tcp = tcp_filter(proxy);

    match protocol {
        Protocol::Mongo if settings.mongo_filter && can_parse(view, MONGO) => {
            vec![mongo(stat_prefix), tcp]
        }
        Protocol::Redis if settings.redis_filter && can_parse(view, REDIS) => {
            vec![redis(stat_prefix, cluster)]
        }
        Protocol::MySql if settings.mysql_filter && can_parse(view, MYSQL) => {
            vec![mysql(stat_prefix), tcp]
        }
        Protocol::Http
        | Protocol::Http2
        | Protocol::Https
        | Protocol::Grpc
        | Protocol::GrpcWeb
        | Protocol::HttpProxy
        | Protocol::Tcp
        | Protocol::Tls
        | Protocol::Udp
        | Protocol::Mongo
        | Protocol::Redis
        | Protocol::MySql
        | Protocol::Unsupported => vec![tcp],
    }
}

/// Whether the proxy has the filter of a protocol: a stock Envoy has none for MySQL, and would
/// reject the listener.
fn can_parse(view: &View<'_>, filter: &str) -> bool {
    let can = view.proxy().supports(filter);
    if !can {
        view.remark(format!(
            "this Envoy lacks {filter}: ports of its protocol are handled as TCP"
        ));
    }
    can
}

/// Counts MongoDB operations.
fn mongo(stat_prefix: &str) -> Filter {
    let config = MongoProxy {
        stat_prefix: stat_prefix.to_owned(),
        ..MongoProxy::default()
    };
    network_filter(MONGO, &config)
}

/// Counts MySQL queries.
fn mysql(stat_prefix: &str) -> Filter {
    let config = MySqlProxy {
        stat_prefix: stat_prefix.to_owned(),
        ..MySqlProxy::default()
    };
    network_filter(MYSQL, &config)
}

/// The Redis proxy.
fn redis(stat_prefix: &str, cluster: &str) -> Filter {
    let catch_all = prefix_routes::Route {
        cluster: cluster.to_owned(),
        ..prefix_routes::Route::default()
    };
    let config = RedisProxy {
        stat_prefix: stat_prefix.to_owned(),
        latency_in_micros: true,
        settings: Some(ConnPoolSettings {
            op_timeout: Some(REDIS_TIMEOUT),
            ..ConnPoolSettings::default()
        }),
        prefix_routes: Some(PrefixRoutes {
            catch_all_route: Some(catch_all),
            ..PrefixRoutes::default()
        }),
        ..RedisProxy::default()
    };

    network_filter(REDIS, &config)
}
