//! `navarch support-bundle`: one file with the data that is needed to investigate a fault.

mod symmetric_keys;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde_json::json;

use super::debug_api::{DebugApi, DebugRequest};
use super::output::{Output, print};
use super::progress::Progress;
use navarch_base::printable::escape;
use navarch_base::regular_file;
use navarch_record::segments;

/// Timeout of one page.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a file of a recording in bytes.
const MAX_FILE_BYTES: u64 = 8 << 30;
/// The pages in the bundle, with their file names. None of them contains a Secret; objects and mesh
/// config are in them as they are, without symmetric keys of JWKS.
const BUNDLED_PAGES: &[(&str, &str)] = &[
    ("/version", "version.json"),
    ("/metrics", "metrics.txt"),
    ("/debug/doctor?whole=true", "doctor.json"),
    ("/debug/push_status", "push_status.json"),
    ("/debug/syncz", "syncz.json"),
    ("/debug/connections", "connections.json"),
    ("/debug/clusterz", "clusterz.json"),
    ("/debug/configz", "configz.json"),
    ("/debug/mesh", "mesh.json"),
    ("/debug/networkz", "networkz.json"),
    ("/debug/registryz", "registryz.json"),
    ("/debug/endpointz", "endpointz.json"),
    ("/debug/cachez", "cachez.json"),
    ("/debug/view/changes", "changes.json"),
];

/// What a reader of the bundle can see, for those who pass it on.
const NOTE: &str = "note: configz.json and mesh.json have the configuration as it is, with what \
    EnvoyFilters, WasmPlugins and headers of tracing providers contain: search them for passwords \
    before you pass the bundle on";

/// Collect data for the diagnosis of a problem: versions, metrics, debug pages, a recording
///
/// The bundle is a tar.gz with the data of every control plane, and a recording if there is one. It
/// contains no Secrets and no symmetric keys of JWKS, but names, addresses and all other
/// configuration as it is: also passwords in EnvoyFilters, in the configuration of Wasm modules and
/// in mesh config. A recording is packed unchanged.
///
/// Exit codes: 0 complete; 1 something is missing, see errors.txt in the bundle; 2 the command line
/// is wrong.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch support-bundle                                 every control plane of the kubeconfig's cluster
  navarch support-bundle --record /var/lib/navarch/record --file fault.tar.gz
  navarch support-bundle --address istiod-debug.istio-system:15014 --token-file token")]
pub(super) struct SupportBundle {
    /// Output file; navarch-support-TIME.tar.gz in this directory if unset
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Directory of a recording (navarch discovery --record DIR) to include
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Output format of the summary
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    api: DebugApi,
}

/// A bundle that is being written.
struct Bundle<W: Write> {
    tar: tar::Builder<GzEncoder<W>>,
    now: Timestamp,
    files: Vec<String>,
    errors: Vec<String>,
}

impl<W: Write> Bundle<W> {
    fn add(&mut self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(u64::try_from(bytes.len())?);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(self.now.as_second()).unwrap_or_default());
        self.tar
            .append_data(&mut header, format!("navarch-support/{name}"), bytes)?;
        self.files.push(name.to_owned());
        Ok(())
    }
}

impl SupportBundle {
    /// Writes the bundle, and prints a summary.
    ///
    /// # Errors
    /// If the file cannot be written, or nothing could be packed.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let now = Timestamp::now();
        let name = || {
            PathBuf::from(format!(
                "navarch-support-{}.tar.gz",
                now.strftime("%Y%m%dT%H%M%SZ")
            ))
        };

        let path = self.file.clone().unwrap_or_else(name);
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let file = made.with_context(|| {
            format!("failed to write {}: choose another --file", path.display())
        })?;

        let packed = self
            .pack(file, now)
            .with_context(|| path.display().to_string());
        let (files, errors) = packed.inspect_err(|_| {
            // A partial bundle is useless; the reason is printed.
            _ = std::fs::remove_file(&path);
        })?;
        let lines = files
            .iter()
            .map(|file| format!("  {}\n", escape(file)))
            .collect::<String>();

        let wrong = errors
            .iter()
            .map(|error| format!("  missing: {}\n", escape(error)))
            .collect::<String>();
        let text = format!(
            "{}\n{lines}{wrong}{NOTE}\n",
            escape(&path.display().to_string())
        );
        print(
            self.output,
            &text,
            &json!({ "file": path, "packed": files, "missing": errors, "note": NOTE }),
        )?;

        Ok(ExitCode::from(u8::from(!errors.is_empty())))
    }

    /// Packs everything. Returns the names of the packed files, and the errors.
    fn pack(&self, file: impl Write, now: Timestamp) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        let mut bundle = Bundle {
            tar,
            now,
            files: Vec::new(),
            errors: Vec::new(),
        };

        self.pack_pages(&mut bundle)?;
        if let Some(dir) = &self.record {
            pack_record(&mut bundle, dir)?;
        }

        if bundle.files.is_empty() {
            bail!("no data was collected: {}", bundle.errors.join("; "));
        }

        let own = json!({ "version": env!("NAVARCH_VERSION"), "commit": env!("NAVARCH_COMMIT"), "at": now.to_string() });
        bundle.add("bundle.json", format!("{own:#}\n").as_bytes())?;

        if !bundle.errors.is_empty() {
            let text = format!("{}\n", bundle.errors.join("\n"));
            bundle.add("errors.txt", text.as_bytes())?;
        }

        bundle.tar.into_inner()?.finish()?.flush()?;
        Ok((bundle.files, bundle.errors))
    }

    /// Packs the pages of every control plane.
    fn pack_pages(&self, bundle: &mut Bundle<impl Write>) -> anyhow::Result<()> {
        let progress = Progress::begin("packing");

        for (at, (path, name)) in BUNDLED_PAGES.iter().enumerate() {
            progress.set_text(format!(
                "packing {path}, {} of {} pages",
                at + 1,
                BUNDLED_PAGES.len()
            ));
            for (address, answer) in self
                .api
                .query_each(&DebugRequest::get((*path).to_owned(), REQUEST_TIMEOUT))?
            {
                let place = format!("{}/{name}", address.replace(['/', ':', '[', ']'], "_"));
                match answer {
                    Ok(answer) => {
                        bundle.add(&place, &symmetric_keys::leave_out(&answer.body))?;
                    }
                    Err(error) => bundle.errors.push(format!("{address}{path}: {error:#}")),
                }
            }
        }

        Ok(())
    }
}

/// Packs a recording. A segment that is deleted meanwhile, as the oldest ones are, is omitted.
fn pack_record(bundle: &mut Bundle<impl Write>, dir: &Path) -> anyhow::Result<()> {
    let all =
        segments(dir).with_context(|| format!("--record: failed to read {}", dir.display()))?;
    ensure!(
        !all.is_empty(),
        "--record: no recording in {}",
        dir.display()
    );
    let progress = Progress::begin("packing the recording");

    for (at, (_, path)) in all.iter().enumerate() {
        progress.set_text(format!(
            "packing the recording, {} of {} files",
            at + 1,
            all.len()
        ));
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        match regular_file::read(path, MAX_FILE_BYTES) {
            Ok(bytes) => bundle.add(&format!("record/{name}"), &bytes)?,
            Err(error) => bundle.errors.push(format!("{}: {error}", path.display())),
        }
    }

    Ok(())
}
