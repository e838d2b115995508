//! One round of comparisons: streams to istiod, a few at a time, and a thread with Navarch's engine,
//! which compares each answer as it arrives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures_util::{StreamExt as _, stream};
use navarch_proto::json::Codec;
use navarch_push::context::PushContext;
use navarch_push::proxy::Proxy;
use navarch_shadow::comparison::{Found, compare};
use navarch_shadow::own::{Own, STACK};
use navarch_shadow::report::{Report, ReportBuilder};
use navarch_shadow::stream::{StreamError, ask};
use navarch_shadow::subscriptions::{ResourcesByType, types};
use navarch_shadow::twin::{NotCompared, Twin};
use tokio::sync::mpsc;
use tonic::Code;

use super::connection::Connection;

/// How a round asks istiod.
pub(super) struct Round<'a> {
    pub(super) connection: &'a Connection,
    pub(super) codec: &'a Codec,
    /// The maximum number of streams at a time.
    pub(super) streams: usize,
    /// The pause of each of them before the next proxy.
    pub(super) pause: Duration,
}

/// istiod's answer for a proxy.
struct Gathered {
    twin: Twin,
    outcome: anyhow::Result<(Proxy, ResourcesByType)>,
}

/// A proxy and its comparison.
struct Compared {
    twin: Twin,
    outcome: anyhow::Result<Vec<Found>>,
}

/// The comparisons of a round, by the name of the proxy.
#[derive(Default)]
pub(super) struct Comparisons(BTreeMap<String, Compared>);

impl Round<'_> {
    /// Compares proxies on a snapshot.
    ///
    /// # Errors
    /// If the thread of the engine fails. A proxy that cannot be compared is part of the result.
    pub(super) async fn compare(
        &self,
        context: Arc<PushContext>,
        twins: Vec<Twin>,
    ) -> anyhow::Result<Comparisons> {
        let (answers, gathered) = mpsc::channel(self.streams);
        let trust_domain = context.mesh.config.trust_domain.clone();
        let codec = self.codec.clone();
        let comparing = thread::Builder::new()
            .name("shadow".to_owned())
            .stack_size(STACK)
            .spawn(move || compare_all(Own::new(context, codec), gathered))
            .context("failed to start the thread that compares")?;

        let is_authenticated = self.connection.is_authenticated();
        let trust_domain = is_authenticated.then_some(trust_domain.as_str());
        let all = twins
            .into_iter()
            .map(|twin| self.gather(twin, trust_domain));
        let mut all = stream::iter(all).buffer_unordered(self.streams);
        while let Some(gathered) = all.next().await {
            // The thread ends early only if it has panicked, which joining reports.
            _ = answers.send(gathered).await;
        }
        drop(answers);

        // The thread has at most the answers of all streams left.
        let joined = tokio::task::spawn_blocking(move || comparing.join()).await;
        let compared = joined.context("failed to wait for the thread that compares")?;
        compared.map_err(|_| anyhow!("the thread that compares has panicked: report its output"))
    }

    /// Gets istiod's answer for a proxy.
    async fn gather(&self, twin: Twin, trust_domain: Option<&str>) -> Gathered {
        tokio::time::sleep(self.pause).await;
        let outcome = self.answer(&twin, trust_domain).await;
        Gathered { twin, outcome }
    }

    /// Gets istiod's answer for a proxy, and the proxy as Navarch sees it.
    async fn answer(
        &self,
        twin: &Twin,
        trust_domain: Option<&str>,
    ) -> anyhow::Result<(Proxy, ResourcesByType)> {
        let proxy = twin.proxy(trust_domain)?;
        let node = twin.node(self.codec)?;
        let channel = self.connection.connect().await?;
        let types = types(&proxy);
        let asking = ask(channel, &self.connection.stream, node, &types, self.codec);
        let answers = asking.await.map_err(with_advice)?;
        Ok((proxy, answers))
    }
}

/// An error of a stream, with advice if istiod does not accept the caller.
fn with_advice(error: StreamError) -> anyhow::Error {
    let is_denied = if let StreamError::Rejected(status) = &error {
        matches!(
            status.code(),
            Code::Unauthenticated | Code::PermissionDenied
        )
    } else {
        false
    };

    let error = anyhow::Error::new(error);
    if is_denied {
        error.context(
            "over TLS istiod answers only for proxies of the caller's own service account: choose \
             them by --proxy, or use the plaintext port without --xds-ca-file",
        )
    } else {
        error
    }
}

/// Compares answers as they arrive, until there are no more.
fn compare_all(mut own: Own, mut gathered: mpsc::Receiver<Gathered>) -> Comparisons {
    let mut all = Comparisons::default();
    while let Some(Gathered { twin, outcome }) = gathered.blocking_recv() {
        let outcome = outcome.and_then(|(proxy, istiod)| compare_one(&mut own, proxy, &istiod));
        all.0.insert(twin.name.clone(), Compared { twin, outcome });
    }
    all
}

/// Compares istiod's answer for a proxy with Navarch's.
fn compare_one(
    own: &mut Own,
    proxy: Proxy,
    istiod: &ResourcesByType,
) -> anyhow::Result<Vec<Found>> {
    let (id, navarch) = own.connect(proxy)?;
    let mut found = compare(istiod, &navarch);
    for one in &mut found {
        if one.documented.is_none() && !one.difference.objects.is_one_sided() {
            one.inputs = own.inputs(id, one.resource_type, &one.difference.resource);
        }
    }
    own.disconnect(id);
    Ok(found)
}

impl Comparisons {
    /// Removes the proxies that have differences which are not documented, or could not be
    /// compared: a change may have been on its way.
    pub(super) fn take_unsettled(&mut self) -> Vec<Twin> {
        let is_settled = |compared: &Compared| match &compared.outcome {
            Ok(found) => found
                .iter()
                .all(|difference| difference.documented.is_some()),
            Err(_) => false,
        };
        let (settled, unsettled) = std::mem::take(&mut self.0)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, compared)| is_settled(compared));
        self.0 = settled;
        unsettled
            .into_values()
            .map(|compared| compared.twin)
            .collect()
    }

    /// Adds other comparisons.
    pub(super) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The report on all comparisons; `skipped` are proxies that are never compared.
    pub(super) fn report(self, skipped: Vec<NotCompared>) -> Report {
        let mut report = ReportBuilder::default();
        for (name, compared) in self.0 {
            match compared.outcome {
                Ok(found) => report.add(&name, found),
                Err(error) => report.add_failure(&name, format!("{error:#}")),
            }
        }
        report.finish(skipped)
    }
}
