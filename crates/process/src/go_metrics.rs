//! Metrics under the names of Go's runtime, which Istio's dashboards query, with the closest value
//! of this process.
//!
//! Go's stacks are those of goroutines. Tasks of tokio have none, so `go_memstats_stack_inuse_bytes`
//! is the only stack that the kernel reports by itself, that of the main thread. The stacks of other
//! threads are part of the anonymous memory (`go_memstats_heap_inuse_bytes`).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::runtime::Handle;

use crate::gauge::gauge;
use crate::usage::PrivateMemory;

/// Bytes in use: `alloc_bytes` and `heap_alloc_bytes` are the same in Go, too.
const IN_USE: &str = "Bytes allocated and not freed, estimated from samples; the name is Go's, as used by Istio's dashboards";

/// Computed at each scrape.
#[derive(Debug)]
pub struct GoMetrics {
    runtime: Handle,
}

/// The values of one scrape.
struct GoValues {
    tasks: f64,
    allocated: navarch_profile::Totals,
    memory: PrivateMemory,
}

impl GoMetrics {
    /// Metrics of the process, and of the tasks of this runtime.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        Self { runtime }
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are doubles")]
impl GoValues {
    fn read(runtime: &Handle) -> Self {
        Self {
            tasks: runtime.metrics().num_alive_tasks() as f64,
            allocated: navarch_profile::totals(),
            memory: PrivateMemory::read(),
        }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Tasks of the tokio runtime; the name is Go's, as used by Istio's dashboards";
        gauge(encoder, "go_goroutines", help, self.tasks)?;
        let in_use = self.allocated.in_use_bytes as f64;
        gauge(encoder, "go_memstats_alloc_bytes", IN_USE, in_use)?;
        gauge(encoder, "go_memstats_heap_alloc_bytes", IN_USE, in_use)?;

        // OpenMetrics does not allow a counter and a gauge whose names differ in `_total` only.
        let help = "Bytes allocated since the process started, estimated from samples; \
                    the name is Go's, as used by Istio's dashboards";
        ConstGauge::new(self.allocated.allocated_bytes as f64).encode(
            encoder.encode_descriptor(
                "go_memstats_alloc_bytes_total",
                help,
                None,
                MetricType::Unknown,
            )?,
        )?;

        let help = "Blocks of memory allocated since the process started, estimated from samples; \
                    the name is Go's, as used by Istio's dashboards";
        let mallocs = ConstCounter::new(self.allocated.allocated_objects as f64);
        mallocs.encode(encoder.encode_descriptor(
            "go_memstats_mallocs",
            help,
            None,
            mallocs.metric_type(),
        )?)?;

        let help = "Bytes of anonymous memory, which is heap and stacks; the name is Go's, as used by Istio's dashboards";
        if let Some(resident) = self.memory.resident {
            gauge(encoder, "go_memstats_heap_inuse_bytes", help, resident)?;
        }

        let help = "Bytes of address space for heap and stacks, used or not; the name is Go's, as used by Istio's dashboards";
        if let Some(mapped) = self.memory.mapped {
            gauge(encoder, "go_memstats_heap_sys_bytes", help, mapped)?;
        }

        let help = "Bytes of the main thread's stack; those of other threads are part of the heap's; the name is Go's, as used by Istio's dashboards";
        if let Some(stack) = self.memory.main_stack {
            gauge(encoder, "go_memstats_stack_inuse_bytes", help, stack)?;
        }

        Ok(())
    }
}

impl Collector for GoMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        GoValues::read(&self.runtime).encode(&mut encoder)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;
    use tokio::task::JoinSet;

    use super::*;

    fn scraped(registry: &Registry) -> impl Fn(&str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        move |name| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name}: {text}"))
                .parse()
                .unwrap()
        }
    }

    #[tokio::test]
    async fn tasks_and_memory_have_the_metric_names_of_go() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(GoMetrics::new(Handle::current())));
        let before = scraped(&registry)("go_goroutines");
        let mut waiting = JoinSet::new();
        waiting.spawn(std::future::pending::<()>());
        let value = scraped(&registry);
        assert!(
            (value("go_goroutines") - before - 1.0).abs() < 0.1,
            "the task that waits"
        );

        drop(waiting);
        assert!(value("go_memstats_heap_inuse_bytes") > 1e5);
        assert!(value("go_memstats_heap_sys_bytes") >= value("go_memstats_heap_inuse_bytes"));
        assert!(value("go_memstats_stack_inuse_bytes") > 0.0);

        // Which allocator a test has is not its own choice: without samples these are 0.
        assert!(value("go_memstats_alloc_bytes_total") >= value("go_memstats_alloc_bytes"));
        assert!(
            value("go_memstats_mallocs_total") >= 0.0
                && value("go_memstats_heap_alloc_bytes") >= 0.0
        );
    }

    #[test]
    fn each_value_has_its_metric_name() {
        struct Fixed(GoValues);

        impl fmt::Debug for Fixed {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("Fixed")
            }
        }

        impl Collector for Fixed {
            fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
                self.0.encode(&mut encoder)
            }
        }

        let allocated = navarch_profile::Totals {
            allocated_objects: 3,
            allocated_bytes: 50,
            in_use_bytes: 20,
        };
        let memory = PrivateMemory {
            mapped: Some(9.0),
            resident: Some(8.0),
            main_stack: Some(6.0),
        };

        let mut registry = Registry::default();
        registry.register_collector(Box::new(Fixed(GoValues {
            tasks: 7.0,
            allocated,
            memory,
        })));
        let value = scraped(&registry);

        for (name, expected) in [
            ("go_goroutines", 7.0),
            ("go_memstats_alloc_bytes", 20.0),
            ("go_memstats_alloc_bytes_total", 50.0),
            ("go_memstats_heap_alloc_bytes", 20.0),
            ("go_memstats_heap_inuse_bytes", 8.0),
            ("go_memstats_heap_sys_bytes", 9.0),
            ("go_memstats_mallocs_total", 3.0),
            ("go_memstats_stack_inuse_bytes", 6.0),
        ] {
            assert!((value(name) - expected).abs() < 0.1, "{name}");
        }
    }
}
