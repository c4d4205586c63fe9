//! Functions of a program, by name, at whose calls stretches begin and end.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Object as _, ObjectSymbol as _, SymbolKind, elf};

use crate::TraceError;
use crate::suggestion::nearest;

/// A function as users write it: `SYMBOL`, `OBJECT:SYMBOL`, or an address instead of the symbol; `#N` selects its Nth
/// call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionCall {
    /// The text as written.
    text: String,
    /// Path or file name of the program or library.
    object: Option<String>,
    place: Place,
    /// Number of the call, from 1 on; none for all calls.
    nth: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Symbol(String),
    /// In the object's file, or in memory without an object.
    Address(u64),
}

impl FunctionCall {
    /// # Errors
    /// [`TraceError::Usage`] if the text is not a function; it says what is expected.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let wrong = |what: &str| {
            TraceError::usage(format!(
                "`{text}`: {what}; a function is written SYMBOL, OBJECT:SYMBOL, OBJECT:0xADDRESS or 0xADDRESS, and \
                 FUNCTION#3 for its third call alone"
            ))
        };
        let (function, nth) = match text.rsplit_once('#') {
            Some((function, nth)) => {
                let nth = nth.parse().ok().filter(|&nth| nth > 0);
                (function, Some(nth.ok_or_else(|| wrong("the number of a call is 1 or more"))?))
            }
            None => (text, None),
        };
        // C++ names have `::`.
        let colon = function
            .char_indices()
            .find(|&(at, c)| c == ':' && !function[at + 1..].starts_with(':') && !function[..at].ends_with(':'));
        let (object, place) = match colon {
            Some((at, _)) => (Some(&function[..at]), &function[at + 1..]),
            None => (None, function),
        };
        if place.is_empty() || object == Some("") {
            return Err(wrong("there is no name"));
        }
        let place = match place.strip_prefix("0x") {
            Some(digits) => Place::Address(
                u64::from_str_radix(digits, 16).map_err(|_| wrong("0x is followed by something else than digits"))?,
            ),
            None => Place::Symbol(place.to_owned()),
        };
        Ok(Self { text: text.to_owned(), object: object.map(str::to_owned), place, nth })
    }

    fn is_of(&self, file: &str) -> bool {
        let names = |object: &str| object == file || Path::new(file).file_name().is_some_and(|name| name == object);
        self.object.as_deref().is_none_or(names)
    }
}

/// A function whose calls are watched.
#[derive(Debug)]
struct Watched {
    call: FunctionCall,
    starts: bool,
    calls: u64,
    found: bool,
}

/// A mapping of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapped<'a> {
    pub file: &'a Arc<str>,
    pub addr: u64,
    pub len: u64,
    pub file_offset: u64,
}

/// All watched functions, and their positions in files.
#[derive(Debug, Default)]
pub(super) struct Functions {
    watched: Vec<Watched>,
    /// By file: the offsets of functions in it, each with the function's number.
    places: HashMap<Arc<str>, Vec<(u64, usize)>>,
    /// Names of functions, for suggestions.
    names: BTreeSet<String>,
    /// Files without symbols.
    stripped: BTreeSet<Arc<str>>,
}

impl Functions {
    pub(super) fn new(start_at: &[FunctionCall], stop_at: &[FunctionCall]) -> Self {
        let starts = start_at.iter().map(|call| (call, true));
        let all = starts.chain(stop_at.iter().map(|call| (call, false)));
        let watched = all.map(|(call, starts)| Watched { call: call.clone(), starts, calls: 0, found: false });
        Self { watched: watched.collect(), ..Self::default() }
    }

    /// Addresses of watched functions in a mapping, with their numbers.
    pub(super) fn in_mapping(&mut self, mapped: Mapped<'_>) -> Vec<(u64, usize)> {
        if self.watched.is_empty() {
            return Vec::new();
        }
        let places = match self.places.get(mapped.file) {
            Some(places) => places.clone(),
            None => {
                let places = self.places_in(mapped.file);
                self.places.insert(Arc::clone(mapped.file), places.clone());
                places
            }
        };
        let at = |&(offset, function): &(u64, usize)| {
            let within = offset.checked_sub(mapped.file_offset).filter(|&within| within < mapped.len)?;
            Some((mapped.addr + within, function))
        };
        let mut found: Vec<(u64, usize)> = places.iter().filter_map(at).collect();
        for (number, watched) in self.watched.iter().enumerate() {
            if let (None, Place::Address(address)) = (&watched.call.object, &watched.call.place)
                && address.wrapping_sub(mapped.addr) < mapped.len
            {
                found.push((*address, number));
            }
        }
        found.iter().for_each(|&(_, number)| self.watched[number].found = true);
        found
    }

    /// Offsets of watched functions in a file, with their numbers; none if it is not an ELF file.
    fn places_in(&mut self, file: &Arc<str>) -> Vec<(u64, usize)> {
        let Ok(bytes) = fs::read(Path::new(&**file)) else { return Vec::new() };
        let Ok(parsed) = ElfFile64::<object::Endianness>::parse(bytes.as_slice()) else { return Vec::new() };
        let endian = parsed.endian();
        let offset_of = |address: u64| {
            parsed.elf_program_headers().iter().find_map(|header| {
                let within = address.wrapping_sub(header.p_vaddr(endian));
                let holds = header.p_type(endian) == elf::PT_LOAD && within < header.p_filesz(endian);
                holds.then(|| header.p_offset(endian) + within)
            })
        };
        let mut found = BTreeSet::new();
        for symbol in parsed.symbols().chain(parsed.dynamic_symbols()) {
            let Ok(name) = symbol.name() else { continue };
            if symbol.kind() != SymbolKind::Text || symbol.is_undefined() || name.is_empty() {
                continue;
            }
            self.names.insert(name.to_owned());
            let wanted = |watched: &Watched| matches!(&watched.call.place, Place::Symbol(wanted) if wanted == name);
            for (number, _) in
                self.watched.iter().enumerate().filter(|(_, watched)| wanted(watched) && watched.call.is_of(file))
            {
                found.extend(offset_of(symbol.address()).map(|offset| (offset, number)));
            }
        }
        if parsed.symbols().next().is_none() {
            self.stripped.insert(Arc::clone(file));
        }
        for (number, watched) in self.watched.iter().enumerate() {
            if let (Some(_), Place::Address(address)) = (&watched.call.object, &watched.call.place)
                && watched.call.is_of(file)
            {
                found.extend(offset_of(*address).map(|offset| (offset, number)));
            }
        }
        found.into_iter().collect()
    }

    /// Counts a call of a function; returns whether recording starts (true) or stops (false), none if another call of
    /// it is meant.
    pub(super) fn called(&mut self, number: usize) -> Option<bool> {
        let watched = &mut self.watched[number];
        watched.calls += 1;
        watched.call.nth.is_none_or(|nth| nth == watched.calls).then_some(watched.starts)
    }

    /// Notes on functions that were not found or not called, one sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for watched in &self.watched {
            let text = &watched.call.text;
            match (watched.found, &watched.call.place) {
                (true, _) if watched.calls == 0 => notes.push(format!("`{text}` was never called")),
                (true, _) => {
                    let missing = watched.call.nth.filter(|&nth| watched.calls < nth);
                    notes.extend(missing.map(|_| format!("`{text}` was called {} times", watched.calls)));
                }
                (false, Place::Symbol(name)) => {
                    let near = nearest(name, self.names.iter().map(String::as_str));
                    let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
                    let stripped: Vec<&str> = self.stripped.iter().map(|file| &**file).take(3).collect();
                    let stripped = if stripped.is_empty() {
                        String::new()
                    } else {
                        format!(
                            "; {} {} no symbol table, so only exported functions and addresses (OBJECT:0xADDRESS) are known there",
                            stripped.join(", "),
                            if stripped.len() == 1 { "has" } else { "have" }
                        )
                    };
                    notes.push(format!(
                        "`{text}`: no program or library that was executed has this function{near}{stripped}"
                    ));
                }
                (false, Place::Address(_)) => {
                    notes.push(format!("`{text}`: no code was mapped there"));
                }
            }
        }
        notes
    }
}
