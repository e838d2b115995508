//! A minimal Kubernetes API server in this process, which serves any number of objects that it
//! computes when they are read, and events as fast as the control plane reads them.
//!
//! A real API server with etcd cannot write thousands of objects a second on the cores of the
//! server that is measured, nor hold a million pods there. Of the API it has what Navarch's sources
//! ask for: watches that begin with all objects (streaming lists), bookmarks, and nothing else. It
//! has no history: a watch that breaks cannot be resumed, and writes are rejected, so that no
//! controller of the control plane becomes a leader. Plain HTTP/1.1 on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinHandle;
use tokio::time::interval;

use super::kubernetes::{Form, PROTOBUF};

/// Interval of bookmarks. Clients take a watch for dead that is silent for longer than a minute.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(45);
/// Maximum size of a request's header.
const MAX_HEADER: u64 = 64 << 10;
/// Maximum size of a request's body, which is discarded.
const MAX_BODY: u64 = 16 << 20;
/// Events are written in chunks of about this size.
const CHUNK: usize = 64 << 10;

/// The objects of one collection, as events in the form in which they are served.
pub(super) struct Listing<'a> {
    pub(super) form: Form,
    pub(super) events: Box<dyn Iterator<Item = Vec<u8>> + Send + 'a>,
}

/// The objects that the server has at its start.
pub(super) trait World: Send + Sync + 'static {
    /// The objects of a collection, by its path; `None` if there are none.
    fn listing(&self, path: &str) -> Option<Listing<'_>>;
}

/// The server. Dropping it closes its port, but not its connections.
pub(super) struct Api {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Api {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The state of the server that its connections share.
struct Shared {
    world: Box<dyn World>,
    /// The open watches, by their paths.
    watches: Mutex<Vec<(String, Arc<Watch>)>>,
    /// The version of the newest event.
    version: AtomicU64,
}

/// An open watch.
struct Watch {
    form: Form,
    socket: AsyncMutex<OwnedWriteHalf>,
}

impl Watch {
    /// Writes events. Waits while the client does not read.
    ///
    /// # Errors
    /// If the client has closed the connection.
    async fn send(&self, events: &[u8]) -> Result<()> {
        let mut chunk = format!("{:x}\r\n", events.len()).into_bytes();
        chunk.extend_from_slice(events);
        chunk.extend_from_slice(b"\r\n");
        let mut socket = self.socket.lock().await;
        socket
            .write_all(&chunk)
            .await
            .context("the control plane closed a watch")
    }
}

impl Api {
    /// Starts the server on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If there is no free port.
    pub(super) async fn start(world: impl World) -> Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            world: Box::new(world),
            watches: Mutex::default(),
            version: AtomicU64::new(1),
        });

        let accepting = tokio::spawn(accept(listener, shared.clone()));
        let marking = tokio::spawn(send_bookmarks(shared.clone()));
        Ok(Self {
            address,
            shared,
            tasks: [accepting, marking],
        })
    }

    /// A kubeconfig with this server. JSON is YAML.
    pub(super) fn kubeconfig(&self) -> String {
        let server = format!("http://{}", self.address);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "scale",
            "clusters": [{ "name": "scale", "cluster": { "server": server } }],
            "users": [{ "name": "scale", "user": {} }],
            "contexts": [{ "name": "scale", "context": { "cluster": "scale", "user": "scale" } }],
        })
        .to_string()
    }

    /// Writes events to the watches of a collection that have received all its objects. They are in
    /// the form in which the objects are served. Waits while the clients do not read.
    ///
    /// # Errors
    /// If there is no watch, or the client has closed it.
    pub(super) async fn send(&self, path: &str, events: &[u8]) -> Result<()> {
        let watches: Vec<Arc<Watch>> = {
            let watches = self.shared.watches.lock();
            let of_path = watches.iter().filter(|(of, _)| of == path);
            of_path.map(|(_, watch)| watch.clone()).collect()
        };
        ensure!(!watches.is_empty(), "the control plane watches no {path}");
        for watch in watches {
            watch.send(events).await?;
        }
        Ok(())
    }

    /// The version of the next event.
    pub(super) fn next_version(&self) -> u64 {
        self.shared.version.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Accepts connections.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let shared = shared.clone();
                tokio::spawn(async move {
                    if let Err(error) = serve(socket, &shared).await {
                        eprintln!("a connection to the API server failed: {error:#}");
                    }
                });
            }
            Err(error) => {
                eprintln!("cannot accept a connection to the API server: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Sends bookmarks to idle watches.
async fn send_bookmarks(shared: Arc<Shared>) {
    let mut ticks = interval(BOOKMARK_INTERVAL);
    loop {
        ticks.tick().await;
        let version = shared.version.load(Ordering::Relaxed);
        let watches = shared.watches.lock().clone();
        for (_, watch) in watches {
            // A watch to which events are being written is not idle.
            if watch.socket.try_lock().is_ok() {
                // Its own connection notices its end.
                let _ = watch.send(&watch.form.bookmark(version, false)).await;
            }
        }
    }
}

/// A request, as far as it is read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    method: String,
    /// Without the query.
    path: String,
    query: String,
    /// Whether it accepts protobuf.
    accepts_protobuf: bool,
    /// Size of its body.
    body: u64,
}

/// The response to a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// A watch, which begins with all objects or with nothing.
    Watch { with_objects: bool },
    /// A status code and a JSON object.
    Whole { code: u16, body: String },
}

impl Request {
    /// Reads the next request of a connection; `None` at its end.
    async fn read(reader: &mut (impl AsyncRead + Unpin)) -> Result<Option<Self>> {
        let mut reader = BufReader::with_capacity(1, reader).take(MAX_HEADER);
        let mut line = String::new();
        if reader.read_line(&mut line).await? == 0 {
            return Ok(None);
        }

        let mut words = line.split_whitespace().map(str::to_owned);
        let method = words.next().context("no method in a request")?;
        let target = words.next().context("no path in a request")?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let mut request = Self {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            ..Self::default()
        };

        loop {
            line.clear();
            ensure!(
                reader.read_line(&mut line).await? > 0,
                "the header of a request has no end, or more than {MAX_HEADER} bytes"
            );
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "accept" => request.accepts_protobuf = value.contains(PROTOBUF),
                "content-length" => request.body = value.trim().parse()?,
                _ => {}
            }
        }

        ensure!(request.body <= MAX_BODY, "a body of {} bytes", request.body);
        Ok(Some(request))
    }

    /// A parameter of the query.
    fn parameter(&self, name: &str) -> Option<&str> {
        let mut parameters = self
            .query
            .split('&')
            .filter_map(|part| part.split_once('='));
        parameters
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    /// Whether the path is that of an object, not of a collection.
    fn is_named(&self) -> bool {
        let mut parts = self.path.split('/').filter(|part| !part.is_empty());
        let version = match parts.next() {
            Some("api") => 1,
            _ => 2,
        };
        let rest: Vec<&str> = parts.skip(version).collect();
        match rest.as_slice() {
            ["namespaces", _, _] => false,
            rest => rest.len() > 1,
        }
    }

    /// The response; `has_objects` says whether the collection of the path has any.
    fn answer(&self, has_objects: bool) -> Answer {
        let status = |code: u16, reason: &str| {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "reason": reason,
                "message": format!("{} {}: {reason}", self.method, self.path),
            });
            Answer::Whole {
                code,
                body: status.to_string(),
            }
        };

        if self.method != "GET" {
            return status(403, "Forbidden");
        }

        let version = self.parameter("resourceVersion").unwrap_or("0");
        match self.parameter("watch") {
            Some("true" | "1") if self.parameter("sendInitialEvents") == Some("true") => {
                Answer::Watch { with_objects: true }
            }
            Some("true" | "1") if version == "0" => Answer::Watch { with_objects: true },
            // There is no history: the client must read all objects again.
            Some("true" | "1") if has_objects => status(410, "Expired"),
            Some("true" | "1") => Answer::Watch {
                with_objects: false,
            },
            _ if self.is_named() => status(404, "NotFound"),
            _ if has_objects => status(405, "MethodNotAllowed"),
            _ => {
                let list = json!({
                    "kind": "List", "apiVersion": "v1", "items": [],
                    "metadata": { "resourceVersion": "1" },
                });
                Answer::Whole {
                    code: 200,
                    body: list.to_string(),
                }
            }
        }
    }
}

/// Serves one connection.
async fn serve(mut socket: TcpStream, shared: &Arc<Shared>) -> Result<()> {
    socket.set_nodelay(true)?;

    while let Some(request) = Request::read(&mut socket).await? {
        let mut body = (&mut socket).take(request.body);
        tokio::io::copy(&mut body, &mut tokio::io::sink()).await?;

        let has_objects = shared.world.listing(&request.path).is_some();
        match request.answer(has_objects) {
            Answer::Watch { with_objects } => {
                return stream(socket, shared, &request, with_objects).await;
            }
            Answer::Whole { code, body } => {
                let head = format!(
                    "HTTP/1.1 {code} -\r\ncontent-type: application/json\r\n\
                     content-length: {}\r\n\r\n",
                    body.len()
                );
                socket.write_all(head.as_bytes()).await?;
                socket.write_all(body.as_bytes()).await?;
            }
        }
    }

    Ok(())
}

/// Serves a watch until the client closes it.
async fn stream(
    socket: TcpStream,
    shared: &Arc<Shared>,
    request: &Request,
    with_objects: bool,
) -> Result<()> {
    let listing = shared.world.listing(&request.path).filter(|_| with_objects);
    let form = match &listing {
        Some(listing) => listing.form,
        None if request.accepts_protobuf => Form::Protobuf,
        None => Form::Json,
    };
    ensure!(
        form == Form::Json || request.accepts_protobuf,
        "{} is served in protobuf form, which the client does not accept",
        request.path
    );

    let (mut reader, mut writer) = socket.into_split();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        form.media_type()
    );
    writer.write_all(head.as_bytes()).await?;
    let watch = Arc::new(Watch {
        form,
        socket: AsyncMutex::new(writer),
    });

    let mut events = Vec::with_capacity(CHUNK);
    for event in listing.into_iter().flat_map(|listing| listing.events) {
        events.extend(event);
        if events.len() >= CHUNK {
            watch.send(&events).await?;
            events.clear();
        }
    }
    let version = shared.version.load(Ordering::Relaxed);
    events.extend(form.bookmark(version, with_objects));
    watch.send(&events).await?;
    drop(events);

    shared
        .watches
        .lock()
        .push((request.path.clone(), watch.clone()));
    let ended = reader.read_u8().await;
    shared
        .watches
        .lock()
        .retain(|(_, other)| !Arc::ptr_eq(other, &watch));
    match ended {
        Ok(_) => bail!("a request behind a watch of {}", request.path),
        // The end of the connection.
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request with this method and target.
    async fn request(method: &str, target: &str) -> Request {
        let text =
            format!("{method} {target} HTTP/1.1\r\nhost: a\r\nAccept: {PROTOBUF},*/*\r\n\r\n");
        let mut bytes = text.as_bytes();
        Request::read(&mut bytes).await.unwrap().unwrap()
    }

    /// The status code of the response; 0 for a watch. Only pods have objects.
    async fn code(method: &str, target: &str) -> u16 {
        let request = request(method, target).await;
        match request.answer(request.path == "/api/v1/pods") {
            Answer::Watch { .. } => 0,
            Answer::Whole { code, .. } => code,
        }
    }

    #[tokio::test]
    async fn requests_are_read_one_after_the_other() {
        let text = "POST /a?b=c HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}GET /d HTTP/1.1\r\n\r\n";
        let mut bytes = text.as_bytes();
        let first = Request::read(&mut bytes).await.unwrap().unwrap();
        assert_eq!(first.method, "POST");
        assert_eq!(first.path, "/a");
        assert_eq!(first.parameter("b"), Some("c"));
        assert_eq!(first.body, 2);
        assert!(bytes.starts_with(b"{}GET"), "its body is not read");

        let mut rest = &bytes[2..];
        let second = Request::read(&mut rest).await.unwrap().unwrap();
        assert_eq!(second.path, "/d");
        assert_eq!(Request::read(&mut rest).await.unwrap(), None);
        let mut half = &b"GET / HTTP/1.1\r\nhost: a\r\n"[..];
        assert!(Request::read(&mut half).await.is_err());
    }

    #[tokio::test]
    async fn each_request_has_the_response_of_a_server_without_history() {
        let pods = "/api/v1/pods?watch=true&resourceVersion";
        assert_eq!(
            code("GET", &format!("{pods}=0&sendInitialEvents=true")).await,
            0
        );
        assert_eq!(code("GET", &format!("{pods}=0")).await, 0);
        assert_eq!(code("GET", &format!("{pods}=7")).await, 410);
        assert_eq!(
            code("GET", "/api/v1/nodes?watch=1&resourceVersion=7").await,
            0
        );
        assert_eq!(code("GET", "/api/v1/pods?limit=1").await, 405);
        assert_eq!(code("GET", "/api/v1/namespaces/a/secrets").await, 200);
        assert_eq!(code("GET", "/api/v1/namespaces/a").await, 404);
        let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases";
        assert_eq!(code("GET", &format!("{lease}/b")).await, 404);
        assert_eq!(code("POST", lease).await, 403);
    }

    /// Two namespaces, and nothing else.
    struct Namespaces;

    impl World for Namespaces {
        fn listing(&self, path: &str) -> Option<Listing<'_>> {
            let event = |name: &str| format!("{name}\n").into_bytes();
            let events = ["a", "b"].into_iter().map(event);
            (path == "/api/v1/namespaces").then(|| Listing {
                form: Form::Json,
                events: Box::new(events),
            })
        }
    }

    #[tokio::test]
    async fn a_watch_begins_with_all_objects_and_a_bookmark_and_goes_on_with_events() {
        let api = Api::start(Namespaces).await.unwrap();
        let path = "/api/v1/namespaces";
        assert!(api.send(path, b"c\n").await.is_err());
        assert!(
            api.kubeconfig()
                .contains(&format!("http://{}", api.address))
        );

        let mut socket = TcpStream::connect(api.address).await.unwrap();
        let ask = format!("GET {path}?watch=true&sendInitialEvents=true HTTP/1.1\r\n\r\n");
        socket.write_all(ask.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(socket).lines();
        let mut seen = Vec::new();
        loop {
            let line = lines.next_line().await.unwrap().unwrap();
            let is_last = line.contains("initial-events-end");
            seen.push(line);
            if is_last {
                break;
            }
        }
        assert_eq!(seen[0], "HTTP/1.1 200 OK");
        assert_eq!(&seen[5..7], ["a", "b"]);

        assert_eq!(api.next_version(), 2);
        while api.send(path, b"c\n").await.is_err() {
            tokio::task::yield_now().await;
        }
        // The line break behind the chunk before, and the length.
        for expected in ["", "2", "c"] {
            assert_eq!(lines.next_line().await.unwrap().unwrap(), expected);
        }
    }
}
