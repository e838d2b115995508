//! `navarch analyze`: finds probable mistakes in the configuration.

pub(super) mod live;
mod revision;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use navarch_analysis::analyzer::{self, Findings};
use navarch_analysis::{
    Context, Filter, Kind, Level, Mesh, Message, Reader, Suppression, messages,
};
use navarch_base::printable::escape;
use serde::Serialize as _;
use tokio::runtime::Runtime;

use super::color::{Color, Colors};
use super::kubeconfig::{ClusterClient, IstioNamespaceFlag};
use super::output::{self, print_json, print_yaml, report};
use super::reading;
use live::{AnalyzedNamespaces, Live, LiveFlags};

/// The exit code if messages reach --failure-threshold.
const MESSAGES_EXIT_CODE: u8 = 79;
/// The exit code if a file cannot be parsed.
const UNREADABLE_EXIT_CODE: u8 = 65;
/// The exit code without messages, if something could not be analyzed.
const INCOMPLETE_EXIT_CODE: u8 = 1;
/// The extensions of files with objects.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];
/// The namespace of objects without one.
const DEFAULT_NAMESPACE: &str = "default";

/// Find probable mistakes in configuration
///
/// Like `istioctl analyze`: same analyzers, codes, levels and messages. Nothing is applied, and no
/// control plane is involved.
///
/// Without files, the cluster of the kubeconfig is analyzed, together with the remote clusters of
/// its Secrets. With files, only the files are analyzed, unless a cluster is selected
/// (--kubeconfig, --context, --revision, --remote-contexts or --use-kube): then the cluster is
/// analyzed as if the files were applied.
///
/// Services, pods, namespaces, nodes and Secrets exist in a cluster, and files usually lack them:
/// these kinds are not read from files, and without a cluster the analyzers that need them are
/// skipped. With --complete the files are the whole mesh, and every analyzer runs.
///
/// Exit codes: 0 no message of --failure-threshold; 1 the analysis failed, or part of the cluster
/// could not be read; 2 the command line is wrong; 65 a file could not be parsed; 79 there are
/// messages. With -o json and -o yaml messages do not change the exit code.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch analyze -A                                 the cluster of the kubeconfig
  navarch analyze -n shop --context east             one namespace of another cluster
  navarch analyze -n shop --use-kube config/         the cluster as if the files were applied
  navarch analyze config/                            the files, in the namespace default
  navarch analyze -A config/ mesh.yaml               in all namespaces
  navarch analyze -A --complete cluster/             the files are the whole mesh: missing Services and pods are reported, too
  navarch analyze -A -S 'IST0101=VirtualService shop/*' --failure-threshold Warning config/ || exit 1
  navarch analyze --list-analyzers")]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a separate flag of istioctl"
)]
pub(super) struct Analyze {
    /// Files, directories, or - for the standard input
    files: Vec<PathBuf>,
    /// The same, as in kubectl; can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    filenames: Vec<PathBuf>,
    /// Namespace to analyze, which is also that of objects without one; if unset, that of the
    /// context, or `default`
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Analyze all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    #[command(flatten)]
    system: IstioNamespaceFlag,
    /// The files are the whole mesh: also read Services, pods, namespaces, nodes and Secrets from
    /// them, and run the analyzers that need them
    #[arg(long, conflicts_with_all = ["kubeconfig", "context", "revision", "remote_contexts"])]
    complete: bool,
    #[command(flatten)]
    live: LiveFlags,
    /// Whether to read a cluster; if unset, it is read if there are no files, or if a cluster is
    /// selected
    #[arg(short = 'k', long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    use_kube: Option<bool>,
    /// Output format of messages
    #[arg(
        short = 'o',
        long,
        value_name = "FORMAT",
        default_value = "log",
        ignore_case = true
    )]
    output: Format,
    /// Lowest level that makes the command fail: Error, Warning or Info
    #[arg(long, value_name = "LEVEL", default_value = "Error", value_parser = level)]
    failure_threshold: Level,
    /// Lowest level that is printed: Error, Warning or Info
    #[arg(long, value_name = "LEVEL", default_value = "Info", value_parser = level)]
    output_threshold: Level,
    /// Messages to suppress, as CODE=OBJECT, where * matches anything; can be repeated
    #[arg(short = 'S', long, value_name = "CODE=OBJECT")]
    suppress: Vec<Suppression>,
    /// Analyzer to run; can be repeated; all if unset
    #[arg(long, value_name = "NAME")]
    analyzer: Vec<String>,
    /// File with mesh config: key mesh of the ConfigMap istio
    #[arg(
        long = "meshConfigFile",
        alias = "mesh-config-file",
        value_name = "FILE"
    )]
    mesh_config: Option<PathBuf>,
    /// Do not fail for files that cannot be parsed
    #[arg(long)]
    ignore_unknown: bool,
    /// Only print the list of analyzers
    #[arg(short = 'L', long)]
    list_analyzers: bool,
    /// Print which analyzers ran and which were skipped
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Whether levels are colored; if unset, on a terminal
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    color: Option<bool>,
    /// Read directories recursively, which is always done
    #[arg(short = 'R', long, hide = true)]
    recursive: bool,
}

/// A form of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people: a line for each
    Log,
    /// For programs
    Json,
    /// For programs
    Yaml,
}

/// Parses a level.
fn level(text: &str) -> Result<Level, String> {
    Level::parse(text).ok_or_else(|| "is none of Error, Warning and Info".to_owned())
}

impl Analyze {
    /// Runs the analysis and prints it.
    ///
    /// # Errors
    /// If files or the mesh config cannot be read.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if self.list_analyzers {
            output::write(&list())?;
            return Ok(ExitCode::SUCCESS);
        }
        self.analyze().map(ExitCode::from)
    }

    /// Runs the analysis, prints it and returns the exit code.
    fn analyze(&self) -> anyhow::Result<u8> {
        let files = self.collect_files()?;
        let is_live = self
            .use_kube
            .unwrap_or_else(|| self.live.is_given() || files.is_empty() && !self.complete);
        ensure!(
            is_live || !files.is_empty(),
            "name at least one file, such as navarch analyze config/"
        );

        ensure!(
            !(is_live && self.complete),
            "--complete and --use-kube cannot be combined"
        );
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start the tokio runtime")?;

        let opened = is_live
            .then(|| runtime.block_on(self.live.open()))
            .transpose()?;
        let target = self.target(opened.as_ref());
        let mut reader = Reader::new(&target, self.complete);
        for file in &files {
            reader.read(&file.display().to_string(), &reading::read(file)?);
        }

        let faults = reader.faults().to_vec();
        for fault in &faults {
            report(&escape(&format!("{fault} - skipping")));
        }

        for unknown in self
            .suppress
            .iter()
            .filter(|unwanted| !messages::is_code(&unwanted.code))
        {
            report(&format!(
                "Warning: Supplied message code '{}' is an unknown message code and will not have any effect.",
                unknown.code
            ));
        }

        let live = opened
            .map(|opened| self.read_clusters(&runtime, &opened, &target))
            .transpose()?;
        let mut mesh = Mesh {
            system_namespace: self.system.istio_namespace.clone(),
            ..Mesh::default()
        };
        if let Some(live) = &live {
            mesh = live.mesh.clone();
        }

        if let Some(file) = &self.mesh_config {
            let text = reading::read(file)?;
            let config = Mesh::default().config.apply(&text);
            mesh.config = config.with_context(|| file.display().to_string())?.value;
        }

        let missing: BTreeSet<Kind> = match &live {
            Some(live) => {
                live.objects
                    .iter()
                    .for_each(|object| reader.add(Arc::clone(object)));
                live.missing.keys().copied().collect()
            }
            None if self.complete => {
                reader.add_ingress_gateway(&mesh);
                BTreeSet::new()
            }
            None => Kind::of_runtime().collect(),
        };

        let context = Context::new(reader, mesh, missing);
        let filter = Filter {
            namespace: target.clone(),
            suppressions: self.suppress.clone(),
        };
        let mut findings = analyzer::analyze(&context, &self.analyzer, &filter);

        if live.as_ref().is_some_and(|live| live.is_one_of_several) {
            findings.messages = findings
                .messages
                .into_iter()
                .map(Message::with_cluster)
                .collect();
        }

        let warnings = live
            .map(|live| live.warnings(&findings))
            .unwrap_or_default();
        for warning in &warnings {
            report(&escape(&format!("Warning: {warning}.")));
        }

        let code = self.print_findings(&findings, &files, target.as_str(), faults.len())?;
        Ok(if code == 0 && !warnings.is_empty() {
            INCOMPLETE_EXIT_CODE
        } else {
            code
        })
    }

    /// Reads the objects of clusters, of the kinds that the analyzers need.
    fn read_clusters(
        &self,
        runtime: &Runtime,
        opened: &ClusterClient,
        target: &str,
    ) -> anyhow::Result<Live> {
        let kinds = analyzer::inputs(&self.analyzer);
        let namespaces = AnalyzedNamespaces {
            reported: target,
            system: &self.system.istio_namespace,
        };
        runtime.block_on(self.live.read(opened, &kinds, namespaces))
    }

    /// The reported namespace; empty for all.
    fn target(&self, opened: Option<&ClusterClient>) -> String {
        if self.all_namespaces {
            return String::new();
        }
        let named = self
            .namespace
            .as_deref()
            .or(opened.map(|opened| opened.namespace.as_str()));
        named
            .filter(|namespace| !namespace.is_empty())
            .unwrap_or(DEFAULT_NAMESPACE)
            .to_owned()
    }

    /// The files to analyze.
    fn collect_files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in self.files.iter().chain(&self.filenames) {
            if path == Path::new("-") || path.is_dir() {
                files.extend(reading::files_of(path)?);
            } else if path
                .extension()
                .is_some_and(|end| EXTENSIONS.iter().any(|known| end == *known))
            {
                files.push(path.clone());
            } else {
                ensure!(path.exists(), "file not found: {}", path.display());
                report(&escape(&format!(
                    "Skipping file {}, recognized file extensions are: [.json .yaml .yml]",
                    path.display()
                )));
            }
        }

        Ok(files)
    }

    /// Prints the messages about what was analyzed (`target`), of which `faults` objects could not be
    /// read, and returns the exit code.
    fn print_findings(
        &self,
        findings: &Findings,
        files: &[PathBuf],
        target: &str,
        faults: usize,
    ) -> anyhow::Result<u8> {
        if self.verbose {
            report(&format!("Analyzed resources in {}", target_words(target)));
            for (title, names) in [
                ("Skipped", &findings.skipped),
                ("Executed", &findings.executed),
            ] {
                if !names.is_empty() {
                    report(&format!("{title} analyzers:\n\t{}", names.join("\n\t")));
                }
            }
        }

        let shown: Vec<_> = findings
            .messages
            .iter()
            .filter(|message| message.level() <= self.output_threshold)
            .collect();

        match self.output {
            Format::Log => {
                let lines: Vec<_> = shown.iter().map(|message| self.line(message)).collect();
                output::write(&format!("{}\n", lines.join("\n")))?;
            }
            Format::Json => print_json(&json(&shown)?)?,
            Format::Yaml if shown.is_empty() => print_yaml("[]\n\n")?,
            Format::Yaml => {
                let values: Vec<_> = shown.iter().map(|message| message.to_json()).collect();
                print_yaml(&format!("{}\n", serde_saphyr::to_string(&values)?))?;
            }
        }

        if shown.is_empty() {
            report(&success_text(files, target, faults));
        }

        let is_found = findings
            .messages
            .iter()
            .any(|message| message.level() <= self.failure_threshold);

        Ok(match self.output {
            Format::Log if is_found => {
                report(&format!(
                    "Error: Analyzers found issues when analyzing {}.\nSee {} for more information about causes and resolutions.",
                    target_words(target),
                    navarch_analysis::EXPLANATIONS
                ));
                MESSAGES_EXIT_CODE
            }
            Format::Log if faults > 0 && !self.ignore_unknown => {
                report(&"Error: Some files couldn't be parsed.");
                UNREADABLE_EXIT_CODE
            }
            Format::Log | Format::Json | Format::Yaml => 0,
        })
    }

    /// A message as one line.
    fn line(&self, message: &Message) -> String {
        let text = message.to_string();
        let text = escape(&text);
        let level = message.level().to_string();
        let color = match message.level() {
            Level::Error => Color::Red,
            Level::Warning => Color::Yellow,
            Level::Info => return text.into_owned(),
        };
        match text.strip_prefix(&level) {
            Some(rest) => format!(
                "{}{rest}",
                Colors::of_stdout(self.color).paint(color, &level)
            ),
            None => text.into_owned(),
        }
    }
}

/// The reported namespace in the wording of messages.
fn target_words(target: &str) -> String {
    match target {
        "" => "all namespaces".to_owned(),
        namespace => format!("namespace: {namespace}"),
    }
}

/// The text if there are no messages.
fn success_text(files: &[PathBuf], target: &str, faults: usize) -> String {
    let target = target_words(target);

    if faults > 0 {
        let noun = if faults == 1 { "object" } else { "objects" };
        return format!(
            "No validation issues found when analyzing {target} (but {faults} {noun} could not be parsed)."
        );
    }

    let names: Vec<_> = files
        .iter()
        .map(|file| escape(&file.display().to_string()).into_owned())
        .collect();
    match names.as_slice() {
        [] => format!("\u{2714} No validation issues found when analyzing {target}."),
        [one] => format!("\u{2714} No validation issues found when analyzing {one}."),
        many => format!(
            "\u{2714} No validation issues found when analyzing:\n  - {}",
            many.join("\n  - ")
        ),
    }
}

fn list() -> String {
    let mut all: Vec<_> = analyzer::all().collect();
    all.sort_unstable_by_key(|analyzer| analyzer.name);
    all.iter()
        .map(|analyzer| format!("* {}:\n    {}\n", analyzer.name, analyzer.description))
        .collect()
}

/// Messages as JSON in Go's format: indented with tabs, and with HTML characters escaped.
fn json(messages: &[&Message]) -> anyhow::Result<String> {
    let values: Vec<_> = messages.iter().map(|message| message.to_json()).collect();
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"\t");
    values.serialize(&mut serde_json::Serializer::with_formatter(
        &mut out, formatter,
    ))?;
    let text = String::from_utf8(out)?;
    Ok(text
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// A command line of its own.
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        analyze: Analyze,
    }

    /// The exit code of the analysis of a text with these flags.
    fn code(text: &str, flags: &[&str]) -> anyhow::Result<u8> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), text).unwrap();
        let words = ["analyze"]
            .iter()
            .chain(flags)
            .map(|word| (*word).to_owned());
        let words = words.chain([folder.path().display().to_string()]);
        Line::try_parse_from(words)?.analyze.analyze()
    }

    #[test]
    fn exit_codes_are_istioctls() {
        let object = |spec: &str| {
            format!(
                "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: a, namespace: shop}}\nspec: {spec}\n"
            )
        };
        let lost = object(
            "{hosts: [a.com], gateways: [gone], http: [{route: [{destination: {host: a.com}}]}]}",
        );

        let good = object("{hosts: [a.com], http: [{route: [{destination: {host: a.com}}]}]}");
        let broken = format!("{good}---\nkind: nothing\n");

        for (text, flags, expected) in [
            (&lost, &[][..], 0),
            (&lost, &["-n", "shop"], 79),
            (&lost, &["-A"], 79),
            (&lost, &["-A", "-o", "json"], 0),
            (&lost, &["-A", "-o", "yaml"], 0),
            (&lost, &["-A", "-S", "IST0101=VirtualService shop/*"], 0),
            (
                &lost,
                &[
                    "-A",
                    "-S",
                    "IST0101=VirtualService shop/*",
                    "--failure-threshold",
                    "warning",
                ],
                79,
            ),
            (
                &lost,
                &[
                    "-A",
                    "--use-kube=false",
                    "--analyzer",
                    "schema.ValidationAnalyzer.Gateway",
                ],
                0,
            ),
            (&good, &["-A"], 0),
            (&good, &["-A", "--complete"], 79),
            (&broken, &["-A"], 65),
            (&broken, &["-A", "--ignore-unknown"], 0),
        ] {
            assert_eq!(code(text, flags).unwrap(), expected, "{flags:?} {text}");
        }

        for flags in [
            &["--failure-threshold", "Bad"][..],
            &["--complete", "--context", "c"],
            &["--complete", "--use-kube"],
        ] {
            assert!(code(&good, flags).is_err(), "{flags:?}");
        }

        let error = code(&good, &["--kubeconfig", "/nowhere/kubeconfig"]).unwrap_err();
        assert!(
            error.to_string().contains("--kubeconfig /nowhere"),
            "{error:#}"
        );
    }
}
