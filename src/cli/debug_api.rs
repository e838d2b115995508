//! How commands ask a control plane: over HTTP, on its port of metrics and debug pages.

use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use http::{HeaderValue, Method, header};
use navarch_agent::local_http::{Answer, Question};
use navarch_api::regular_file;

/// The most bytes of an answer that are read.
const LIMIT: usize = 1 << 30;

/// Which control plane is asked.
#[derive(Args, Clone, Debug)]
pub(super) struct DebugApi {
    /// Where the control plane serves its debug pages; can be repeated, once per replica, or be a name that stands for all of
    /// them (a headless Service). From another machine than its own --token-file is needed
    #[arg(long = "address", global = true, value_name = "HOST:PORT", default_value = "127.0.0.1:15014")]
    addresses: Vec<String>,
    /// File with a token of a service account that may see debug pages
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A question without its place.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) method: Method,
    /// Path and query.
    pub(super) path: String,
    /// What is sent, as JSON.
    pub(super) body: Vec<u8>,
    /// How long the answer may take.
    pub(super) timeout: Duration,
}

impl Asked {
    /// A question for a page.
    pub(super) fn get(path: String, timeout: Duration) -> Self {
        Self { method: Method::GET, path, body: Vec::new(), timeout }
    }
}

impl DebugApi {
    /// Asks one control plane.
    ///
    /// # Errors
    /// When several are named, or it gives no answer.
    pub(super) fn ask(&self, asked: &Asked) -> anyhow::Result<Answer> {
        let (host, port, token_file) = self.one()?;
        ask_at(host, port, token_file, asked)
    }

    /// Host, port and token file of the one control plane that is named.
    ///
    /// # Errors
    /// When several are named, or the address has no port.
    pub(super) fn one(&self) -> anyhow::Result<(&str, u16, Option<&Path>)> {
        let [address] = self.addresses.as_slice() else { bail!("name one --address: one replica answers for all") };
        let (host, port) = host_and_port(address)?;
        Ok((host, port, self.token_file.as_deref()))
    }

    /// Asks every replica: each address that was named, and each that a name stands for. Gives their addresses with what they
    /// answered.
    ///
    /// # Errors
    /// When an address cannot be resolved.
    pub(super) fn ask_each(&self, asked: &Asked) -> anyhow::Result<Vec<(String, anyhow::Result<Answer>)>> {
        let mut answers = Vec::new();
        for address in &self.addresses {
            let (host, port) = host_and_port(address)?;
            let found = (host, port).to_socket_addrs().with_context(|| format!("{address} cannot be resolved"))?;
            let mut found: Vec<_> = found.collect();
            found.sort_unstable();
            found.dedup();
            // A machine that is named has loopback addresses of both families, and one control plane.
            if found.iter().all(|one| one.ip().is_loopback()) {
                answers.push((address.clone(), ask_at(host, port, self.token_file.as_deref(), asked)));
                continue;
            }
            for one in found {
                let answer = ask_at(&one.ip().to_string(), one.port(), self.token_file.as_deref(), asked);
                answers.push((one.to_string(), answer));
            }
        }
        Ok(answers)
    }
}

/// Parameters as they stand in a path.
pub(super) fn query(parameters: &[(&str, &str)]) -> String {
    let escaped = |text: &str| {
        let one = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        };
        text.bytes().map(one).collect::<String>()
    };
    parameters.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect::<Vec<_>>().join("&")
}

/// Host and port of an address, the brackets of IPv6 taken off.
///
/// # Errors
/// When it has no port.
pub(super) fn host_and_port(address: &str) -> anyhow::Result<(&str, u16)> {
    let (host, port) = address.rsplit_once(':').context("--address must be host:port")?;
    let port = port.parse().context("--address must be host:port")?;
    Ok((host.trim_start_matches('[').trim_end_matches(']'), port))
}

/// The header by which a token is shown.
///
/// # Errors
/// When the file cannot be read or holds no token.
pub(super) fn authorization(file: &Path) -> anyhow::Result<HeaderValue> {
    let token = regular_file::read_text(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).context("this is no token")?;
    value.set_sensitive(true);
    Ok(value)
}

/// Asks at one place.
fn ask_at(host: &str, port: u16, token_file: Option<&Path>, asked: &Asked) -> anyhow::Result<Answer> {
    let mut question = Question::get(host, port, &asked.path, asked.timeout);
    question.method = asked.method.clone();
    question.body = asked.body.clone().into();
    question.limit = LIMIT;
    if !asked.body.is_empty() {
        question.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Some(file) = token_file {
        question.headers.insert(header::AUTHORIZATION, authorization(file)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let answer = runtime.block_on(question.ask()).with_context(|| format!("{host}:{port} does not answer"))?;
    match answer.status.as_u16() {
        // What is not there is an answer, too.
        200..=299 | 404 => Ok(answer),
        401 | 403 => bail!("{host}:{port} does not let you: use --token-file, or ask on its own machine"),
        status => bail!("{host}:{port} answers {status}: {}", String::from_utf8_lossy(&answer.body).trim()),
    }
}
