//! The messages of pprof's `profile.proto` that profiles of a process need. Strings are indices
//! into the string table.

/// The root message of the file that `go tool pprof` reads, before compression.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Profile {
    /// The types of the values in each sample.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The stacks with their values.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// The files that are mapped as code; the program comes first.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// The addresses that occur in stacks.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// The functions of these addresses.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All strings; the first is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// The start time, in nanoseconds since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// The duration in nanoseconds; 0 for a heap profile.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// The unit of the sampling period.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// The sampling period, in this unit.
    #[prost(int64, tag = "12")]
    pub period: i64,
    /// Remarks as plain text.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The sample type that is shown first.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// A type with its unit.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ValueType {
    /// Such as `cpu`.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// Such as `nanoseconds`.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// A stack with its values.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sample {
    /// The ids of its locations, the innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// One value for each type.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
}

/// A part of a file in memory.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Mapping {
    /// Not zero.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The first address.
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    /// The address behind the last.
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    /// The offset of the mapping in the file.
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    /// The file's path.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// The linker's build id, in hexadecimal.
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    /// Whether its locations have functions.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
}

/// An address in a stack.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Location {
    /// Not zero.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The id of the mapping that contains it; 0 without one.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// The address of the instruction, or an address within the call.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// The function, if its name was found.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// The function of a location.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Line {
    /// The id of a [`Function`].
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
}

/// A function of the program, to which [`Line::function_id`] refers.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Function {
    /// Not zero.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The demangled name.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// The mangled name, as in the symbol table.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
}
