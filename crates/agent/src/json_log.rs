//! Log lines as JSON objects with Istio's members (`level`, `time`, `scope`, `msg`), for tools that
//! parse Istio's logs: `istioctl bug-report` with a start time drops lines that it cannot parse.

use std::fmt::{self, Debug, Write as _};

use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_log::NormalizeEvent as _;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes each event as one line, with timestamps of this clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonLines<T = SystemTime>(T);

/// One line, with the members in the order that is best to read.
#[derive(Serialize)]
struct Line<'a> {
    level: &'static str,
    time: String,
    scope: &'a str,
    msg: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    span: String,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// The members of [`Line`]. An event field with one of these names gets an underscore appended.
const MEMBERS: [&str; 5] = ["level", "time", "scope", "msg", "span"];

impl<S, N, T> FormatEvent<S, N> for JsonLines<T>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    T: FormatTime,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        // Events of the `log` crate contain their own module and level as fields.
        let normalized = event.normalized_metadata();
        let metadata = normalized.as_ref().unwrap_or_else(|| event.metadata());
        let mut time = String::new();
        self.0.format_time(&mut Writer::new(&mut time))?;
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let line = Line {
            level: level(*metadata.level()),
            time,
            scope: metadata.target(),
            msg: fields.message,
            span: spans(context)?,
            fields: fields.fields,
        };

        writeln!(
            writer,
            "{}",
            serde_json::to_string(&line).map_err(|_| fmt::Error)?
        )
    }
}

/// The spans around an event, outermost first, as in `connection{peer=10.0.0.1}:stream`.
fn spans<S, N>(context: &FmtContext<'_, S, N>) -> Result<String, fmt::Error>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let mut text = String::new();
    for span in context
        .event_scope()
        .into_iter()
        .flat_map(|scope| scope.from_root())
    {
        let between = if text.is_empty() { "" } else { ":" };
        write!(text, "{between}{}", span.name())?;
        if let Some(fields) = span
            .extensions()
            .get::<FormattedFields<N>>()
            .filter(|fields| !fields.is_empty())
        {
            write!(text, "{{{fields}}}")?;
        }
    }
    Ok(text)
}

/// Istio's name of a level.
fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// The message and fields of an event.
#[derive(Debug, Default)]
struct EventFields {
    message: String,
    fields: Map<String, Value>,
}

impl EventFields {
    fn put(&mut self, field: &Field, value: Value) {
        match field.name() {
            "message" => {
                self.message = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            }
            name if name.starts_with("log.") => {}
            name => {
                let behind = if MEMBERS.contains(&name) { "_" } else { "" };
                self.fields
                    .insert(format!("{}{behind}", name.trim_start_matches("r#")), value);
            }
        }
    }
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, Value::from(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::from(value));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// A clock that stands still.
    struct Noon;

    impl FormatTime for Noon {
        fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
            writer.write_str("2026-08-22T12:00:00.000000Z")
        }
    }

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Kept {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn lines_have_the_members_that_istios_have() {
        let kept = Kept::default();
        let log = tracing_subscriber::fmt()
            .with_ansi(false)
            .event_format(JsonLines(Noon));
        let log = log.with_writer(kept.clone()).finish();
        tracing::subscriber::with_default(log, || {
            tracing::warn!(level = "debug", count = 3, up = true, error = %"line 1\nline \"2\"", "changed\tall");
            let _outer = tracing::info_span!("connection").entered();
            let _inner = tracing::info_span!("stream", proxy = "web-1").entered();
            tracing::info!(target: "elsewhere", r#type = "CDS", "sent to {}", "web-1");
            tracing::debug!("below the level");
        });

        let expected = concat!(
            r#"{"level":"warn","time":"2026-08-22T12:00:00.000000Z","scope":"navarch_agent::json_log::tests","#,
            r#""msg":"changed\tall","count":3,"error":"line 1\nline \"2\"","level_":"debug","up":true}"#,
            "\n",
            r#"{"level":"info","time":"2026-08-22T12:00:00.000000Z","scope":"elsewhere","msg":"sent to web-1","#,
            r#""span":"connection:stream{proxy=\"web-1\"}","type":"CDS"}"#,
            "\n",
        );

        assert_eq!(String::from_utf8(kept.0.lock().clone()).unwrap(), expected);
    }

    #[test]
    fn every_member_of_a_line_is_kept_from_events_fields() {
        let line = Line {
            level: "info",
            time: String::new(),
            scope: "",
            msg: String::new(),
            span: "stream".to_owned(),
            fields: Map::new(),
        };

        let members = serde_json::to_value(&line).unwrap();
        let mut names: Vec<&str> = members
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();

        let mut known = MEMBERS.to_vec();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
    }
}
