//! Rollouts: annotations of an object with which its changes reach proxies in stages.
//!
//! ```yaml
//! metadata:
//!   annotations:
//!     navarch.io/rollout: 5%,25%,100%     # or "off"
//!     navarch.io/rollout-pause: 1m
//!     navarch.io/rollout-query: sum(rate(istio_requests_total{response_code="500"}[1m])) < 1
//! ```

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::object::{Kind, ObjectMeta};

/// The annotation with the stages.
pub const ROLLOUT: &str = "navarch.io/rollout";
/// The annotation with the minimum duration of each stage.
pub const ROLLOUT_PAUSE: &str = "navarch.io/rollout-pause";
/// The annotation with the query that must hold at the end of each stage.
pub const ROLLOUT_QUERY: &str = "navarch.io/rollout-query";

/// The value for changes at once, regardless of the setting of the mesh.
const OFF: &str = "off";
/// The most stages.
const MAX_STAGES: usize = 16;
/// The longest pause: a day.
const MAX_PAUSE_SECONDS: i64 = 86_400;
/// The longest query, in bytes.
const MAX_QUERY: usize = 4_096;

/// A share of proxies, in hundredths of a percent: more than none, at most all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Share(u16);

/// The stages of a rollout: increasing shares, the last of which is all.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Stages(Arc<[Share]>);

/// The settings for objects without the annotations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutSettings {
    /// `NAVARCH_ROLLOUT`: the stages of objects without the annotation. Default none: their changes
    /// reach all proxies at once.
    pub stages: Option<Stages>,
    /// `NAVARCH_ROLLOUT_PAUSE`: the minimum duration of a stage. Default 30 s.
    pub pause: Duration,
}

/// How a change reaches proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutPlan {
    /// The shares of the proxies, in order.
    pub stages: Stages,
    /// The minimum duration of each stage.
    pub pause: std::time::Duration,
    /// The Prometheus query that must hold at the end of each stage.
    pub query: Option<Arc<str>>,
}

/// An error in one of the annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutFault {
    /// The annotation, such as `navarch.io/rollout`.
    pub annotation: &'static str,
    /// The error and the valid form.
    pub message: String,
}

impl Share {
    /// All proxies.
    pub const ALL: Self = Self(10_000);

    /// Reads a percentage with up to two decimals.
    ///
    /// # Errors
    /// With what is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} must be a percentage such as 5% or 0.5%, more than 0% and at most 100%"
            )
        };
        let number = text.trim().strip_suffix('%').ok_or_else(wrong)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 2 {
            return Err(wrong());
        }

        let whole: u16 = whole.parse().map_err(|_| wrong())?;
        let hundredths: u16 = format!("{part:0<2}").parse().map_err(|_| wrong())?;
        let share = whole
            .checked_mul(100)
            .and_then(|whole| whole.checked_add(hundredths))
            .ok_or_else(wrong)?;

        if share == 0 || share > Self::ALL.0 {
            Err(wrong())
        } else {
            Ok(Self(share))
        }
    }

    /// Whether the share contains the item with this hash. A larger share contains everything that
    /// a smaller one does.
    #[must_use]
    pub fn contains(self, hash: u64) -> bool {
        hash % u64::from(Self::ALL.0) < u64::from(self.0)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0 / 100;
        let part = self.0 % 100;
        match (part, part % 10) {
            (0, _) => write!(f, "{whole}%"),
            (_, 0) => write!(f, "{whole}.{}%", part / 10),
            (_, _) => write!(f, "{whole}.{part:02}%"),
        }
    }
}

impl TryFrom<String> for Share {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Share> for String {
    fn from(share: Share) -> Self {
        share.to_string()
    }
}

impl Stages {
    /// Parses comma-separated shares. If the last share is not all proxies, a stage for all
    /// follows.
    ///
    /// # Errors
    /// With what is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut shares = text
            .split(',')
            .map(Share::parse)
            .collect::<Result<Vec<_>, _>>()?;
        let shrinks = |pair: &[Share]| {
            if let [a, b] = pair
                && a >= b
            {
                Some((*a, *b))
            } else {
                None
            }
        };

        if let Some((a, b)) = shares.windows(2).find_map(shrinks) {
            return Err(format!(
                "each stage must be larger than the one before; {b} follows {a}"
            ));
        }

        if shares.last() != Some(&Share::ALL) {
            shares.push(Share::ALL);
        }

        if shares.len() > MAX_STAGES {
            return Err(format!("must be at most {MAX_STAGES} stages"));
        }

        Ok(Self(shares.into()))
    }

    /// The shares, each larger than the one before.
    #[must_use]
    pub fn shares(&self) -> &[Share] {
        &self.0
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, share) in self.0.iter().enumerate() {
            write!(f, "{}{share}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Stages {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Stages> for String {
    fn from(stages: Stages) -> Self {
        stages.to_string()
    }
}

impl Default for RolloutSettings {
    fn default() -> Self {
        Self {
            stages: None,
            pause: Duration::from_secs(30),
        }
    }
}

/// Whether changes to objects of a kind can reach proxies in stages. True for configuration that
/// proxies receive per object. Services, endpoints, identities and certificates are the same for
/// the whole mesh.
#[must_use]
pub fn is_staged(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::VirtualService
            | Kind::DestinationRule
            | Kind::Gateway
            | Kind::Sidecar
            | Kind::EnvoyFilter
            | Kind::WasmPlugin
            | Kind::TrafficExtension
            | Kind::Telemetry
            | Kind::AuthorizationPolicy
            | Kind::HttpRoute
            | Kind::GrpcRoute
    )
}

/// Whether an object itself requests that its changes reach proxies in stages. Its deletion is not
/// staged, since it cannot be reverted.
#[must_use]
pub fn requests_stages(kind: Kind, meta: &ObjectMeta) -> bool {
    RolloutPlan::of(kind, meta, &RolloutSettings::default()).is_some()
}

/// Parses the minimum duration of a stage.
///
/// # Errors
/// With what is wrong and what would be right.
pub fn parse_pause(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} must be a duration such as 30s or 5m, at most 24h");
    let pause = Duration::parse(text).map_err(|_| wrong())?;
    let fits = pause >= Duration::ZERO && pause <= Duration::from_secs(MAX_PAUSE_SECONDS);
    if fits { Ok(pause) } else { Err(wrong()) }
}

/// The errors in the annotations of an object; for a kind that is not staged, that they have no
/// effect.
#[must_use]
pub fn faults(kind: Kind, meta: &ObjectMeta) -> Vec<RolloutFault> {
    let mut faults = Vec::new();
    let mut check = |annotation: &'static str, check: fn(&str) -> Result<(), String>| {
        let Some(value) = meta.annotations.get(annotation) else {
            return;
        };
        let outcome = match is_staged(kind) {
            true => check(value),
            false => Err(format!(
                "has no effect on {kind}: its changes reach all proxies at once; remove the annotation"
            )),
        };
        faults.extend(outcome.err().map(|message| RolloutFault {
            annotation,
            message,
        }));
    };

    check(ROLLOUT, |value| {
        if value == OFF {
            Ok(())
        } else {
            Stages::parse(value).map(drop)
        }
    });

    check(ROLLOUT_PAUSE, |value| parse_pause(value).map(drop));
    check(ROLLOUT_QUERY, |value| match value.trim().len() {
        0 => Err("must be a Prometheus query".to_owned()),
        1..=MAX_QUERY => Ok(()),
        _ => Err(format!("must be at most {MAX_QUERY} bytes")),
    });

    faults
}

impl RolloutPlan {
    /// How a change of an object reaches proxies; `None` is at once. The annotations must be valid.
    #[must_use]
    pub fn of(kind: Kind, meta: &ObjectMeta, settings: &RolloutSettings) -> Option<Self> {
        if !is_staged(kind) {
            return None;
        }

        let text = |annotation: &str| meta.annotations.get(annotation).map(|value| &**value);
        let stages = match text(ROLLOUT) {
            None => settings.stages.clone(),
            Some(OFF) => None,
            Some(stages) => Stages::parse(stages).ok(),
        }?;
        let pause = text(ROLLOUT_PAUSE)
            .and_then(|pause| parse_pause(pause).ok())
            .unwrap_or(settings.pause);

        let query = text(ROLLOUT_QUERY).map(|query| Arc::from(query.trim()));
        Some(Self {
            stages,
            pause: pause.as_std().unwrap_or_default(),
            query,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(annotations: &[(&str, &str)]) -> ObjectMeta {
        let annotations = annotations
            .iter()
            .map(|(key, value)| (Arc::from(*key), Arc::from(*value)));
        ObjectMeta {
            annotations: annotations.collect(),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn stages_grow_and_end_with_all() {
        for (text, read) in [
            ("5%,25%,100%", "5%,25%,100%"),
            ("10%", "10%,100%"),
            ("0.5%, 1.25%", "0.5%,1.25%,100%"),
            ("0.01%,100%", "0.01%,100%"),
            ("100%", "100%"),
        ] {
            assert_eq!(Stages::parse(text).unwrap().to_string(), read);
        }

        for wrong in [
            "",
            "5",
            "%",
            "0%",
            "101%",
            "5%,5%",
            "25%,5%",
            "1.234%",
            "-5%",
            "5%,,100%",
            ".5%",
            "1e1%",
            "99999999%",
        ] {
            assert!(Stages::parse(wrong).is_err(), "{wrong}");
        }

        assert!(
            Stages::parse(
                &(1..=16)
                    .map(|share| format!("{share}%"))
                    .collect::<Vec<_>>()
                    .join(",")
            )
            .is_err()
        );
    }

    #[test]
    fn a_larger_share_contains_every_smaller_one() {
        let shares = ["0.01%", "5%", "25%", "100%"].map(|text| Share::parse(text).unwrap());
        for hash in (0..100_000).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let held: Vec<bool> = shares.iter().map(|share| share.contains(hash)).collect();
            assert!(held.is_sorted() && held[3], "{held:?}");
        }
    }

    #[test]
    fn an_annotation_that_is_wrong_or_of_no_effect_is_named() {
        let named = |kind, annotations: &[(&str, &str)]| -> Vec<&str> {
            faults(kind, &meta(annotations))
                .iter()
                .map(|fault| fault.annotation)
                .collect()
        };

        assert_eq!(
            named(
                Kind::VirtualService,
                &[
                    (ROLLOUT, "5%"),
                    (ROLLOUT_PAUSE, "1m"),
                    (ROLLOUT_QUERY, "up")
                ]
            ),
            [""; 0]
        );

        assert_eq!(named(Kind::VirtualService, &[(ROLLOUT, "off")]), [""; 0]);
        let all = [(ROLLOUT, "5"), (ROLLOUT_PAUSE, "25h"), (ROLLOUT_QUERY, " ")];
        assert_eq!(
            named(Kind::VirtualService, &all),
            [ROLLOUT, ROLLOUT_PAUSE, ROLLOUT_QUERY]
        );
        assert_eq!(named(Kind::ServiceEntry, &[(ROLLOUT, "5%")]), [ROLLOUT]);
    }

    #[test]
    fn annotations_override_the_rollout_settings_of_the_mesh() {
        let none = RolloutSettings::default();
        let mesh = RolloutSettings {
            stages: Stages::parse("10%").ok(),
            pause: Duration::from_secs(1),
        };
        let of = |kind, annotations: &[(&str, &str)], settings| {
            RolloutPlan::of(kind, &meta(annotations), settings)
        };
        assert_eq!(of(Kind::Sidecar, &[], &none), None);

        assert_eq!(of(Kind::ServiceEntry, &[(ROLLOUT, "5%")], &mesh), None);
        assert_eq!(of(Kind::Sidecar, &[(ROLLOUT, "off")], &mesh), None);
        let plan = of(Kind::Sidecar, &[], &mesh).unwrap();
        assert_eq!(
            (
                plan.stages.to_string().as_str(),
                plan.pause.as_secs(),
                plan.query
            ),
            ("10%,100%", 1, None)
        );

        let plan = of(
            Kind::Sidecar,
            &[(ROLLOUT, "5%"), (ROLLOUT_QUERY, " up ")],
            &none,
        )
        .unwrap();
        assert_eq!(
            (plan.pause.as_secs(), plan.query.as_deref()),
            (30, Some("up"))
        );

        let asks = |kind, stages| requests_stages(kind, &meta(&[(ROLLOUT, stages)]));
        assert!(
            asks(Kind::Sidecar, "5%")
                && !asks(Kind::Sidecar, "off")
                && !asks(Kind::ServiceEntry, "5%")
        );
    }
}
