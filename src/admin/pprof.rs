//! `/debug/pprof/…`: what Go's profiles have a counterpart for here, and why the others are not there.

use axum::Router;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;

use super::state::AdminState;

/// Profiles that need a sampler or a heap that counts by place, neither of which is part of the process.
const ABSENT: [&str; 9] =
    ["profile", "trace", "symbol", "heap", "allocs", "goroutine", "block", "mutex", "threadcreate"];

pub(super) fn routes() -> Router<AdminState> {
    let mut routes = Router::new()
        .route("/debug/pprof", get(index))
        .route("/debug/pprof/", get(index))
        .route("/debug/pprof/cmdline", get(command_line));
    for name in ABSENT {
        routes = routes.route(&format!("/debug/pprof/{name}"), get(move || absent(name)).post(move || absent(name)));
    }
    routes
}

/// What there is.
async fn index() -> Html<&'static str> {
    Html(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>/debug/pprof/</title></head>\n\
         <body><h1>Profiles</h1>\n<p><a href=\"/debug/pprof/cmdline\">cmdline</a></p>\n\
         <p>Go's profiles are not there: this process is not written in Go. <code>perf record -g -p PID</code> on the node \
         profiles its CPU; <code>/metrics</code> has its memory and CPU time, <code>/debug/krtz</code> the sizes of its \
         tables.</p></body></html>\n",
    )
}

/// The command line, as Go writes it: its words, with a zero byte between each two.
async fn command_line() -> String {
    std::env::args().collect::<Vec<_>>().join("\0")
}

/// The answer for a profile that there is not. Its first line is what `go tool pprof` shows.
async fn absent(name: &'static str) -> Response {
    let reason = format!(
        "{name}: there is no such profile of this process, which is not written in Go; profile it with perf on its node\n"
    );
    (StatusCode::NOT_IMPLEMENTED, reason).into_response()
}
