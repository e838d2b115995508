//! The root certificates of the system.

use std::io;

use navarch_base::blocking;
use rustls::RootCertStore;
use rustls_native_certs::CertificateResult;

/// The root certificates of the system; those that cannot be read are left out and logged. They may
/// be in some hundred files, which are read on a thread for blocking work.
///
/// # Errors
/// If none of them can be read, or if reading them panics.
pub async fn read() -> io::Result<RootCertStore> {
    let loaded = blocking::run(rustls_native_certs::load_native_certs);
    store(loaded.await.map_err(io::Error::other)?)
}

/// The certificates that were loaded; none at all is an error only if there is a reason for it.
fn store(loaded: CertificateResult) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);

    for error in &loaded.errors {
        tracing::warn!(%error, "failed to read a root certificate of the system");
    }
    match loaded.errors.into_iter().next() {
        Some(error) if roots.is_empty() => Err(io::Error::other(error)),
        _ => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn roots_that_cannot_be_read_are_an_error_and_not_an_empty_store() {
        let mut loaded = CertificateResult::default();
        assert!(store(loaded).unwrap().is_empty(), "the system has none");

        loaded = CertificateResult::default();
        loaded.errors.push(rustls_native_certs::Error {
            context: "failed to open the file",
            kind: rustls_native_certs::ErrorKind::Io {
                inner: io::Error::other("too many open files"),
                path: "/etc/ssl/certs".into(),
            },
        });
        let error = store(loaded).unwrap_err().to_string();
        assert!(error.contains("too many open files"), "{error}");
    }

    #[test]
    fn they_are_read_on_a_thread_for_blocking_work() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).build().unwrap();

        runtime.block_on(async {
            let (release, released) = mpsc::channel::<()>();
            let mut other = pin!(blocking::run(move || released.recv().is_err()));
            assert!(other.as_mut().now_or_never().is_none());

            let mut roots = pin!(read());
            assert!(
                roots.as_mut().now_or_never().is_none(),
                "it waits for the only such thread"
            );

            drop(release);
            assert!(other.await.unwrap());
            assert!(roots.await.is_ok());
        });
    }
}
