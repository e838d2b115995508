//! Encodes stacks with values as a profile for pprof.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;

use crate::maps::{self, CodeMap};
use crate::proto::{Function, Line, Location, Mapping, Profile, Sample, ValueType};
use crate::symbols::{self, NoSymbols, Program};

/// The kind of a profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The types of the values, with their units.
    pub(crate) types: &'static [(&'static str, &'static str)],
    /// The type of the sampling period, with its unit.
    pub(crate) period_type: (&'static str, &'static str),
    pub(crate) period: i64,
    pub(crate) default_type: &'static str,
    /// Prefixes of function names that are left out at the innermost end of a stack: the code that
    /// takes the sample.
    pub(crate) skipped: &'static [&'static str],
}

/// A stack, the innermost frame first, with its values.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) frames: Vec<usize>,
    pub(crate) values: Vec<i64>,
}

/// Encodes and compresses the profile. `lost` is the number of samples that are not in it.
pub(crate) fn encode(
    kind: Kind,
    time: (i64, i64),
    stacks: Vec<Counted>,
    lost: u64,
) -> io::Result<Vec<u8>> {
    let code = maps::code()?;
    let addresses: BTreeSet<u64> = stacks
        .iter()
        .flat_map(|stack| &stack.frames)
        .map(|frame| *frame as u64)
        .collect();
    let (program, no_names) = match symbols::read(&code, addresses.iter().copied()) {
        Ok(program) => (program, None),
        Err(error) => (Program::default(), Some(error)),
    };

    let mut built = Builder::default();
    built.text("");
    built.places(&code, &program, &addresses);
    built.profile.time_nanos = time.0;
    built.profile.duration_nanos = time.1;
    built.describe(kind, lost, no_names.as_ref());
    for stack in stacks {
        built.sample(kind, &program, stack);
    }

    let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
    zipped.write_all(&built.profile.encode_to_vec())?;
    zipped.finish()
}

#[derive(Default)]
struct Builder {
    profile: Profile,
    texts: BTreeMap<String, i64>,
    locations: BTreeMap<u64, u64>,
}

impl Builder {
    /// The index of a string in the string table.
    fn text(&mut self, text: &str) -> i64 {
        if let Some(place) = self.texts.get(text) {
            return *place;
        }
        let place = i64::try_from(self.texts.len()).unwrap_or_default();
        self.texts.insert(text.to_owned(), place);
        self.profile.string_table.push(text.to_owned());
        place
    }

    fn value_type(&mut self, name: &str, unit: &str) -> ValueType {
        ValueType {
            r#type: self.text(name),
            unit: self.text(unit),
        }
    }

    fn describe(&mut self, kind: Kind, lost: u64, no_names: Option<&NoSymbols>) {
        self.profile.sample_type = kind
            .types
            .iter()
            .map(|(name, unit)| self.value_type(name, unit))
            .collect();

        let (name, unit) = kind.period_type;
        self.profile.period_type = Some(self.value_type(name, unit));
        self.profile.period = kind.period;
        self.profile.default_sample_type = self.text(kind.default_type);
        let lost =
            (lost > 0).then(|| format!("{lost} samples are missing because the buffer was full"));
        for comment in lost
            .into_iter()
            .chain(no_names.map(|error| format!("failed to read the names of functions: {error}")))
        {
            let place = self.text(&comment);
            self.profile.comment.push(place);
        }
    }

    /// Adds the mappings, and all addresses with their functions.
    fn places(&mut self, code: &[CodeMap], program: &Program, addresses: &BTreeSet<u64>) {
        let own = code.first().map_or("", |map| &map.file);

        for (map, id) in code.iter().zip(1..) {
            let mapping = Mapping {
                id,
                memory_start: map.start,
                memory_limit: map.limit,
                file_offset: map.offset,
                filename: self.text(&map.file),
                build_id: if map.file == own {
                    self.text(&program.build_id)
                } else {
                    0
                },
                has_functions: map.file == own && !program.names.is_empty(),
            };

            self.profile.mapping.push(mapping);
        }

        let mut functions = BTreeMap::new();

        for (address, id) in addresses.iter().zip(1..) {
            let line = program.names.get(address).map(|function| {
                let next = functions.len() as u64 + 1;
                let function_id = *functions.entry(function.start).or_insert(next);
                if function_id == next {
                    let name = self.text(&function.name);
                    let system_name = self.text(&function.symbol);
                    self.profile.function.push(Function {
                        id: next,
                        name,
                        system_name,
                    });
                }
                Line { function_id }
            });

            let mapping = code
                .iter()
                .zip(1..)
                .find(|(map, _)| (map.start..map.limit).contains(address));
            let mapping_id = mapping.map_or(0, |(_, id)| id);
            let line = line.into_iter().collect();
            self.profile.location.push(Location {
                id,
                mapping_id,
                address: *address,
                line,
            });

            self.locations.insert(*address, id);
        }
    }

    fn sample(&mut self, kind: Kind, program: &Program, stack: Counted) {
        let takes_samples = |address: u64| {
            let name = program.names.get(&address).map(|function| &*function.name);
            name.is_some_and(|name| kind.skipped.iter().any(|skipped| name.starts_with(skipped)))
        };
        let frames = stack
            .frames
            .into_iter()
            .map(|frame| frame as u64)
            .skip_while(|frame| takes_samples(*frame));
        let location_id = frames
            .filter_map(|frame| self.locations.get(&frame).copied())
            .collect();
        self.profile.sample.push(Sample {
            location_id,
            value: stack.values,
        });
    }
}
