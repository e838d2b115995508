//! The root certificates of the system.

use std::io;

use navarch_base::blocking;
use rustls::RootCertStore;

/// The root certificates of the system; those that cannot be read are left out. They may be in some
/// hundred files, which are read on a thread for blocking work.
///
/// # Errors
/// If reading them panics.
pub async fn read() -> io::Result<RootCertStore> {
    let read = blocking::run(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    read.await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;

    use futures_util::FutureExt as _;

    use super::*;

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
