//! The sampling allocator, installed as the program's global allocator.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::vec_box,
    reason = "a test with its own blocks, filled with the lowest byte of their address"
)]

use std::alloc::System;
use std::io::Read as _;

use flate2::read::GzDecoder;
use navarch_profile::{DefaultSampleType, Profile, Profiled, snapshot, totals};
use prost::Message as _;

#[global_allocator]
static ALLOCATOR: Profiled<System> = Profiled::new(System);

const MIB: i64 = 1 << 20;

fn profile() -> Profile {
    let mut bytes = Vec::new();
    GzDecoder::new(&*snapshot(DefaultSampleType::InUse, 7).unwrap())
        .read_to_end(&mut bytes)
        .unwrap();
    Profile::decode(&*bytes).unwrap()
}

/// The sums over all stacks that contain this function: allocated objects and bytes, objects and
/// bytes in use.
fn of(profile: &Profile, function: &str) -> [i64; 4] {
    let name = |place: i64| &profile.string_table[usize::try_from(place).unwrap()];
    let functions = profile
        .function
        .iter()
        .filter(|one| name(one.name).contains(function));
    let functions: Vec<u64> = functions.map(|one| one.id).collect();
    let inside = |id: &u64| {
        let location = profile
            .location
            .iter()
            .find(|location| location.id == *id)
            .unwrap();
        location
            .line
            .iter()
            .any(|line| functions.contains(&line.function_id))
    };

    let samples = profile
        .sample
        .iter()
        .filter(|sample| sample.location_id.iter().any(inside));
    samples.fold([0; 4], |mut sums, sample| {
        sums.iter_mut()
            .zip(&sample.value)
            .for_each(|(sum, value)| *sum += value);
        sums
    })
}

#[inline(never)]
fn small_blocks(count: usize) -> Vec<Box<[u8; 64]>> {
    let mut all = Vec::with_capacity(count);
    all.extend((0..count).map(|_| Box::new([1; 64])));
    all
}

#[inline(never)]
fn large_block(bytes: usize) -> Vec<u8> {
    let mut block = vec![0; bytes];
    block[bytes - 1] = 1;
    block
}

#[inline(never)]
fn grown_step_by_step(bytes: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for byte in 0..bytes {
        all.push(byte as u8);
    }
    all
}

fn within(value: i64, expected: i64, percent: i64) -> bool {
    (value - expected).abs() * 100 <= expected * percent
}

#[test]
fn live_memory_is_estimated_and_removed_when_freed() {
    // 128 MiB in small blocks, and 8 of the vector: 256 samples, so 20% are three standard
    // deviations.
    let before = totals();
    let held = small_blocks(2 << 20);
    let after = totals();
    let seen = profile();
    let [objects, bytes, objects_in_use, bytes_in_use] = of(&seen, "small_blocks");
    assert!(within(bytes_in_use, 144 * MIB, 20), "{bytes_in_use}");

    assert!(within(objects_in_use, 2 << 20, 20), "{objects_in_use}");
    assert_eq!((objects, bytes), (objects_in_use, bytes_in_use));

    // Other tests allocate meanwhile, so there is no upper bound.
    assert!(
        after.allocated_bytes - before.allocated_bytes >= u64::try_from(bytes).unwrap(),
        "{before:?} {after:?}"
    );
    assert!(
        after.allocated_objects - before.allocated_objects >= 1 << 20,
        "{before:?} {after:?}"
    );

    assert!(
        after.in_use_bytes >= u64::try_from(bytes_in_use).unwrap(),
        "{after:?}"
    );
    assert!(held.iter().all(|block| **block == [1; 64]));
    drop(held);
    let [objects_after, bytes_after, 0, 0] = of(&profile(), "small_blocks") else {
        panic!("some is still in use")
    };

    assert_eq!((objects_after, bytes_after), (objects, bytes));
    assert_eq!(
        (seen.time_nanos, seen.period, seen.sample_type.len()),
        (7, 512 * 1024, 4)
    );
}

#[test]
fn all_large_allocations_are_sampled() {
    let held: Vec<_> = (0..20).map(|_| large_block(16 << 20)).collect();
    let [.., objects, bytes] = of(&profile(), "large_block");
    assert!(
        (20..=21).contains(&objects) && within(bytes, 320 * MIB, 1),
        "{objects} {bytes}"
    );
    assert!(
        held.iter()
            .all(|block| block[0] == 0 && block[(16 << 20) - 1] == 1)
    );
    drop(held);
    let [.., objects, bytes] = of(&profile(), "large_block");
    assert_eq!((objects, bytes), (0, 0));
}

#[test]
fn reallocated_blocks_keep_their_contents() {
    let all: Vec<_> = (0..8).map(|_| grown_step_by_step(3 << 20)).collect();
    for block in &all {
        assert!(
            block
                .iter()
                .enumerate()
                .all(|(place, byte)| *byte == place as u8)
        );
    }

    // Each has a capacity of 4 MiB, which is sampled with a chance of 0.9997.
    let [_, allocated, _, in_use] = of(&profile(), "grown_step_by_step");
    assert!(
        within(in_use, 32 * MIB, 10) && allocated >= in_use,
        "{allocated} {in_use}"
    );
    let small: Vec<Vec<u8>> = all
        .into_iter()
        .map(|mut block| {
            block.truncate(1000);
            block.shrink_to_fit();
            block
        })
        .collect();

    assert!(small.iter().all(|block| {
        block
            .iter()
            .enumerate()
            .all(|(place, byte)| *byte == place as u8)
    }));

    drop(small);
    let [.., in_use] = of(&profile(), "grown_step_by_step");
    assert_eq!(in_use, 0);
}

#[inline(never)]
fn shuffled(seed: u64, passed: &std::sync::mpsc::Sender<Vec<u64>>) {
    let mut state = seed;
    let mut held: Vec<Vec<u64>> = Vec::new();

    for _ in 0..6_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let size = 1 << (state >> 60).min(12);
        let block = vec![state; size];

        match state >> 40 & 3 {
            0 => drop(held.pop()),
            1 => passed.send(block).unwrap(),
            2 => held.push(block),
            _ => {
                if let Some(last) = held.last_mut() {
                    let value = last[0];
                    last.resize(size + 1, value);
                }
            }
        }

        if held.len() > 200 {
            held.truncate(20);
        }
    }

    assert!(
        held.iter()
            .all(|block| block.iter().all(|value| *value == block[0]))
    );
}

#[test]
fn memory_freed_by_other_short_lived_threads_is_counted() {
    let (sender, receiver) = std::sync::mpsc::channel::<Vec<u64>>();
    let freeing = std::thread::spawn(move || {
        let whole = |block: Vec<u64>| block.iter().all(|value| *value == block[0]);
        receiver.into_iter().all(whole)
    });

    for round in 0..4 {
        let threads: Vec<_> = (1..=8)
            .map(|thread| {
                let sender = sender.clone();
                std::thread::spawn(move || shuffled(round * 8 + thread, &sender))
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }

    drop(sender);
    assert!(freeing.join().unwrap());
    let [objects, bytes, objects_in_use, bytes_in_use] = of(&profile(), "shuffled");
    assert!(objects > 0 && bytes > 32 * MIB, "{objects} {bytes}");
    assert_eq!((objects_in_use, bytes_in_use), (0, 0));
}
