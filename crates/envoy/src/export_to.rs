//! `exportTo`: the visibility of services and configuration objects.

use navarch_api::names::Namespace;
use navarch_registry::model::ExportTo;

/// Parses the `exportTo` list of an object in namespace `own`.
#[must_use]
pub(crate) fn parse_export_to(list: &[String], own: &Namespace) -> ExportTo {
    if list.is_empty() {
        return ExportTo::Unset;
    }

    if list.iter().any(|entry| entry == "*") {
        return ExportTo::Public;
    }

    if list.iter().any(|entry| entry == "~") {
        return ExportTo::Nobody;
    }

    let mut namespaces: Vec<Namespace> = list
        .iter()
        .map(|entry| {
            if entry == "." {
                own.clone()
            } else {
                Namespace::new(entry)
            }
        })
        .collect();

    namespaces.sort_unstable();
    namespaces.dedup();
    ExportTo::Namespaces(namespaces)
}

/// The visibility of an object by its `exportTo`, or the mesh-wide default (as in the mesh config)
/// if unset. Never [`ExportTo::Unset`].
#[must_use]
pub(crate) fn resolve_export_to(
    declared: &ExportTo,
    default: &[String],
    own: &Namespace,
) -> ExportTo {
    match declared {
        ExportTo::Unset => match parse_export_to(default, own) {
            ExportTo::Unset => ExportTo::Public,
            other @ (ExportTo::Public | ExportTo::Nobody | ExportTo::Namespaces(_)) => other,
        },
        ExportTo::Public | ExportTo::Nobody | ExportTo::Namespaces(_) => declared.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_to_all_overrides_none_overrides_names() {
        let own = Namespace::new("shop");
        let list = |entries: &[&str]| {
            entries
                .iter()
                .map(|entry| (*entry).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(parse_export_to(&list(&["~", "*"]), &own), ExportTo::Public);
        assert_eq!(
            parse_export_to(&list(&["bank", "~"]), &own),
            ExportTo::Nobody
        );
        let named = ExportTo::Namespaces(vec![Namespace::new("bank"), own.clone()]);
        assert_eq!(parse_export_to(&list(&[".", "bank", "shop"]), &own), named);
        assert_eq!(parse_export_to(&[], &own), ExportTo::Unset);
    }

    #[test]
    fn the_mesh_default_fills_the_gap() {
        let own = Namespace::new("shop");
        let private = vec![".".to_owned()];
        assert_eq!(
            resolve_export_to(&ExportTo::Unset, &[], &own),
            ExportTo::Public
        );
        assert_eq!(
            resolve_export_to(&ExportTo::Unset, &private, &own),
            ExportTo::Namespaces(vec![own.clone()])
        );
        assert_eq!(
            resolve_export_to(&ExportTo::Public, &private, &own),
            ExportTo::Public
        );
    }
}
