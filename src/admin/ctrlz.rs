//! ControlZ: the port 9876 on loopback for inspecting a running process and setting its log levels.
//!
//! Pages are plain tables; tools use the JSON below: `istioctl admin log` requests `/scopej`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, put};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{getegid, geteuid, getgid, getpid, getppid, getuid};
use serde_json::{Map, Value, json};

use super::access;
use super::log_scopes::{LogScopes, ScopeError, ScopeLevel};
use super::state::AdminState;
use super::{debug, health, paths, reply};
use navarch_base::regular_file;
use navarch_security::rules::Visibility;

/// The topics: path before `z` (a page) and `j` (JSON), and what each shows.
const TOPICS: [(&str, &str); 8] = [
    ("scope", "Logging scopes"),
    ("mem", "Memory"),
    ("env", "Environment variables"),
    ("proc", "Process"),
    ("arg", "Command line"),
    ("version", "Version"),
    ("metric", "Metrics"),
    ("signal", "Signals"),
];

/// The topics whose pages are not their JSON.
const OWN_PAGES: [&str; 2] = ["metric", "signal"];

/// What stands for the values of other environment variables.
const HIDDEN_VALUE: &str = "[hidden]";

/// The state that ControlZ reads.
#[derive(Clone, Debug)]
struct Control {
    admin: AdminState,
    scopes: LogScopes,
    /// The environment variables whose values are shown.
    variables: Arc<BTreeSet<String>>,
}

/// The service of the port: for the same machine only, as callers are not authenticated and may end
/// the process.
pub fn control_routes(
    admin: AdminState,
    scopes: LogScopes,
    shown_variables: BTreeSet<String>,
) -> Router {
    let mut shared = Router::new().route("/metrics", get(health::metrics));
    if admin.profiles {
        shared = shared.merge(navarch_pprof::routes(debug::PROFILES));
    }
    let shared = shared.with_state(admin.clone());

    let control = Control {
        admin,
        scopes,
        variables: Arc::new(shown_variables),
    };
    let mut routes = Router::new()
        .route("/", get(home))
        .route("/homej/exit", put(exit))
        .route(
            "/memj/forcecollection",
            put(release_memory).post(release_memory),
        )
        .route("/signalj/SIGUSR1", put(reload).post(reload))
        .route("/signalz", get(signals))
        .route("/signalz/", get(signals))
        .route("/scopej/{scope}", get(scope).put(set_scope));

    for (path, handler) in [
        ("/homej", "home"),
        ("/scopej", "scope"),
        ("/memj", "mem"),
        ("/envj", "env"),
        ("/procj", "proc"),
        ("/versionj", "version"),
    ] {
        let answer = move |State(control): State<Control>| async move {
            reply::json_line(&topic(&control, handler))
        };
        routes = routes
            .route(path, get(answer))
            .route(&format!("{path}/"), get(answer));
    }

    for (name, title) in TOPICS
        .into_iter()
        .filter(|(name, _)| !OWN_PAGES.contains(name))
    {
        let page = move |State(control): State<Control>| async move {
            page(title, &topic(&control, name))
        };
        routes = routes
            .route(&format!("/{name}z"), get(page))
            .route(&format!("/{name}z/"), get(page));
    }

    routes
        .route(
            "/metricz",
            get(|| async { axum::response::Redirect::permanent("/metrics") }),
        )
        .merge(shared)
        .fallback(paths::fallback)
        .layer(from_fn_with_state(control.admin.clone(), guard))
        .with_state(control)
}

/// Admits requests of the same machine only, as there are no access rules for these pages.
async fn guard(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match access::visibility(&state, &head).await {
        Ok(Visibility::Everything) => next.run(Request::from_parts(head, body)).await,
        Ok(Visibility::Namespaces(_) | Visibility::Nothing) => {
            StatusCode::FORBIDDEN.into_response()
        }
        Err(denied) => denied.into_response(),
    }
}

/// The content of a topic.
fn topic(control: &Control, name: &str) -> Value {
    match name {
        "home" => json!({
            "ProcessName": std::env::args().next().unwrap_or_default(),
            "HeapSize": memory().get("HeapAlloc"),
            "NumGC": 0,
            "CurrentTime": jiff::Timestamp::now().as_nanosecond(),
            "Hostname": host_name(),
            "IP": "",
        }),
        "scope" => control.scopes.list().into_iter().map(description).collect(),
        "mem" => Value::Object(memory()),
        "env" => variables(&control.variables),
        "proc" => process(),
        "arg" => std::env::args().collect(),
        _ => control.admin.build.info(),
    }
}

/// A scope of logs, as istiod's ControlZ shows it.
fn description(scope: ScopeLevel) -> Value {
    json!({
        "name": scope.name,
        "description": scope.about,
        "output_level": scope.level,
        "stack_trace_level": "none",
        "log_callers": false,
    })
}

async fn scope(State(control): State<Control>, Path(name): Path<String>) -> Response {
    match control
        .scopes
        .list()
        .into_iter()
        .find(|scope| scope.name == name)
    {
        Some(scope) => reply::json_line(&description(scope)),
        None => scope_error(&ScopeError::Unknown(name)),
    }
}

/// Sets the level of a scope. Stack traces and callers are not supported here, so that these
/// settings change nothing.
async fn set_scope(
    State(control): State<Control>,
    Path(name): Path<String>,
    body: String,
) -> Response {
    let Ok(wanted) = serde_json::from_str::<Value>(&body) else {
        return (StatusCode::BAD_REQUEST, "unable to decode request").into_response();
    };
    let level = wanted
        .get("output_level")
        .and_then(Value::as_str)
        .unwrap_or_default();
    match control.scopes.set(&name, level) {
        Ok(()) => {
            tracing::info!(scope = name, level, "log level set");
            StatusCode::ACCEPTED.into_response()
        }
        Err(error) => scope_error(&error),
    }
}

fn scope_error(error: &ScopeError) -> Response {
    let mut response = reply::json_line(&json!({ "error": error.to_string() }));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// Ends the process like SIGTERM.
async fn exit() -> StatusCode {
    signal(Signal::SIGTERM)
}

/// Reloads files like SIGUSR1.
async fn reload() -> StatusCode {
    signal(Signal::SIGUSR1)
}

fn signal(signal: Signal) -> StatusCode {
    match kill(getpid(), signal) {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns free memory to the system, in place of Go's collection of garbage.
async fn release_memory() -> StatusCode {
    match navarch_pprof::alone(navarch_profile::give_back_all_free_memory).await {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Memory as reported by the kernel in bytes, under Go's names where the meaning is the same.
fn memory() -> Map<String, Value> {
    let status = regular_file::read_text("/proc/self/status".as_ref()).unwrap_or_default();
    let field = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kilobytes = line.and_then(|line| {
            line.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<u64>()
                .ok()
        });
        json!(kilobytes.unwrap_or_default() * 1024)
    };

    let fields = [
        ("HeapAlloc", "RssAnon"),
        ("HeapSys", "VmData"),
        ("Sys", "VmSize"),
        ("Resident", "VmRSS"),
        ("ResidentPeak", "VmHWM"),
    ];

    fields
        .into_iter()
        .map(|(name, line)| (name.to_owned(), field(line)))
        .collect()
}

/// The environment: all names, and the values of the variables in `shown`.
fn variables(shown: &BTreeSet<String>) -> Value {
    let one = |(name, value): (OsString, OsString)| {
        let name = name.to_string_lossy().into_owned();
        let value = match shown.contains(&name) {
            true => value.to_string_lossy().into_owned(),
            false => HIDDEN_VALUE.to_owned(),
        };
        (name, value)
    };
    let variables: BTreeMap<String, String> = std::env::vars_os().map(one).collect();

    variables
        .into_iter()
        .map(|(name, value)| json!({ "name": name, "value": value }))
        .collect()
}

fn process() -> Value {
    let threads = std::fs::read_dir("/proc/self/task")
        .map(Iterator::count)
        .unwrap_or_default();
    json!({
        "egid": getegid().as_raw(),
        "euid": geteuid().as_raw(),
        "gid": getgid().as_raw(),
        "groups": Value::Null,
        "pid": getpid().as_raw(),
        "ppid": getppid().as_raw(),
        "uid": getuid().as_raw(),
        "wd": std::env::current_dir().unwrap_or_default(),
        "hostname": host_name(),
        "tempdir": std::env::temp_dir(),
        "threads": threads,
        "goroutines": 0,
    })
}

fn host_name() -> String {
    regular_file::read_text("/proc/sys/kernel/hostname".as_ref())
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The page with all topics.
async fn home(State(control): State<Control>) -> Html<String> {
    let topics = TOPICS.map(|(name, title)| format!("<li><a href=\"/{name}z\">{title}</a></li>\n"));
    let version = escaped(control.admin.build.version);
    Html(format!(
        "{}<p>Navarch {version}</p>\n<ul>\n{}</ul></body></html>\n",
        head("ControlZ"),
        topics.concat()
    ))
}

/// The page that sends signals to the process itself.
async fn signals() -> Html<String> {
    Html(format!(
        "{}<p><a href=\"/\">ControlZ</a></p>\n\
         <form method=\"post\" action=\"/signalj/SIGUSR1\">\
         <button>SIGUSR1</button> reads all files again</form></body></html>\n",
        head("Signals")
    ))
}

/// The content of a topic as a page.
fn page(title: &str, value: &Value) -> Html<String> {
    let text = reply::document(value, true).unwrap_or_default();
    Html(format!(
        "{}<p><a href=\"/\">ControlZ</a></p>\n<pre>{}</pre></body></html>\n",
        head(title),
        escaped(&text)
    ))
}

fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title></head>\n\
         <body><h1>{title}</h1>\n"
    )
}

/// Text escaped for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_show_characters_that_a_terminal_or_a_browser_would_obey_as_escapes() {
        let Html(page) = page("Command line", &json!(["navarch", "\u{202e}\u{1b}[2J<b>"]));
        assert!(page.contains(r"\u202e\u001b[2J&lt;b&gt;"), "{page}");
    }
}
