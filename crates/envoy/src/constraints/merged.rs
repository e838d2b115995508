//! Validation of a message after another is merged into it, at the cost of the merged one only: a
//! message that many are merged into is not checked again for each.

use navarch_proto::prost_reflect::{DynamicMessage, FieldDescriptor, ReflectMessage, Value};

use super::{
    ANY, MAX_DEPTH, check_count, check_entries, check_field, check_items, check_message,
    check_value,
};
use super::{count, fault, is_on, part, regex, rules_of};
use navarch_api::field_error::FieldError;

/// Merges messages; given by the caller.
pub(super) type Merge = fn(&mut DynamicMessage, &DynamicMessage, bool);

/// How a patch is merged into its target.
#[derive(Clone, Copy)]
struct Merging {
    /// Whether a list of the patch replaces that of the target; otherwise it is appended.
    replace_lists: bool,
    merge: Merge,
}

/// Types that are replaced as a whole, never merged.
pub const REPLACED: &str = "google.protobuf.Duration";

/// Checks the fields that `patch` sets as they are after a merge into `target`, which has the same
/// type. If [`check`](super::check) accepts the target, it rejects the merged message exactly if
/// this does.
///
/// # Errors
/// With the path of the first field that would violate the rules, and the reason.
pub fn check_merged(
    target: &DynamicMessage,
    patch: &DynamicMessage,
    replace_lists: bool,
    merge: Merge,
) -> Result<(), FieldError> {
    let merging = Merging {
        replace_lists,
        merge,
    };
    check_within(target, patch, merging, MAX_DEPTH)
}

/// As [`check_merged`], down to `depth` levels.
fn check_within(
    target: &DynamicMessage,
    patch: &DynamicMessage,
    merging: Merging,
    depth: usize,
) -> Result<(), FieldError> {
    let descriptor = patch.descriptor();
    let name = descriptor.full_name();

    // These fields depend on each other and are checked together.
    if name == ANY || regex::is_regex(name) {
        let mut merged = target.clone();
        (merging.merge)(&mut merged, patch, merging.replace_lists);
        return check_message(&merged, depth);
    }

    let Some(depth) = depth.checked_sub(1) else {
        return fault("is nested too deeply");
    };

    if name.starts_with("google.protobuf.") {
        return Ok(());
    }

    for (field, value) in patch.fields() {
        let rules = rules_of(&field);

        if !target.has_field(&field) {
            check_field(patch, &field, rules.as_ref(), depth)
                .map_err(|error| error.under(field.name()))?;
            continue;
        }

        let known = target.get_field(&field);
        check_both(&field, &known, value, rules.as_ref(), merging, depth)
            .map_err(|error| error.under(field.name()))?;
    }

    Ok(())
}

/// Checks a field that both the target and the patch set.
fn check_both(
    field: &FieldDescriptor,
    known: &Value,
    value: &Value,
    rules: Option<&DynamicMessage>,
    merging: Merging,
    depth: usize,
) -> Result<(), FieldError> {
    match (known, value) {
        (Value::List(known), Value::List(items)) => {
            let rules = part(rules, "repeated");
            let known: &[Value] = if merging.replace_lists { &[] } else { known };
            let least = count(rules.as_ref(), "min_items");
            let most = count(rules.as_ref(), "max_items");
            check_count(known.len() + items.len(), least, most)?;
            check_items(known, items, rules.as_ref(), depth)
        }

        (Value::Map(known), Value::Map(entries)) => {
            let rules = part(rules, "map");
            let added = entries
                .keys()
                .filter(|key| !known.contains_key(*key))
                .count();
            let least = count(rules.as_ref(), "min_pairs");
            let most = count(rules.as_ref(), "max_pairs");
            check_count(known.len() + added, least, most)?;
            let entries: Vec<_> = entries.iter().collect();
            check_entries(&entries, rules.as_ref(), depth)
        }

        (Value::Message(known), Value::Message(message))
            if message.descriptor().full_name() != REPLACED =>
        {
            if is_on(part(rules, "message").as_ref(), "skip") {
                return Ok(());
            }

            // A wrapped number or text is small, and checked by the rules of its value.
            if message
                .descriptor()
                .full_name()
                .starts_with("google.protobuf.")
            {
                let mut merged = known.clone();
                (merging.merge)(&mut merged, message, merging.replace_lists);
                return check_value(&Value::Message(merged), Some(&field.kind()), rules, depth);
            }

            check_within(known, message, merging, depth)
        }

        (_, value) => check_value(value, Some(&field.kind()), rules, depth),
    }
}
