//! Profiles of the agent.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use tower_service::Service as _;

use super::super::router;
use super::*;

/// The status of a page for a client with this address.
async fn status_from(address: &str, path: &str) -> StatusCode {
    let (commands, _commands) = mpsc::channel(1);
    let mut router = router(config(1, None, 1, commands));
    let mut request = http::Request::get(path).body(Body::empty()).unwrap();
    let peer: SocketAddr = address.parse().unwrap();
    request.extensions_mut().insert(ConnectInfo(peer));
    router.call(request).await.unwrap().status()
}

#[tokio::test]
async fn profiles_are_for_this_machine_alone() {
    for path in [
        "/debug/pprof/",
        "/debug/pprof/cmdline",
        "/debug/pprof/profile",
    ] {
        let far = status_from("192.0.2.7:4000", path).await;
        assert_eq!(far, StatusCode::FORBIDDEN, "{path}");
    }
    for near in ["127.0.0.1:4000", "[::1]:4000", "[::ffff:127.0.0.1]:4000"] {
        let index = status_from(near, "/debug/pprof/").await;
        assert_eq!(index, StatusCode::OK, "{near}");
    }
}

#[tokio::test]
async fn the_agent_has_no_heap_profile_and_says_so() {
    let setting = setting(1, None, JoinSet::new()).await;
    let absent = setting.get("/debug/pprof/heap").await;
    assert_eq!(absent.status, StatusCode::NOT_IMPLEMENTED);
    assert_eq!(
        &absent.body[..],
        b"heap: unknown profile; this process does not sample its allocations and has profile\n"
    );

    let index = setting.get("/debug/pprof/").await;
    let text = String::from_utf8_lossy(&index.body);
    assert!(
        text.contains("at most 60") && !text.contains("heap"),
        "{text}"
    );
}

#[tokio::test]
async fn a_cpu_profile_of_more_than_a_minute_is_rejected() {
    let setting = setting(1, None, JoinSet::new()).await;
    for seconds in ["0", "61", "-1", "many"] {
        let path = format!("/debug/pprof/profile?seconds={seconds}");
        let rejected = setting.get(&path).await;
        assert_eq!(rejected.status, StatusCode::BAD_REQUEST, "{seconds}");
    }
}

#[tokio::test]
async fn without_profiling_there_are_no_pages() {
    let off = |config: &mut StatusConfig| config.serves_profiles = false;
    let setting = setting_with(1, None, JoinSet::new(), off).await;
    for path in ["/debug/pprof/", "/debug/pprof/profile?seconds=1"] {
        assert_eq!(setting.get(path).await.status, StatusCode::NOT_FOUND);
    }
}
