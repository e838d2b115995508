//! Which types of a descriptor set are needed if some packages are.

use std::collections::{BTreeMap, BTreeSet};

use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};

/// Types of these are not generated: `prost_types` has them.
const WELL_KNOWN: &str = "google.protobuf";

/// Removes all types and services except those of the packages, and those that their fields and
/// methods contain, directly or not. Nested types go with the outermost one.
///
/// # Errors
/// If a package has no types and no services: its name is wrong.
pub(crate) fn retain(
    descriptors: &mut FileDescriptorSet,
    packages: &BTreeSet<&str>,
) -> Result<(), String> {
    let known: BTreeSet<&str> = descriptors.file.iter().map(|file| file.package()).collect();
    if let Some(unknown) = packages.difference(&known).next() {
        return Err(format!("packages.txt: there is no package {unknown:?}"));
    }

    let needed = needed_types(descriptors, packages);
    for file in &mut descriptors.file {
        let package = file.package().to_owned();
        if package == WELL_KNOWN {
            continue;
        }

        let is_needed = |name: &str| needed.contains(&full_name(&package, name));
        file.message_type
            .retain(|message| is_needed(message.name()));
        file.enum_type
            .retain(|enumeration| is_needed(enumeration.name()));
        if !packages.contains(&*package) {
            file.service.clear();
        }
    }

    descriptors.file.retain(|file| !is_empty(file));
    Ok(())
}

/// Whether a file declares nothing.
fn is_empty(file: &FileDescriptorProto) -> bool {
    file.message_type.is_empty() && file.enum_type.is_empty() && file.service.is_empty()
}

/// The name by which fields refer to a type.
fn full_name(package: &str, name: &str) -> String {
    if package.is_empty() {
        format!(".{name}")
    } else {
        format!(".{package}.{name}")
    }
}

/// The full names of the outermost types that the packages need, their own included.
fn needed_types(descriptors: &FileDescriptorSet, packages: &BTreeSet<&str>) -> BTreeSet<String> {
    let mut references: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut pending: Vec<String> = Vec::new();

    for file in &descriptors.file {
        let is_named = packages.contains(file.package());
        for message in &file.message_type {
            let name = full_name(file.package(), message.name());
            if is_named {
                pending.push(name.clone());
            }
            add_references(message, references.entry(name).or_default());
        }

        for enumeration in &file.enum_type {
            let name = full_name(file.package(), enumeration.name());
            if is_named {
                pending.push(name.clone());
            }
            references.entry(name).or_default();
        }

        if is_named {
            let methods = file.service.iter().flat_map(|service| &service.method);
            pending.extend(methods.flat_map(|method| {
                [
                    method.input_type().to_owned(),
                    method.output_type().to_owned(),
                ]
            }));
        }
    }

    let mut needed = BTreeSet::new();
    while let Some(name) = pending.pop() {
        let Some((outermost, contained)) = outermost(&name, &references) else {
            continue;
        };
        if needed.insert(outermost.clone()) {
            pending.extend(contained.iter().cloned());
        }
    }
    needed
}

/// Adds the types of the fields of a message and of those that are nested in it.
fn add_references(message: &DescriptorProto, references: &mut BTreeSet<String>) {
    let types = message.field.iter().map(|field| field.type_name());
    references.extend(types.filter(|name| !name.is_empty()).map(str::to_owned));
    for nested in &message.nested_type {
        add_references(nested, references);
    }
}

/// The outermost type that contains a type, or is it, with what it refers to. `None` if the set
/// has neither.
fn outermost<'a>(
    name: &str,
    known: &'a BTreeMap<String, BTreeSet<String>>,
) -> Option<(&'a String, &'a BTreeSet<String>)> {
    let ends = name.match_indices('.').map(|(at, _)| at).skip(1);
    ends.chain([name.len()])
        .find_map(|end| known.get_key_value(name.get(..end)?))
}
