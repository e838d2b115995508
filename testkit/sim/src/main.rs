use navarch_sim::simulation::{Options, run};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let seed = args[1].parse().unwrap();
    let started = std::time::Instant::now();
    if args.len() > 2 {
        tracing_subscriber::fmt()
            .with_env_filter(&args[2])
            .with_ansi(false)
            .init();
    }
    let outcome = run(Options {
        seed,
        keep: None,
        is_printed: true,
    })
    .unwrap();
    println!(
        "hash {:x} simulated {:?} responses {} violations {:#?}",
        outcome.hash, outcome.simulated, outcome.responses, outcome.violations
    );
}
