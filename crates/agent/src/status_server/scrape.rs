//! The targets of the application's metrics (`ISTIO_PROMETHEUS_ANNOTATIONS`).

use serde::Deserialize;

/// Ports of the mesh itself: scraping them would count metrics twice, or make the agent scrape
/// itself.
const RESERVED: [u16; 9] = [
    15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090,
];

/// The application's metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeConfig {
    /// The targets, at least one.
    pub targets: Vec<ScrapeTarget>,
}

/// One endpoint of the application's metrics, from its `prometheus.io/*` annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeTarget {
    /// The port on localhost.
    pub port: u16,
    /// Begins with `/`; `/metrics` if the annotation is not set.
    pub path: String,
}

/// Why the settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeConfigError {
    /// The JSON is invalid.
    #[error("failed to parse ISTIO_PROMETHEUS_ANNOTATIONS: {0}")]
    Json(String),
    /// A port is invalid.
    #[error("prometheus annotations: invalid port {0:?}")]
    Port(String),
    /// A port belongs to the mesh.
    #[error("prometheus annotations: port {0} belongs to the sidecar and cannot be scraped")]
    Reserved(u16),
}

/// The variable's JSON.
#[derive(Deserialize)]
struct ScrapeJson {
    /// `false` disables scraping.
    #[serde(default)]
    scrape: String,
    /// The path of the only target.
    #[serde(default)]
    path: String,
    /// The port of the only target.
    #[serde(default)]
    port: String,
    /// Several targets.
    #[serde(default)]
    targets: Vec<WrittenTarget>,
}

/// One of several targets.
#[derive(Deserialize)]
struct WrittenTarget {
    #[serde(default)]
    port: String,
    #[serde(default)]
    path: String,
}

impl ScrapeConfig {
    /// Parses the variable; `None` if scraping is disabled. `own` is the agent's port.
    ///
    /// # Errors
    /// If the JSON is invalid, or a port is not allowed.
    pub fn parse(text: &str, own: u16) -> Result<Option<Self>, ScrapeConfigError> {
        let written: ScrapeJson = serde_json::from_str(text)
            .map_err(|error| ScrapeConfigError::Json(error.to_string()))?;
        if written.scrape == "false" {
            return Ok(None);
        }

        let port = if written.port.is_empty() {
            "80".to_owned()
        } else {
            written.port
        };

        let targets = if written.targets.is_empty() {
            vec![WrittenTarget {
                port,
                path: written.path,
            }]
        } else {
            written.targets
        };

        let targets = targets.into_iter().map(|target| {
            let port = target.port.parse().ok().filter(|port| *port != 0);
            let port = port.ok_or_else(|| ScrapeConfigError::Port(target.port.clone()))?;
            if port == own || RESERVED.contains(&port) {
                return Err(ScrapeConfigError::Reserved(port));
            }
            let path = match target.path.as_str() {
                "" => "/metrics".to_owned(),
                path if path.starts_with('/') => path.to_owned(),
                path => format!("/{path}"),
            };
            Ok(ScrapeTarget { port, path })
        });

        Ok(Some(Self {
            targets: targets.collect::<Result<_, _>>()?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_target_or_several_are_read() {
        let one = ScrapeConfig::parse(r#"{"scrape":"true","path":"","port":"8080"}"#, 15020)
            .unwrap()
            .unwrap();
        assert_eq!(
            one.targets,
            [ScrapeTarget {
                port: 8080,
                path: "/metrics".to_owned()
            }]
        );

        let two = ScrapeConfig::parse(
            r#"{"targets":[{"port":"1","path":"/a"},{"port":"2"}]}"#,
            15020,
        )
        .unwrap()
        .unwrap();
        assert_eq!(two.targets.len(), 2);
        assert_eq!(
            ScrapeConfig::parse(r#"{"scrape":"false"}"#, 15020),
            Ok(None)
        );
    }

    #[test]
    fn the_mesh_does_not_scrape_itself() {
        for port in ["015020", "16000", "15090", "0", "x"] {
            let text = format!(r#"{{"port":"{port}"}}"#);
            assert!(ScrapeConfig::parse(&text, 16000).is_err(), "{port}");
        }
    }
}
