//! CPU profiles of this program, whose threads are busy in functions of known names.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use std::alloc::System;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flate2::read::GzDecoder;
use navarch_profile::{CpuError, CpuProfiler, Profile, Profiled};
use prost::Message as _;

/// The allocator also records the bounds of each thread's stack.
#[global_allocator]
static ALLOCATOR: Profiled<System> = Profiled::new(System);

#[inline(never)]
fn busy_in_this_function(end: &AtomicBool) -> u64 {
    let mut sum = 1_u64;
    while !end.load(Ordering::Relaxed) {
        // Signals must also be able to interrupt an allocation.
        sum = Box::new(std::hint::black_box(sum)).wrapping_mul(31);
    }
    sum
}

fn decoded(bytes: &[u8]) -> Profile {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    Profile::decode(&*plain).unwrap()
}

/// Takes a profile of this number of ticks with two busy threads, one started after the profile.
fn taken(ticks: u32) -> Profile {
    let mut profiler = CpuProfiler::start().unwrap();
    assert!(matches!(CpuProfiler::start(), Err(CpuError::InUse)));
    let end = Arc::new(AtomicBool::new(false));
    let busy = |end: Arc<AtomicBool>| std::thread::spawn(move || busy_in_this_function(&end));
    let mut threads = vec![busy(end.clone())];

    for tick in 0..ticks {
        std::thread::sleep(CpuProfiler::TICK);
        profiler.tick().unwrap();
        if tick == 0 {
            threads.push(busy(end.clone()));
        }
    }

    let profile = profiler.finish(5, Duration::from_secs(1)).unwrap();
    end.store(true, Ordering::Relaxed);
    threads
        .into_iter()
        .for_each(|thread| _ = thread.join().unwrap());

    decoded(&profile)
}

#[test]
fn busy_functions_are_seen_with_their_callers() {
    for _ in 0..2 {
        let profile = taken(30);
        let name = |place: i64| &*profile.string_table[usize::try_from(place).unwrap()];
        let stack = |ids: &[u64]| -> Vec<&str> {
            let locations = ids
                .iter()
                .map(|id| &profile.location[usize::try_from(*id).unwrap() - 1]);
            let lines = locations.flat_map(|location| &location.line);
            lines
                .map(|line| {
                    name(profile.function[usize::try_from(line.function_id).unwrap() - 1].name)
                })
                .collect()
        };

        let mut whole = 0;

        for sample in &profile.sample {
            let stack = stack(&sample.location_id);
            let called = stack
                .iter()
                .position(|name| name.ends_with("::busy_in_this_function"));
            whole += called
                .filter(|place| stack.len() > place + 5)
                .map_or(0, |_| sample.value[0]);
        }

        // On a loaded machine the threads get less than a processor each.
        assert!(whole > 20, "{whole} samples: {:?}", profile.string_table);
        let types: Vec<_> = profile
            .sample_type
            .iter()
            .map(|one| (name(one.r#type), name(one.unit)))
            .collect();
        assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);

        assert!(
            profile
                .sample
                .iter()
                .all(|sample| sample.value[1] == sample.value[0] * 10_000_000)
        );

        assert_eq!(
            (profile.time_nanos, profile.duration_nanos, profile.period),
            (5, 1_000_000_000, 10_000_000)
        );
        assert!(
            profile.mapping[0].has_functions && name(profile.mapping[0].filename).contains("cpu-")
        );
        assert_eq!(profile.comment, Vec::<i64>::new());
    }
}
