//! Rules for Telemetry.

use super::cel;
use super::path::Path;
use super::target_ref::attachment;
use super::{Validate, Verdict};
use crate::istio::{
    AccessLogging, MetricSelector, Metrics, MetricsOverrides, ProviderRef, TagOperation,
    TagOverride, Telemetry, Tracing, TracingTag,
};
use crate::object::ObjectMeta;

impl Validate for Telemetry {
    fn validate(&self, _: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            selector,
            target_ref,
            target_refs,
            tracing,
            metrics,
            access_logging,
        } = self;

        let spec = Path::root("spec");
        attachment(
            &mut verdict,
            &spec,
            selector.as_ref(),
            target_ref.as_ref(),
            target_refs,
        );

        let at = spec.field("metrics");
        for (index, one) in metrics.iter().enumerate() {
            validate_metrics(&mut verdict, &at.item(index), one);
        }

        let at = spec.field("tracing");

        if tracing.len() > 1 {
            verdict.warn(
                &at,
                "has several entries, which is not supported yet; only one is used",
            );
        }

        for (index, one) in tracing.iter().enumerate() {
            validate_tracing(&mut verdict, &at.item(index), one);
        }

        let at = spec.field("accessLogging");

        for (index, one) in access_logging.iter().enumerate() {
            let AccessLogging {
                matches: _,
                providers,
                disabled: _,
                filter,
            } = one;

            let at = at.item(index);
            validate_providers(&mut verdict, &at, providers);
            if let Some(fault) = filter
                .as_ref()
                .and_then(|filter| cel::check(&filter.expression).err())
            {
                verdict.error(
                    &at.field("filter").field("expression"),
                    format!("is not a CEL expression: {fault}"),
                );
            }
        }

        verdict
    }
}

/// Validates providers; only the first error is reported.
fn validate_providers(verdict: &mut Verdict, at: &Path<'_>, providers: &[ProviderRef]) {
    let at = at.field("providers");
    if let Some(index) = providers
        .iter()
        .position(|provider| provider.name.is_empty())
    {
        verdict.error(&at.item(index).field("name"), "is missing");
    }
}

fn validate_metrics(verdict: &mut Verdict, at: &Path<'_>, metrics: &Metrics) {
    let Metrics {
        providers,
        overrides,
        reporting_interval: _,
    } = metrics;
    validate_providers(verdict, at, providers);
    let all = at.field("overrides");

    for (index, one) in overrides.iter().enumerate() {
        let at = all.item(index);
        let MetricsOverrides {
            matches,
            disabled: _,
            tag_overrides,
        } = one;
        let tags = at.field("tagOverrides");
        for (name, tag) in tag_overrides {
            validate_tag(verdict, &tags.field(name), name, tag);
        }

        let Some(MetricSelector {
            metric,
            custom_metric,
            mode: _,
        }) = matches
        else {
            continue;
        };

        let at = at.field("match");
        if custom_metric.as_ref().is_some_and(String::is_empty) {
            verdict.error(&at.field("customMetric"), "is empty");
        }

        if metric.is_some() && custom_metric.is_some() {
            verdict.error(
                &at.field("customMetric"),
                "is set together with metric; keep one of them",
            );
        }
    }
}

/// Validates a change to a label.
fn validate_tag(verdict: &mut Verdict, at: &Path<'_>, name: &str, tag: &TagOverride) {
    if name.is_empty() {
        verdict.warn(at, "has no name");
    }
    match tag.operation {
        TagOperation::Upsert if tag.value.is_empty() => {
            verdict.error(&at.field("value"), "is missing, but UPSERT requires it");
        }
        TagOperation::Remove if !tag.value.is_empty() => {
            verdict.error(&at.field("value"), "is set, but REMOVE has no value");
        }
        TagOperation::Upsert | TagOperation::Remove => {}
    }
}

fn validate_tracing(verdict: &mut Verdict, at: &Path<'_>, tracing: &Tracing) {
    if tracing.providers.len() > 1 {
        verdict.warn(
            &at.field("providers"),
            "has several entries, which is not supported yet; only the first is used",
        );
    }

    validate_providers(verdict, at, &tracing.providers);
    if tracing
        .random_sampling_percentage
        .is_some_and(|share| !(0.0..=100.0).contains(&share))
    {
        verdict.error(
            &at.field("randomSamplingPercentage"),
            "is not a percentage; write 0 to 100",
        );
    }

    let tags = at.field("customTags");

    for (name, tag) in tracing.custom_tags.iter().flatten() {
        let at = tags.field(name);
        if name.is_empty() {
            verdict.error(&at, "has no name");
        }

        let TracingTag {
            literal,
            environment,
            header,
            formatter,
        } = tag;

        let members = [
            literal.is_some(),
            environment.is_some(),
            header.is_some(),
            formatter.is_some(),
        ];

        if members.into_iter().filter(|set| *set).count() > 1 {
            verdict.error(&at, "has several sources; keep one");
        }

        if literal
            .as_ref()
            .is_some_and(|literal| literal.value.is_empty())
        {
            verdict.error(&at.field("literal").field("value"), "is missing");
        }

        for (field, source) in [("environment", environment), ("header", header)] {
            if source.as_ref().is_some_and(|source| source.name.is_empty()) {
                verdict.error(&at.field(field).field("name"), "is missing");
            }
        }
    }
}
