//! The task of one stream: transfers requests, updates and responses. All decisions are made in its
//! session.

mod debug_responses;
mod learning;
mod name_charges;
mod rejections;
mod requests;
mod responses;
mod rights;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::time::{Instant, timeout};
use tonic::{Code, Status};
use tracing::{debug, info, warn};

use self::debug_responses::DebugResponses;
use self::learning::Unlearned;
use self::name_charges::ChargesOfType;
use crate::client::Client;
use crate::connections::{Connection, after};
use crate::metrics::RejectLabel;
use crate::node;
use crate::route_form;
use crate::scope_form;
use crate::server::Core;
use crate::session::diff::Versions;
use crate::session::discovery_request::{Protocol, Wire, sender};
use crate::session::mailbox::{Mailbox, Updates};
use crate::session::withheld::RETRY_PAUSE;
use crate::session::{Bounds, MAX_WATCHED, Marks, Session};
use crate::transport::grpc_reader::Requests;
use crate::transport::grpc_writer::Outbox;
use crate::workloads::Presence;
use navarch_api::identity::Caller;
use navarch_net::budget::Charge;
use navarch_push::engine::ProxyId;
use navarch_push::proxy::Proxy;
use navarch_push::resource::ResourceType;
use navarch_push::worker::Ended;

/// The origin of a stream.
#[derive(Debug)]
pub(super) struct Origin {
    /// The client's address, if the transport provides it.
    pub(super) peer: Option<SocketAddr>,
    /// The authenticated identity of the client, if clients are authenticated.
    pub(super) caller: Option<Caller>,
    /// When the client's credential expires.
    pub(super) expires: Option<Timestamp>,
    pub(super) client: Client,
    /// Whether responses have the versions of resources.
    pub(super) versions: Versions,
    /// The memory charge of the stream.
    pub(super) paid: Charge,
}

/// A stream whose client has sent its node. Dropping it removes the proxy everywhere.
struct Stream {
    core: Arc<Core>,
    /// The state that debug pages read.
    connection: Arc<Connection>,
    /// A buffer of updates from the mailbox; empty between uses, reused for its capacity.
    updates: Updates,
    /// The session's start.
    begun: Instant,
    /// The proxy's version label in metrics.
    version: Arc<str>,
    /// Metrics of this proxy's rejections: the last of each type.
    rejections: BTreeMap<ResourceType, RejectLabel>,
    /// When a rejection was logged last.
    logged: Option<Instant>,
    client: Client,
    /// The memory charge of the stream, its node, and names of resources that it may not have.
    paid: Charge,
    /// The bytes of these names.
    uncertain: usize,
    /// The memory charges of names.
    names: BTreeMap<ResourceType, ChargesOfType>,
    /// The subscription to the access of the proxy's service account, while it matters.
    access: Option<Arc<()>>,
    /// Listener for the health of the proxy's workload, if any.
    presence: Option<Box<dyn Presence>>,
    /// When the push of the oldest change that is not fully sent completed.
    changed: Option<Instant>,
    /// Size of the largest request that is not fully answered.
    largest_request: usize,
    /// Responses to requests of operators' tools.
    answers: DebugResponses,
    /// Clusters that the client has requested, and that its workload has not learned yet.
    unlearned: Unlearned,
}

/// Runs a stream to its end.
pub(super) async fn run<M: Wire>(
    core: Arc<Core>,
    requests: Requests<M>,
    mut outbox: Outbox,
    origin: Origin,
) {
    let status = match serve(&core, requests, &mut outbox, origin).await {
        Ok(()) => Status::ok(""),
        Err(status) => {
            // Clients often disconnect without closing the stream, which is no error.
            if matches!(
                status.code(),
                Code::Internal | Code::DataLoss | Code::OutOfRange
            ) {
                core.metrics.failed();
                warn!(%status, "stream failed");
            }
            status
        }
    };
    outbox.end(&status);
}

/// Waits for the first request with the client's node, and runs the stream.
async fn serve<M: Wire>(
    core: &Arc<Core>,
    mut requests: Requests<M>,
    outbox: &mut Outbox,
    mut origin: Origin,
) -> Result<(), Status> {
    let first = tokio::select! {
        biased;
        () = core.drain.cancelled() => return Err(shutdown_status()),
        first = timeout(
            core.limits.first_request,
            first_request(core, &mut requests),
        ) => first.map_err(|_| {
            origin.client.count_rejection("first_request_timeout");
            Status::deadline_exceeded("timed out waiting for the first request")
        })??,
    };

    let Some(mut first) = first else {
        return Ok(());
    };

    let node = sender(&mut *first)?;

    // As JSON it takes a multiple of its size on the wire.
    origin
        .client
        .charge(&mut origin.paid, 4 * node.encoded_len())?;
    let takes_virtual_hosts = route_form::takes_virtual_hosts(&node);
    let takes_clusters = scope_form::takes_clusters(&node);
    let mut proxy = node::proxy(node, origin.caller.as_ref(), core.served)?;
    proxy.uses_delta = M::PROTOCOL == Protocol::Delta;
    let address = origin.peer.map(|peer| peer.ip().to_canonical());
    let settled = async {
        let is_learned = scope_form::is_wanted(&proxy, takes_clusters, &core.push.context());
        let takes_virtual_hosts = takes_virtual_hosts && !is_learned;
        let proxy = route_form::settle(proxy, takes_virtual_hosts, address, &core.push).await?;
        let context = core.push.context();
        Ok::<_, Ended>(scope_form::settle(
            proxy,
            is_learned,
            &context.mesh.settings,
        ))
    };
    let proxy = tokio::select! {
        biased;
        () = core.drain.cancelled() => return Err(shutdown_status()),
        () = outbox.reset() => return Ok(()),
        proxy = settled => proxy.map_err(push_ended)?,
    };

    let proxy = Arc::new(proxy);
    let mailbox = Arc::new(Mailbox::default());
    let proxy_id = core
        .push
        .connect(proxy.clone(), address, mailbox.clone())
        .await
        .map_err(push_ended)?;
    let expires = origin.expires.and_then(|expires| core.instant_of(expires));
    let mut stream = Stream::new(core, M::PROTOCOL, proxy, proxy_id, mailbox, origin);

    tokio::select! {
        biased;
        () = at(expires) => {
            debug!(proxy = %stream.connection.id, "the client's credential has expired");
            Err(Status::unauthenticated("the client's certificate or token has expired; connect again with a new one"))
        }
        ended = stream.register_and_talk(first, requests, outbox) => ended,
    }
}

/// Waits until a time, or forever if it is `None`.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The first request other than health reports.
async fn first_request<M: Wire>(
    core: &Core,
    requests: &mut Requests<M>,
) -> Result<Option<Box<M>>, Status> {
    loop {
        let Some(request) = requests.message().await? else {
            return Ok(None);
        };
        core.metrics.received(requests.length());
        if !request.is_health() {
            return Ok(Some(request));
        }
    }
}

impl Stream {
    /// Registers the stream.
    fn new(
        core: &Arc<Core>,
        protocol: Protocol,
        proxy: Arc<Proxy>,
        proxy_id: ProxyId,
        mailbox: Arc<Mailbox>,
        origin: Origin,
    ) -> Self {
        let Origin {
            peer,
            caller: _,
            expires: _,
            client,
            versions,
            paid,
        } = origin;

        let number = core.next_number();
        let begun = Instant::now();
        let id: Arc<str> = format!("{}-{number}", proxy.name).into();
        let version = core
            .metrics
            .connected(&proxy.meta("ISTIO_VERSION").unwrap_or_default());
        let names = if proxy.identity.is_some() {
            MAX_WATCHED
        } else {
            core.limits.unproved_names.min(MAX_WATCHED)
        };

        let bounds = Bounds {
            names,
            history: core.limits.push_history,
            keeps_clusters: proxy.has_learned_scope,
            versions,
            retry_pause: RETRY_PAUSE,
        };
        let marks = Marks {
            started: core.started_text.clone(),
            stream: number,
            count: 0,
        };

        let connection = Arc::new(Connection {
            id,
            number,
            peer,
            since: after(core.started, begun.saturating_duration_since(core.begun)),
            begun,
            protocol,
            proxy,
            proxy_id,
            session: Mutex::new(Session::new(protocol, marks, bounds)),
            mailbox,
        });

        core.connections.add(connection.clone());
        if core.drain.is_cancelled() {
            connection.mailbox.close();
        }

        info!(proxy = %connection.id, peer = ?peer, ?protocol, kind = node::kind_name(connection.proxy.kind), "connected");
        Self {
            core: core.clone(),
            connection,
            updates: Updates::new(),
            begun,
            version,
            rejections: BTreeMap::new(),
            logged: None,
            client,
            paid,
            uncertain: 0,
            names: BTreeMap::new(),
            access: None,
            presence: None,
            changed: None,
            largest_request: 0,
            answers: DebugResponses::default(),
            unlearned: Unlearned::default(),
        }
    }

    /// Applies the first request and runs the stream until either side ends it.
    async fn register_and_talk<M: Wire>(
        &mut self,
        first: Box<M>,
        requests: Requests<M>,
        outbox: &mut Outbox,
    ) -> Result<(), Status> {
        self.register_workload().await?;
        self.on_request(first, requests.length()).await?;
        let ended = self.talk(requests, outbox).await;

        // A client that lives for less than a second teaches its workload, too.
        let learned = self.learn().await;
        ended.and(learned)
    }

    /// Registers the proxy's workload, if auto-registration is enabled.
    async fn register_workload(&mut self) -> Result<(), Status> {
        let Some(workloads) = &self.core.workloads else {
            return Ok(());
        };
        let connection = &self.connection;
        let admittance = workloads.connect(&connection.proxy, connection.since);
        self.presence = tokio::select! {
            biased;
            () = connection.mailbox.closed() => return Err(shutdown_status()),
            presence = admittance => presence?,
        };
        Ok(())
    }

    /// Transfers requests, updates and responses until either side ends the stream.
    ///
    /// Updates and requests go first: a client may be waiting for an answer, and they are cheap.
    /// Responses are built only when the stream can send.
    #[tracing::instrument(skip_all, level = "debug", fields(proxy = %self.connection.id))]
    async fn talk<M: Wire>(
        &mut self,
        mut requests: Requests<M>,
        outbox: &mut Outbox,
    ) -> Result<(), Status> {
        let connection = self.connection.clone();
        let mut may_send = true;
        let mut waiting = Instant::now();
        let mut wake: Option<Instant> = None;

        loop {
            let is_busy = tokio::select! {
                biased;
                is_open = connection.mailbox.wait() => {
                    if !is_open {
                        return Err(shutdown_status());
                    }
                    self.on_update().await?;
                    true
                }
                request = requests.message() => {
                    let Some(request) = request? else { return Ok(()) };
                    self.core.metrics.received(requests.length());
                    self.on_request(request, requests.length()).await?;
                    !self.is_at_rest()
                }
                has_room = outbox.room(), if may_send => {
                    if !has_room {
                        return Ok(());
                    }

                    self.core.metrics.waited(waiting.elapsed());
                    let turn = self.client.acquire_large(self.largest_request).await;
                    (may_send, wake) = match self.next(turn, outbox.encoding()).await? {
                        Some(message) => {
                            outbox.send(message);
                            (!self.is_at_rest(), None)
                        }
                        None => (false, self.wake_at()),
                    };

                    waiting = Instant::now();
                    continue;
                }
                () = tokio::time::sleep_until(wake.unwrap_or(waiting)), if wake.is_some() => {
                    wake = None;
                    true
                }
                () = at(self.unlearned.due()) => {
                    self.learn().await?;
                    continue;
                }
            };

            if is_busy && !may_send {
                waiting = Instant::now();
            }

            may_send = is_busy;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.core.push.disconnect(self.connection.proxy_id);
        self.core.connections.remove(self.connection.number);
        self.core.metrics.disconnected(&self.version);
        for (resource_type, label) in &self.rejections {
            self.core.metrics.forget(*resource_type, label);
        }
        info!(proxy = %self.connection.id, "disconnected");
    }
}

/// The status of streams at shutdown.
fn shutdown_status() -> Status {
    Status::unavailable("the server is going away; connect again")
}

/// The status of streams when the push thread has stopped.
fn push_ended(_: Ended) -> Status {
    Status::unavailable("the server is going away")
}
