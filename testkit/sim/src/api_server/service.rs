//! The service that `kube::Client` sends its requests to.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::Frame;
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tower_service::Service;

use super::watches::WatchBody;
use super::{Answer, ApiServer, ClientId};
use crate::link::{Condition, Link};
use crate::random::Random;

/// The longest regular delay of a request or response, in milliseconds.
const MAX_DELAY: u64 = 15;

/// A client's side of the server.
#[derive(Clone, Debug)]
pub struct ApiClient {
    server: ApiServer,
    name: String,
    link: Link,
    random: Arc<Mutex<Random>>,
}

/// The body of a response.
#[derive(Debug)]
pub struct ApiBody(Content);

#[derive(Debug)]
enum Content {
    Whole(Option<Bytes>),
    Watch(Box<WatchBody>),
}

impl ApiClient {
    pub(crate) fn new(server: &ApiServer, name: &str, link: &Link, seed: u64) -> Self {
        Self {
            server: server.clone(),
            name: name.to_owned(),
            link: link.clone(),
            random: Arc::new(Mutex::new(Random::new(seed, name))),
        }
    }

    /// Travels over the link, which may break meanwhile.
    async fn travel(&self, epoch: u64) -> io::Result<()> {
        let delay = self.random.lock().millis(1, MAX_DELAY);
        tokio::select! {
            biased;
            () = self.link.broken(epoch) => Err(io::ErrorKind::ConnectionReset.into()),
            () = async { sleep(delay).await; self.link.open(epoch).await } => Ok(()),
        }
    }

    async fn send(self, request: Request<Body>) -> io::Result<Response<ApiBody>> {
        let sent = Instant::now();
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();

        let epoch = self.link.epoch();
        if self.link.condition() == Condition::Cut {
            let delay = self.random.lock().millis(1, MAX_DELAY);
            sleep(delay).await;
            return Err(io::ErrorKind::ConnectionRefused.into());
        }

        self.travel(epoch).await?;
        let client = ClientId {
            name: self.name.clone(),
            link: self.link.clone(),
            epoch,
        };
        let answer = self.server.handle(&client, sent, &head, &body);
        self.travel(epoch).await?;
        Ok(response(answer))
    }
}

fn response(answer: Answer) -> Response<ApiBody> {
    let (code, retry_after, body) = match answer {
        Answer::Object(code, object) => {
            (code, None, Content::Whole(Some(object.to_string().into())))
        }
        Answer::Failed(failure) => (
            failure.code,
            failure.retry_after,
            Content::Whole(Some(failure.status().to_string().into())),
        ),
        Answer::Watch(body) => (200, None, Content::Watch(body)),
    };

    let mut response = Response::new(ApiBody(body));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    }
    response
}

impl Service<Request<Body>> for ApiClient {
    type Response = Response<ApiBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<ApiBody>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

impl http_body::Body for ApiBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.get_mut().0 {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Watch(body) => Pin::new(&mut **body).poll_frame(context),
        }
    }
}
