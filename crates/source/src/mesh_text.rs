//! Parses and validates the text of mesh config and mesh networks.

use super::problem::ProblemKind;
use navarch_api::field_error::FieldError;
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::text_error::TextError;
use navarch_api::typed::Typed;
use navarch_api::validation::{Verdict, validate_mesh_config, validate_mesh_networks};
use navarch_api::yaml::line_of;

/// A value that was read from a text, and has no errors.
pub(super) struct Valid<T> {
    pub(super) value: T,
    /// The warnings about the text.
    pub(super) oddities: Vec<(usize, ProblemKind)>,
}

/// The value of a text, or all of its errors.
pub(super) type Parsed<T> = Result<Valid<T>, Vec<TextError>>;

/// Parses and validates mesh config.
pub(super) fn parse_mesh_config(base: &MeshConfig, text: &str) -> Parsed<MeshConfig> {
    let typed = base.apply(text).map_err(|error| vec![error])?;
    let verdict = validate_mesh_config(&typed.value);
    valid_or_errors(text, typed, verdict)
}

/// Parses and validates mesh networks.
pub(super) fn parse_mesh_networks(text: &str) -> Parsed<MeshNetworks> {
    let typed = MeshNetworks::parse(text).map_err(|error| vec![error])?;
    let verdict = validate_mesh_networks(&typed.value);
    valid_or_errors(text, typed, verdict)
}

/// Returns a valid value, or the errors with the lines of the text.
fn valid_or_errors<T>(text: &str, typed: Typed<T>, verdict: Verdict) -> Parsed<T> {
    let place =
        |field: String, reason: String| TextError::in_field(text, FieldError::new(field, reason));

    if !verdict.is_valid() {
        return Err(verdict
            .errors
            .into_iter()
            .map(|problem| place(problem.field, problem.message))
            .collect());
    }

    let line = |field: &str| line_of(text, field).unwrap_or_default();
    let unknown = typed
        .unknown_fields
        .into_iter()
        .map(|field| (line(&field), ProblemKind::UnknownField(field)));
    let warnings = verdict.warnings.into_iter().map(|problem| {
        let error = place(problem.field, problem.message);
        (error.line, ProblemKind::Warning(error.field))
    });

    Ok(Valid {
        value: typed.value,
        oddities: unknown.chain(warnings).collect(),
    })
}
