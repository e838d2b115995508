//! Profiles of a running Navarch, as `go tool pprof` requests them.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use navarch_profile::Profile;
use navarch_testkit::client::{self as web, Reply};
use navarch_testkit::usage::{Usage, usage};
use navarch_testkit::wait::until;
use prost::Message;
use tokio::task::JoinSet;

use crate::server::Server;
use crate::tools::MESH;

async fn get(at: SocketAddr, page: &str) -> Result<Reply> {
    web::get(at, "localhost", &format!("/debug/pprof/{page}"), &[]).await
}

fn decoded(reply: &Reply) -> Result<Profile> {
    ensure!(reply.status == 200, "{} {}", reply.status, reply.body);
    let mut bytes = Vec::new();
    GzDecoder::new(&*reply.bytes).read_to_end(&mut bytes)?;
    Ok(Profile::decode(&*bytes)?)
}

fn text(profile: &Profile, place: i64) -> &str {
    usize::try_from(place)
        .ok()
        .and_then(|place| profile.string_table.get(place))
        .unwrap()
}

fn functions(profile: &Profile) -> BTreeSet<&str> {
    profile
        .function
        .iter()
        .map(|function| text(profile, function.name))
        .collect()
}

/// The types, and the sum of all values of each.
fn sums(profile: &Profile) -> Vec<(&str, i64)> {
    let types = profile.sample_type.iter().enumerate();
    types
        .map(|(place, one)| {
            (
                text(profile, one.r#type),
                profile
                    .sample
                    .iter()
                    .map(|sample| sample.value[place])
                    .sum(),
            )
        })
        .collect()
}

/// Requests pages one after another until it is dropped.
fn load(at: SocketAddr) -> JoinSet<()> {
    let mut asking = JoinSet::new();
    for _ in 0..2 {
        asking.spawn(async move {
            loop {
                _ = web::get(at, "localhost", "/metrics", &[]).await;
            }
        });
    }
    asking
}

/// A CPU profile of this number of seconds, with a lower and an upper bound of the CPU seconds in
/// it; the upper one includes encoding the profile. Of two concurrent requests the second is
/// rejected.
async fn cpu_profile(server: &Server, seconds: u64) -> Result<(Profile, [f64; 2])> {
    let [http, _] = server.web();
    let before = usage(server.pid())?;
    let page = format!("profile?seconds={seconds}");
    let (one, other, meanwhile) = tokio::join!(get(http, &page), get(http, &page), async {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        usage(server.pid())
    });
    let one = one?;

    let other = other?;
    let (first, second) = if one.status == 200 {
        (one, other)
    } else {
        (other, one)
    };

    ensure!(
        second.status == 500
            && second.body == "Could not enable CPU profiling: cpu profiling already in use\n",
        "{} {}",
        second.status,
        second.body
    );

    let spent =
        |end| Usage::cpu_between(Some(before), Some(end)).context("both measurements exist");
    Ok((
        decoded(&first)?,
        [spent(meanwhile?)?, spent(usage(server.pid())?)?],
    ))
}

#[tokio::test]
async fn a_cpu_profile_shows_the_functions_that_used_cpu() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let [http, monitoring] = server.web();
    let asking = load(monitoring);

    // On a busy machine the process gets little CPU time.
    let mut tries = [2, 4, 4, 4].into_iter();

    loop {
        let seconds = tries.next().context("each profile has too few samples")?;
        let (profile, [least, most]) = cpu_profile(&server, seconds).await?;
        let [("samples", samples), ("cpu", nanos)] = sums(&profile)[..] else {
            panic!("{:?}", profile.sample_type)
        };

        ensure!(
            nanos == samples * 10_000_000,
            "{samples} samples, {nanos} ns"
        );
        if samples < 30 {
            continue;
        }

        let seen = nanos as f64 / 1e9;
        ensure!(
            seen > least / 2.0 && seen < most * 1.1 + 0.1,
            "{seen} s of {least} to {most} s"
        );
        has_functions_that_ran(&profile)?;
        break;
    }

    drop(asking);

    // A client that disconnects ends the profile.
    let ended =
        tokio::time::timeout(Duration::from_millis(300), get(http, "profile?seconds=60")).await;
    ensure!(ended.is_err());
    until("another can be taken", async || {
        get(http, "profile?seconds=1")
            .await
            .is_ok_and(|reply| reply.status == 200)
    })
    .await;
    ensure!(web::get(http, "localhost", "/ready", &[]).await?.status == 200);
    Ok(())
}

fn has_functions_that_ran(profile: &Profile) -> Result<()> {
    let names = functions(profile);

    for part in ["navarch::admin", "tokio::runtime", "hyper::"] {
        ensure!(
            names.iter().any(|name| name.contains(part)),
            "{part}: {names:#?}"
        );
    }

    ensure!(
        text(profile, profile.mapping[0].filename).ends_with("/navarch")
            && profile.mapping[0].build_id != 0
    );
    let deepest = profile
        .sample
        .iter()
        .map(|sample| sample.location_id.len())
        .max();
    ensure!(deepest > Some(20), "{deepest:?}");

    Ok(())
}

#[tokio::test]
async fn invalid_profile_requests_are_rejected_with_a_reason() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let [http, _] = server.web();

    for (page, reason) in [
        (
            "profile?seconds=0",
            "seconds: \"0\" is not a whole number from 1 to 300\n",
        ),
        ("profile?seconds=abc", "seconds: \"abc\" is not"),
        ("profile?seconds=301", "seconds: \"301\" is not"),
        ("profile?seconds=-1", "seconds: \"-1\" is not"),
        (
            "heap?seconds=5",
            "seconds: heap is not available as a difference",
        ),
        (
            "allocs?debug=1",
            "debug: allocs is only available in the format of go tool pprof",
        ),
    ] {
        let rejected = get(http, page).await?;
        ensure!(
            rejected.status == 400 && rejected.body.starts_with(reason),
            "{page}: {rejected:?}"
        );
    }

    let many = vec!["0x1"; 10_001].join("+");
    let rejected = web::send_body(
        "POST",
        http,
        "localhost",
        "/debug/pprof/symbol",
        &[],
        many.into(),
    )
    .await?;
    ensure!(rejected.status == 400, "{rejected:?}");
    Ok(())
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn a_heap_profile_has_live_allocations_with_call_stacks() -> Result<()> {
    // Objects that stay in memory: some tens of MB.
    let service = |number: usize| {
        format!(
            "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: s{number}, namespace: shop}}\n\
             spec: {{hosts: [s{number}.example.com], resolution: DNS, ports: [{{number: 80, name: http, protocol: HTTP}}]}}\n"
        )
    };

    let mesh: String = std::iter::once(format!("{MESH}\n"))
        .chain((0..4000).map(service))
        .collect();
    let server = Server::with_mesh(&mesh).await?;
    let [http, monitoring] = server.web();
    let heap = get(http, "heap").await?;
    ensure!(
        heap.headers["content-disposition"] == "attachment; filename=\"heap\"",
        "{:?}",
        heap.headers
    );

    let heap = decoded(&heap)?;
    ensure!(text(&heap, heap.default_sample_type) == "inuse_space");
    let [
        ("alloc_objects", objects),
        ("alloc_space", space),
        ("inuse_objects", held),
        ("inuse_space", in_use),
    ] = sums(&heap)[..]
    else {
        panic!("{:?}", heap.sample_type)
    };

    let anonymous = i64::try_from(usage(server.pid())?.anon_kb * 1024)?;
    ensure!(
        objects >= held && space >= in_use && held > 1000,
        "{objects} {held}"
    );
    ensure!(
        in_use > anonymous / 8 && in_use < anonymous * 5 / 4,
        "{in_use} in use of {anonymous} B"
    );

    let names = functions(&heap);
    ensure!(
        names.iter().any(|name| name.contains("navarch_")),
        "{names:#?}"
    );
    let innermost = heap
        .sample
        .iter()
        .filter_map(|sample| sample.location_id.first());
    let lines = innermost.filter_map(|id| {
        heap.location[usize::try_from(*id).unwrap() - 1]
            .line
            .first()
    });

    let mut innermost = lines.map(|line| {
        text(
            &heap,
            heap.function[usize::try_from(line.function_id).unwrap() - 1].name,
        )
    });

    ensure!(
        !innermost.any(|name| name.contains("navarch_profile")),
        "the sampler's own functions are left out"
    );
    let allocs = decoded(&get(http, "allocs?debug=0").await?)?;
    ensure!(text(&allocs, allocs.default_sample_type) == "alloc_space");

    // The names of its addresses, as pprof requests them.
    let known = heap
        .location
        .iter()
        .find(|location| !location.line.is_empty())
        .context("no location has a name")?;
    let requested = format!("{:#x}+0x10", known.address);
    let answer = web::send_body(
        "POST",
        http,
        "localhost",
        "/debug/pprof/symbol",
        &[],
        requested.into(),
    )
    .await?
    .body;
    let lines: Vec<&str> = answer.lines().collect();
    let name = text(
        &heap,
        heap.function[usize::try_from(known.line[0].function_id)? - 1].name,
    );
    ensure!(
        lines == ["num_symbols: 1", &format!("{:#x} {name}", known.address)],
        "{answer}"
    );

    ensure!(get(http, "symbol").await?.body == "num_symbols: 1\n");

    // The memory of profiles is freed.
    let before = usage(server.pid())?.rss_kb;
    let asking = load(monitoring);

    for _ in 0..3 {
        decoded(&get(http, "heap").await?)?;
        decoded(&get(http, "profile?seconds=1").await?)?;
    }

    drop(asking);
    until("what profiles took is given back", async || {
        // Pages of the program file count as resident once they are used.
        usage(server.pid()).is_ok_and(|now| now.rss_kb < before + 40_000)
    })
    .await;

    Ok(())
}
