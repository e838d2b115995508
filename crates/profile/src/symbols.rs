//! Names of functions, from the program's own symbol table, or from that of the file of symbols
//! beside it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use object::Endianness;
use object::read::elf::ElfFile64;
use object::read::{
    Object as _, ObjectSegment as _, ObjectSymbol as _, ReadCache, ReadRef, SymbolKind,
};

use crate::maps::{self, CodeMap};

/// The maximum length of a name: names of nested futures fill pages.
const MAX_NAME: usize = 2048;

/// Why names could not be read.
#[derive(Debug, thiserror::Error)]
pub enum NoSymbols {
    /// The table of memory mappings cannot be read.
    #[error("/proc/self: {0}")]
    Maps(#[from] std::io::Error),
    /// The program's file cannot be read as an object file.
    #[error("{program}: {0}", program = maps::PROGRAM)]
    Program(#[from] object::Error),
}

/// Names from the program's file.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// The functions by address; addresses without a name are absent.
    pub(crate) names: BTreeMap<u64, Function>,
    /// The linker's build id, in hexadecimal.
    pub(crate) build_id: String,
}

/// The names of a function. All addresses in it share one value.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// The function's address in the program's file.
    pub(crate) start: u64,
    /// The demangled name.
    pub(crate) name: Arc<str>,
    /// The mangled name, as in the symbol table.
    pub(crate) symbol: Arc<str>,
}

/// The names of the functions at these addresses; addresses without a name are absent.
///
/// # Errors
/// If the program's file cannot be read.
pub fn names(
    addresses: impl IntoIterator<Item = u64>,
) -> Result<BTreeMap<u64, Arc<str>>, NoSymbols> {
    let program = read(&maps::code()?, addresses)?;
    Ok(program
        .names
        .into_iter()
        .map(|(address, function)| (address, function.name))
        .collect())
}

/// The program's file, mapped: reading it takes no heap memory, and dropping this unmaps it.
struct MappedFile {
    start: NonNull<u8>,
    length: usize,
}

impl MappedFile {
    fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).open(maps::PROGRAM)?;
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;

        // SAFETY: a new mapping, which replaces no other.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };

        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }

        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, length })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes are mapped until this is dropped. Linux denies writes to the file
        // of a running program, and a program whose own file is truncated could not continue
        // either.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: it is mapped until this call, and no borrow of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Looks up the names and the build id.
pub(crate) fn read(
    maps: &[CodeMap],
    addresses: impl IntoIterator<Item = u64>,
) -> Result<Program, NoSymbols> {
    let mapped = MappedFile::open()?;
    let file: ElfFile64<'_, Endianness> = ElfFile64::parse(mapped.bytes())?;
    let build_id = file
        .build_id()?
        .unwrap_or_default()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();

    let own = maps.first().map_or("", |map| &map.file);
    let in_file = |address: u64| {
        let map = maps
            .iter()
            .find(|map| map.file == own && (map.start..map.limit).contains(&address))?;
        let offset = address - map.start + map.offset;
        let segment = file.segments().find(|segment| {
            let (start, size) = segment.file_range();
            (start..start.saturating_add(size)).contains(&offset)
        })?;
        Some(offset - segment.file_range().0 + segment.address())
    };

    let mut wanted: Vec<(u64, u64)> = addresses
        .into_iter()
        .filter_map(|address| Some((in_file(address)?, address)))
        .collect();
    wanted.sort_unstable();
    let mut names = functions(&file, &wanted);
    if names.is_empty() && !wanted.is_empty() {
        names = split_functions(&file, &wanted).unwrap_or_default();
    }

    Ok(Program { names, build_id })
}

/// The functions that a symbol table has at addresses. `wanted` are addresses in the program's
/// file, in order, each with the address of the process by which the result has its function.
fn functions<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    wanted: &[(u64, u64)],
) -> BTreeMap<u64, Function> {
    let mut names = BTreeMap::new();
    for symbol in file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
    {
        let start = symbol.address();
        let end = symbol.address().saturating_add(symbol.size());
        let first = wanted.partition_point(|(place, _)| *place < start);
        let mut inside = wanted
            .iter()
            .skip(first)
            .take_while(|(place, _)| *place < end)
            .peekable();
        if inside.peek().is_none() {
            continue;
        }

        let Ok(text) = symbol.name() else { continue };
        let function = Function {
            start,
            name: readable(text),
            symbol: cut(text),
        };
        names.extend(inside.map(|(_, address)| (*address, function.clone())));
    }
    names
}

/// As [`functions`], from the file of symbols that was split off a program, such as
/// `navarch.debug`: the one beside it that its `.gnu_debuglink` names.
fn split_functions(
    program: &ElfFile64<'_, Endianness>,
    wanted: &[(u64, u64)],
) -> Option<BTreeMap<u64, Function>> {
    let (link, _) = program.gnu_debuglink().ok()??;
    let name = Path::new(OsStr::from_bytes(link)).file_name()?;
    let path = std::fs::read_link(maps::PROGRAM).ok()?.with_file_name(name);
    functions_of_build(&path, program.build_id().ok()??, wanted)
}

/// As [`functions`], from a file, if it is of this build.
fn functions_of_build(
    path: &Path,
    build_id: &[u8],
    wanted: &[(u64, u64)],
) -> Option<BTreeMap<u64, Function>> {
    // Not mapped: nothing prevents that this file is truncated meanwhile.
    let bytes = ReadCache::new(File::open(path).ok()?);
    let file: ElfFile64<'_, Endianness, &ReadCache<File>> = ElfFile64::parse(&bytes).ok()?;
    let is_same = file.build_id().ok()?? == build_id;
    is_same.then(|| functions(&file, wanted))
}

/// The demangled name of a symbol. Demangling stops at the maximum length: symbols refer to parts
/// of themselves, so that a name of nested futures has up to a megabyte.
fn readable(symbol: &str) -> Arc<str> {
    let mut name = Start(String::new());
    // The only possible error is that the name was cut.
    _ = write!(name, "{:#}", rustc_demangle::demangle(symbol));
    name.0.into()
}

/// A writer that keeps the first [`MAX_NAME`] bytes.
struct Start(String);

impl fmt::Write for Start {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.floor_char_boundary(MAX_NAME - self.0.len());
        self.0.push_str(text.get(..fits).unwrap_or_default());
        if fits == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// The first [`MAX_NAME`] bytes of a name.
fn cut(name: &str) -> Arc<str> {
    name.get(..name.floor_char_boundary(MAX_NAME))
        .unwrap_or(name)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_with_a_name() -> usize {
        std::hint::black_box(1)
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn a_file_of_symbols_is_used_if_it_is_of_the_same_build() {
        let function: fn() -> usize = a_function_with_a_name;
        assert_eq!(function(), 1);
        let path = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let file: ElfFile64<'_, Endianness> = ElfFile64::parse(&*bytes).unwrap();
        let build_id = file.build_id().unwrap().unwrap();
        let symbol = file
            .symbols()
            .find(|symbol| {
                symbol
                    .name()
                    .is_ok_and(|name| name.contains("a_function_with_a_name"))
            })
            .unwrap();

        let wanted = [(symbol.address(), 7)];
        let found = functions_of_build(&path, build_id, &wanted).unwrap();
        assert!(found[&7].name.ends_with("a_function_with_a_name"));
        assert!(functions_of_build(&path, b"another", &wanted).is_none());
        assert!(functions_of_build(&path.join("missing"), build_id, &wanted).is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn functions_of_this_program_have_their_names() {
        let function: fn() -> usize = a_function_with_a_name;
        let address = (function as *const ()).addr() as u64;
        let found = names([address, address + 1, 8]).unwrap();
        let name = concat!(module_path!(), "::a_function_with_a_name");
        assert_eq!(
            found.values().map(|name| &**name).collect::<Vec<_>>(),
            [name, name]
        );
        assert!(
            !read(&maps::code().unwrap(), [])
                .unwrap()
                .build_id
                .is_empty()
        );
        assert!(cut(&"é".repeat(MAX_NAME)).len() <= MAX_NAME);
        assert_eq!(&*readable("_RNvC4core3abc"), "core::abc");
        assert!(readable(&"é".repeat(MAX_NAME)).len() <= MAX_NAME);
    }
}
