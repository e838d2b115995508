//! Istio's notation of log levels (`default:info,ads:debug`), which istiod and pilot-agent take as
//! `--log_output_level`.

/// A level that is not one of Istio's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--log_output_level={levels:?}: {level:?} is not a level; use none, fatal, error, warn, info or debug"
)]
pub struct LevelError {
    /// All levels, as given.
    levels: String,
    level: String,
}

/// Converts Istio's levels (`default:info,ads:debug`) to a filter of `tracing`: the level of
/// `default` or `all` applies to everything, the level of another scope to its `targets`. Also
/// returns the scopes without targets.
///
/// # Errors
/// When a level is none of Istio's.
pub fn filter(
    levels: &str,
    targets: impl Fn(&str) -> Vec<String>,
) -> Result<(String, Vec<String>), LevelError> {
    let mut default = "info";
    let mut directives = Vec::new();
    let mut unknown = Vec::new();

    for part in levels
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (scope, level) = part.split_once(':').unwrap_or(("default", part));
        let level = match level {
            "none" => "off",
            "fatal" | "error" => "error",
            "warn" | "warning" => "warn",
            "info" => "info",
            "debug" => "debug",
            "trace" => "trace",
            _ => {
                return Err(LevelError {
                    levels: levels.to_owned(),
                    level: level.to_owned(),
                });
            }
        };

        if matches!(scope, "default" | "all") {
            default = level;
            continue;
        }
        let targets = targets(scope);
        if targets.is_empty() {
            unknown.push(scope.to_owned());
        }
        directives.extend(
            targets
                .into_iter()
                .map(|target| format!("{target}={level}")),
        );
    }

    directives.insert(0, default.to_owned());
    Ok((directives.join(","), unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_become_targets_and_those_without_targets_are_named() {
        let targets = |scope: &str| {
            if scope == "ads" {
                vec!["navarch_xds".to_owned()]
            } else {
                Vec::new()
            }
        };

        let read = |levels: &str| filter(levels, targets);
        assert_eq!(read(""), Ok(("info".to_owned(), vec![])));
        assert_eq!(
            read("ads:debug, default:error,nobody:info"),
            Ok((
                "error,navarch_xds=debug".to_owned(),
                vec!["nobody".to_owned()]
            ))
        );

        assert!(
            read("default:loud")
                .unwrap_err()
                .to_string()
                .contains("loud")
        );
    }
}
