//! The program `openssl`: creates requests and verifies certificates.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// Runs it and returns its output.
fn run(folder: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("openssl")
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()?;
    ensure!(
        output.status.success(),
        "openssl {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// A request for a new key of this type, with names to which its sender has no right.
pub(crate) fn request(folder: &Path, key: &[&str]) -> Result<String> {
    let mut args = vec![
        "req",
        "-new",
        "-nodes",
        "-subj",
        "/CN=evil.example",
        "-keyout",
        "key.pem",
    ];

    args.extend([
        "-addext",
        "subjectAltName=DNS:evil.example",
        "-addext",
        "1.2.3.4=DER:0500",
        "-newkey",
    ]);

    args.extend(key);
    run(folder, &args)
}

/// The names in a certificate, after verifying that it is valid for servers and clients.
pub(crate) fn verified(folder: &Path, leaf: &str, root: &str) -> Result<String> {
    std::fs::write(folder.join("leaf.pem"), leaf)?;
    std::fs::write(folder.join("root.pem"), root)?;

    for purpose in ["sslserver", "sslclient"] {
        run(
            folder,
            &[
                "verify",
                "-x509_strict",
                "-purpose",
                purpose,
                "-CAfile",
                "root.pem",
                "leaf.pem",
            ],
        )?;
    }

    run(
        folder,
        &[
            "x509",
            "-in",
            "leaf.pem",
            "-noout",
            "-ext",
            "subjectAltName",
        ],
    )
}

/// Whether a server accepts this version of TLS.
pub(crate) fn connects(server: SocketAddr, version: &str) -> Result<bool> {
    let server = server.to_string();
    let args = [
        "s_client",
        "-connect",
        &server,
        version,
        "-cipher",
        "ALL:@SECLEVEL=0",
    ];
    let status = Command::new("openssl")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(status.success())
}
