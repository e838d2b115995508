//! Istio's logging scopes: their current levels, and changing them at run time.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// The scope that all others inherit from.
const DEFAULT: &str = "default";
/// Istio's levels and those of `tracing`.
const LEVELS: [(&str, &str); 5] = [
    ("none", "off"),
    ("error", "error"),
    ("warn", "warn"),
    ("info", "info"),
    ("debug", "debug"),
];

/// One scope: its name, its description, and the modules whose events belong to it.
pub type LogScope = (&'static str, &'static str, &'static [&'static str]);

/// A scope with its current level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScopeLevel {
    /// The name of the scope.
    pub name: &'static str,
    /// What is logged in it.
    pub about: &'static str,
    /// Istio's name of the level.
    pub level: &'static str,
}

/// Applies a filter in `tracing`'s syntax; returns the error, if any.
type Apply = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// The scopes of the process. Clones share them.
#[derive(Clone)]
pub struct LogScopes(Arc<Inner>);

struct Inner {
    scopes: &'static [LogScope],
    /// The filter at the start.
    base: String,
    /// Levels that were set since, by scope, in order: scopes can share modules, and the last
    /// setting applies.
    levels: Mutex<Vec<(&'static str, &'static str)>>,
    apply: Box<Apply>,
}

/// Why a level could not be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// No scope of this process has the name.
    #[error("unknown scope name: {0}")]
    Unknown(String),
    /// The filter was rejected.
    #[error("failed to apply the log level: {0}")]
    Rejected(String),
}

impl fmt::Debug for LogScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogScopes")
            .field("base", &self.0.base)
            .finish_non_exhaustive()
    }
}

impl LogScopes {
    /// The scopes of a process whose filter at the start is `base`; `apply` replaces the filter.
    pub fn new(
        scopes: &'static [LogScope],
        base: String,
        apply: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            scopes,
            base,
            levels: Mutex::default(),
            apply: Box::new(apply),
        }))
    }

    /// All scopes, by name.
    #[must_use]
    pub fn list(&self) -> Vec<ScopeLevel> {
        let filter = self.0.filter(&self.0.levels.lock());
        let own = ScopeLevel {
            name: DEFAULT,
            about: "Everything that belongs to no other scope",
            level: level_of(&filter, None),
        };
        let one = |&(name, about, targets): &LogScope| ScopeLevel {
            name,
            about,
            level: level_of(&filter, targets.first().copied()),
        };

        let mut all: Vec<_> = std::iter::once(own)
            .chain(self.0.scopes.iter().map(one))
            .collect();
        all.sort_unstable();
        all
    }

    /// Sets the level of a scope. An unknown level changes nothing, as in istiod.
    ///
    /// # Errors
    /// If the scope is unknown, or the logger rejects the filter.
    pub fn set(&self, scope: &str, level: &str) -> Result<(), ScopeError> {
        let names = std::iter::once(DEFAULT).chain(self.0.scopes.iter().map(|(name, ..)| *name));
        let name = names
            .into_iter()
            .find(|name| *name == scope)
            .ok_or_else(|| ScopeError::Unknown(scope.to_owned()))?;
        let Some((_, level)) = LEVELS.into_iter().find(|(known, _)| *known == level) else {
            return Ok(());
        };

        let mut levels = self.0.levels.lock();
        let mut changed = levels.clone();
        changed.retain(|(known, _)| *known != name);
        changed.push((name, level));
        (self.0.apply)(&self.0.filter(&changed)).map_err(ScopeError::Rejected)?;
        *levels = changed;
        Ok(())
    }
}

impl Inner {
    /// The filter of the start with the levels that were set since; later entries apply.
    fn filter(&self, levels: &[(&'static str, &'static str)]) -> String {
        let mut filter = self.base.clone();
        for (name, level) in levels {
            if *name == DEFAULT {
                filter = format!("{filter},{level}");
            }
            let scope = self.scopes.iter().find(|(known, ..)| known == name);
            for target in scope.into_iter().flat_map(|(.., targets)| *targets) {
                filter = format!("{filter},{target}={level}");
            }
        }
        filter
    }
}

/// Istio's name of a module's level in a filter; without a module, that of the default.
fn level_of(filter: &str, target: Option<&str>) -> &'static str {
    let mut found = (0, "info");

    for directive in filter.split(',').map(str::trim) {
        let (module, level) = directive.rsplit_once('=').unwrap_or(("", directive));
        let covers = module.is_empty()
            || target.is_some_and(|target| {
                target
                    .strip_prefix(module)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            });

        if covers && module.len() >= found.0 {
            let level = LEVELS
                .into_iter()
                .find(|(_, own)| *own == level)
                .map(|(known, _)| known);
            found = (
                module.len(),
                level.unwrap_or(if directive.ends_with("trace") {
                    "debug"
                } else {
                    "info"
                }),
            );
        }
    }

    found.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPES: &[LogScope] = &[
        ("ads", "Streams", &["navarch_xds"]),
        ("ca", "Certificates", &["navarch_security::ca", "rcgen"]),
    ];

    #[test]
    fn if_scopes_share_modules_the_last_setting_applies() {
        const SHARED: &[LogScope] = &[
            ("ads", "Streams", &["navarch_xds"]),
            ("delta", "Deltas", &["navarch_xds"]),
        ];
        let scopes = LogScopes::new(SHARED, "info".to_owned(), |_| Ok(()));

        // As `istioctl admin log --reset` does it, in any order.
        for name in ["delta", "default", "ads"] {
            scopes.set(name, "info").unwrap();
        }

        let levels = || {
            scopes
                .list()
                .into_iter()
                .map(|scope| scope.level)
                .collect::<Vec<_>>()
        };

        scopes.set("ads", "debug").unwrap();
        assert_eq!(levels(), ["debug", "info", "debug"]);
        scopes.set("delta", "warn").unwrap();
        assert_eq!(levels(), ["warn", "info", "warn"]);
    }

    #[test]
    fn levels_are_shown_and_set_scope_by_scope() {
        let applied = Arc::new(Mutex::new(String::new()));
        let sink = applied.clone();
        let scopes = LogScopes::new(
            SCOPES,
            "warn,navarch_security=debug".to_owned(),
            move |filter| {
                filter.clone_into(&mut sink.lock());
                Ok(())
            },
        );

        let levels = || {
            scopes
                .list()
                .into_iter()
                .map(|scope| (scope.name, scope.level))
                .collect::<Vec<_>>()
        };

        assert_eq!(
            levels(),
            [("ads", "warn"), ("ca", "debug"), ("default", "warn")]
        );
        scopes.set("ads", "debug").unwrap();
        scopes.set("ca", "none").unwrap();
        scopes.set("default", "error").unwrap();
        assert_eq!(
            levels(),
            [("ads", "debug"), ("ca", "none"), ("default", "error")]
        );

        let filter = "warn,navarch_security=debug,navarch_xds=debug,navarch_security::ca=off,rcgen=off,error";
        assert_eq!(*applied.lock(), filter);

        // An unknown level and a rejected filter change nothing.
        scopes.set("ads", "").unwrap();
        assert_eq!(
            scopes.set("nobody", "info"),
            Err(ScopeError::Unknown("nobody".to_owned()))
        );
        assert_eq!(
            levels(),
            [("ads", "debug"), ("ca", "none"), ("default", "error")]
        );

        let stubborn = LogScopes::new(SCOPES, "info".to_owned(), |_| Err("no".to_owned()));
        assert_eq!(
            stubborn.set("ads", "debug"),
            Err(ScopeError::Rejected("no".to_owned()))
        );
        assert_eq!(
            stubborn.list().first().map(|scope| scope.level),
            Some("info")
        );
    }
}
