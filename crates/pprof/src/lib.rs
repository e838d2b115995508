//! `/debug/pprof/…`: profiles of the process at Go's paths, for `go tool pprof`, and the reason why
//! some are missing.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, RawQuery};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use navarch_net::background;
use navarch_profile::{CpuError, CpuProfiler, DefaultSampleType};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

/// Profiles of goroutines, which this process does not have, and of Go's runtime.
const ABSENT_PROFILES: [&str; 5] = ["trace", "goroutine", "block", "mutex", "threadcreate"];
/// Profiles of the heap.
const HEAP_PROFILES: [(&str, DefaultSampleType); 2] = [
    ("heap", DefaultSampleType::InUse),
    ("allocs", DefaultSampleType::Allocated),
];
/// Default duration of a CPU profile, as in Go.
const PROFILE_SECONDS: u64 = 30;
/// Maximum number of addresses to look up in one request.
const MAX_ADDRESSES: usize = 10_000;
/// Stack size of a profiling thread.
const STACK_BYTES: usize = 2 << 20;
/// Symbol tables are read, and memory is released, for one request at a time.
static READING: Semaphore = Semaphore::const_new(1);

/// The parameters of a request.
type Parameters = Query<HashMap<String, String>>;

/// What a process serves.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    /// Maximum duration of a CPU profile, in seconds.
    pub max_seconds: u64,
    /// Whether allocations are sampled: the allocator is [`navarch_profile::Profiled`].
    pub has_heap: bool,
}

/// The pages under `/debug/pprof`. They have no access rules of their own.
pub fn routes<S: Clone + Send + Sync + 'static>(pages: Pages) -> Router<S> {
    let cpu = move |parameters: Parameters| cpu(pages.max_seconds, parameters);
    let index = move || index(pages);
    let mut routes = Router::new()
        .route("/debug/pprof", get(index))
        .route("/debug/pprof/", get(index))
        .route("/debug/pprof/cmdline", get(command_line))
        .route("/debug/pprof/profile", get(cpu).post(cpu))
        .route(
            "/debug/pprof/symbol",
            get(async |RawQuery(query)| symbol(query.unwrap_or_default()).await).post(symbol),
        );

    for (name, shown) in HEAP_PROFILES {
        let path = format!("/debug/pprof/{name}");
        routes = if pages.has_heap {
            routes.route(
                &path,
                get(move |parameters: Parameters| heap(shown, name, parameters)),
            )
        } else {
            let reason = "this process does not sample its allocations";
            routes.route(&path, get(move || absent(name, reason, pages)))
        };
    }

    for name in ABSENT_PROFILES {
        let absent = move || absent(name, "this process is not written in Go", pages);
        routes = routes.route(&format!("/debug/pprof/{name}"), get(absent).post(absent));
    }

    routes
}

async fn index(pages: Pages) -> Html<String> {
    let of_heap = if pages.has_heap {
        "<li><a href=\"allocs\">allocs</a>: memory allocated since the start, sampled</li>\n\
         <li><a href=\"heap\">heap</a>: memory in use, sampled</li>\n"
    } else {
        ""
    };
    let max_seconds = pages.max_seconds;
    Html(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>/debug/pprof/</title></head>\n\
         <body><h1>Profiles</h1>\n<ul>{of_heap}<li><a href=\"cmdline\">cmdline</a>: the command line</li>\n\
         <li><a href=\"profile\">profile</a>: CPU time of the next 30 seconds (<code>?seconds=</code>, at most {max_seconds})</li>\n\
         <li><a href=\"symbol\">symbol</a>: names of functions by address, for <code>go tool pprof</code></li></ul>\n\
         <p>Read them with <code>go tool pprof</code>. The other profiles of Go are not there: \
         this process is not written in Go.</p></body></html>\n",
    ))
}

/// The command line in Go's format: arguments separated by zero bytes.
async fn command_line() -> String {
    std::env::args().collect::<Vec<_>>().join("\0")
}

/// The response for a missing profile. `go tool pprof` shows its first line.
async fn absent(name: &'static str, reason: &'static str, pages: Pages) -> Response {
    let present = if pages.has_heap {
        "profile, heap and allocs"
    } else {
        "profile"
    };
    let reason = format!("{name}: unknown profile; {reason} and has {present}\n");
    (StatusCode::NOT_IMPLEMENTED, reason).into_response()
}

/// The CPU profile of the next seconds. It ends when the client disconnects.
async fn cpu(max_seconds: u64, parameters: Parameters) -> Response {
    let seconds = match parameters.get("seconds").map(|text| (text, text.parse())) {
        None => PROFILE_SECONDS,
        Some((_, Ok(seconds))) if (1..=max_seconds).contains(&seconds) => seconds,
        Some((text, _)) => {
            let reason =
                format!("seconds: {text:?} is not a whole number from 1 to {max_seconds}\n");
            return (StatusCode::BAD_REQUEST, reason).into_response();
        }
    };
    match sampled(Duration::from_secs(seconds)).await {
        Ok(profile) => file("profile", profile),
        // Go's error message.
        Err(error) => failed(&format!("Could not enable CPU profiling: {error}")),
    }
}

async fn sampled(duration: Duration) -> Result<Vec<u8>, CpuError> {
    let profiler = CpuProfiler::start()?;
    let started = now();
    let since = Instant::now();
    let (end, ends): (Sender<Duration>, Receiver<Duration>) = channel();
    let (answer, mut made) = oneshot::channel();
    let work = move || {
        // No outcome is sent if the client has disconnected.
        if let Some(outcome) = sample(profiler, &ends, started) {
            _ = answer.send(outcome);
        }
    };

    background::spawn("cpu profile", STACK_BYTES, work)?;
    let gone = |_| {
        CpuError::System(std::io::Error::other(
            "failed to compute the profile; see the log",
        ))
    };
    tokio::select! {
        () = tokio::time::sleep(duration) => {}
        early = &mut made => return early.map_err(gone)?,
    }

    _ = end.send(since.elapsed());
    made.await.map_err(gone)?
}

/// Takes samples until the receiver gets the elapsed time, or the client disconnects.
fn sample(
    mut profiler: CpuProfiler,
    ends: &Receiver<Duration>,
    started: i64,
) -> Option<Result<Vec<u8>, CpuError>> {
    loop {
        match ends.recv_timeout(CpuProfiler::TICK) {
            Ok(took) => return Some(profiler.finish(started, took)),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = profiler.tick() {
                    return Some(Err(error));
                }
            }
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// The sampled heap. With `gc=1` Go collects garbage before; here there is none.
async fn heap(shown: DefaultSampleType, name: &'static str, parameters: Parameters) -> Response {
    for (parameter, value) in &parameters.0 {
        let reason = match (parameter.as_str(), value.as_str()) {
            ("debug", "0") | ("gc", _) => continue,
            ("debug", _) => "is only available in the format of go tool pprof (debug=0)",
            ("seconds", _) => {
                "is not available as a difference over time; take two profiles and compare them with go tool pprof -base"
            }
            _ => continue,
        };
        return (
            StatusCode::BAD_REQUEST,
            format!("{parameter}: {name} {reason}\n"),
        )
            .into_response();
    }

    match alone(move || navarch_profile::snapshot(shown, now())).await {
        Ok(Ok(profile)) => file(name, profile),
        Ok(Err(error)) | Err(error) => failed(&format!("{name}: {error}")),
    }
}

/// The names of functions: the response to `0x…+0x…` has a line for each known one. The first line
/// states that symbols are available.
async fn symbol(body: String) -> Response {
    let number = |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    let addresses: Vec<u64> = body.split('+').filter_map(number).collect();
    if addresses.len() > MAX_ADDRESSES {
        let reason = format!(
            "{} addresses; the maximum is {MAX_ADDRESSES}\n",
            addresses.len()
        );
        return (StatusCode::BAD_REQUEST, reason).into_response();
    }

    let mut text = "num_symbols: 1\n".to_owned();
    if addresses.is_empty() {
        return text.into_response();
    }

    match alone(move || navarch_profile::names(addresses)).await {
        Ok(Ok(names)) => {
            text.extend(
                names
                    .iter()
                    .map(|(address, name)| format!("{address:#x} {name}\n")),
            );
            text.into_response()
        }
        Ok(Err(error)) => failed(&format!("symbol: {error}")),
        Err(error) => failed(&format!("symbol: {error}")),
    }
}

/// Runs `work` on a thread of low priority, one request of these pages at a time.
///
/// # Errors
/// If the system cannot start a thread.
pub async fn alone<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<T> {
    let turn = READING.acquire().await.map_err(std::io::Error::other)?;
    let (answer, made) = oneshot::channel();
    let work = move || {
        let result = work();
        drop(turn);
        _ = answer.send(result);
    };
    background::spawn("profile", STACK_BYTES, work)?;
    made.await.map_err(std::io::Error::other)
}

/// A profile as a file download, as in Go.
fn file(name: &str, profile: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}\""),
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    (headers, profile).into_response()
}

fn failed(reason: &str) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{reason}\n")).into_response()
}

/// The current time in nanoseconds since 1970.
fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or_default()
}
