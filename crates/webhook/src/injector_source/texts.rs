//! The injector's templates and values: two texts in the chart's ConfigMap or in a directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use navarch_base::regular_file;
use navarch_kubernetes::InWords;

/// The ConfigMap of the default revision; those of others have the revision as suffix.
const CONFIG_MAP_NAME: &str = "istio-sidecar-injector";

/// The two texts of the chart's ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Texts {
    pub(super) values: String,
    pub(super) config: String,
}

/// The state of the injector's texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextsState {
    /// Not read yet, and why.
    Unknown(Arc<str>),
    /// They do not exist, and why.
    Missing(Arc<str>),
    Texts(Texts),
}

/// Where the injector's texts are read from.
#[derive(Clone, Debug)]
pub struct TextsSource(pub(super) Source);

#[derive(Clone, Debug)]
pub(super) enum Source {
    /// The files of a directory, which are read at every poll.
    Folder(PathBuf),
    /// A ConfigMap, as its watch received it last.
    Map(watch::Receiver<TextsState>),
}

impl TextsSource {
    /// The files `config` and `values` of a directory.
    #[must_use]
    pub fn folder(folder: PathBuf) -> Self {
        Self(Source::Folder(folder))
    }

    /// The ConfigMap of a revision in this namespace, and the future that watches it until `stop`
    /// is cancelled. An empty revision is the default one.
    pub fn config_map(
        client: &kube::Client,
        namespace: &str,
        revision: &str,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let name = match revision {
            "" | "default" => CONFIG_MAP_NAME.to_owned(),
            revision => format!("{CONFIG_MAP_NAME}-{revision}"),
        };
        let place: Arc<str> = Arc::from(format!("ConfigMap {namespace}/{name}"));
        let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let (sender, receiver) = watch::channel(TextsState::Unknown(Arc::from(format!(
            "{place} has not been read yet"
        ))));

        let watch = follow_map(maps, config, place, sender, stop);
        (Self(Source::Map(receiver)), watch)
    }

    /// The current texts.
    pub(super) fn current(&mut self) -> TextsState {
        match &mut self.0 {
            Source::Folder(folder) => read(folder),
            Source::Map(found) => found.borrow_and_update().clone(),
        }
    }

    /// Waits until the texts may have changed. Changes of files are not noticed.
    pub(super) async fn changed(&mut self) {
        if let Source::Map(found) = &mut self.0
            && found.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Watches a ConfigMap until `stop` is cancelled. `place` is its name in messages.
async fn follow_map(
    maps: Api<ConfigMap>,
    config: watcher::Config,
    place: Arc<str>,
    sender: watch::Sender<TextsState>,
    stop: CancellationToken,
) {
    let mut events = std::pin::pin!(watcher(maps, config).default_backoff());
    let mut is_listed = false;

    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        let found = match event {
            Ok(Event::Apply(map)) => texts(map, &place),
            Ok(Event::InitApply(map)) => {
                is_listed = true;
                texts(map, &place)
            }
            Ok(Event::Init) => {
                is_listed = false;
                continue;
            }
            Ok(Event::InitDone) if is_listed => continue,
            Ok(Event::InitDone | Event::Delete(_)) => {
                TextsState::Missing(Arc::from(format!("{place} does not exist")))
            }
            Err(error) => {
                tracing::warn!(%place, error = %InWords(&error), "failed to watch the injector's configuration");
                if matches!(
                    *sender.borrow(),
                    TextsState::Missing(_) | TextsState::Texts(_)
                ) {
                    continue;
                }
                TextsState::Unknown(Arc::from(format!("failed to read {place}: {error}")))
            }
        };

        sender.send_replace(found);
    }

    stop.cancelled().await;
}

/// The texts of a ConfigMap. As in istiod, both keys are required.
fn texts(map: ConfigMap, place: &str) -> TextsState {
    let mut data = map.data.unwrap_or_default();
    let mut take = |key: &str| {
        data.remove(key)
            .ok_or_else(|| format!("{place} has no key {key:?}"))
    };
    match take("values").and_then(|values| {
        Ok(Texts {
            values,
            config: take("config")?,
        })
    }) {
        Ok(texts) => TextsState::Texts(texts),
        Err(reason) => TextsState::Missing(Arc::from(reason)),
    }
}

/// The texts of a directory. As in istiod, both files are required.
fn read(folder: &Path) -> TextsState {
    let text = |name: &str| {
        let path = folder.join(name);
        regular_file::read_text(&path)
            .map_err(|error| format!("failed to read {}: {error}", path.display()))
    };
    match text("values").and_then(|values| {
        Ok(Texts {
            values,
            config: text("config")?,
        })
    }) {
        Ok(texts) => TextsState::Texts(texts),
        Err(reason) => TextsState::Missing(Arc::from(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_without_both_keys_configures_nothing() {
        let map = |keys: &[&str]| {
            let data = keys
                .iter()
                .map(|key| ((*key).to_owned(), String::new()))
                .collect();
            texts(
                ConfigMap {
                    data: Some(data),
                    ..ConfigMap::default()
                },
                "ConfigMap n/m",
            )
        };

        assert_eq!(
            map(&["config", "values", "other"]),
            TextsState::Texts(Texts::default())
        );
        assert_eq!(
            map(&["config"]),
            TextsState::Missing(Arc::from("ConfigMap n/m has no key \"values\""))
        );

        assert_eq!(
            map(&["values"]),
            TextsState::Missing(Arc::from("ConfigMap n/m has no key \"config\""))
        );
    }
}
