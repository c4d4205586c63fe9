//! Raises two limits of Valgrind's core, which are constants in its library: the addresses that a program may use, and
//! the number of its mappings.
//!
//! The library's address-space manager is one object file. The tool is linked with a changed copy of it instead:
//!
//! - `aspacem_maxAddr` and `aspacem_vStart`, the bounds of the address space, become global symbols. So the tool can
//!   set them when the process starts (`capture/valgrind/address_space.c`).
//! - `nsegments`, the table of mappings, becomes longer. It is the last variable of its section, so the section just
//!   grows. The constant that the number of entries is compared with occurs once in the code, and is replaced.
//!
//! No source of Valgrind is needed, and no build of minutes: the distribution's packages stay usable. Each step is
//! checked. If a library is not as expected, the limit stays as it is, and recordings say so when a program meets it.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::archive::ArchiveFile;
use object::read::elf::{ElfFile64, SectionHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, elf};

use crate::TraceError;

/// End of the name of the object file in the archive.
const MEMBER: &str = "aspacemgr-linux.o";
const BOUNDS: [&str; 2] = ["aspacem_maxAddr", "aspacem_vStart"];
const TABLE: &str = "nsegments";
/// Valgrind's own number of entries (`VG_N_SEGMENTS`).
const ENTRIES: u32 = 30_000;
/// Enough for 262,144 mappings, which databases ask for (`vm.max_map_count`; Linux's default is 65,530). Entries that
/// are not used take no memory.
pub(super) const MORE_ENTRIES: u32 = 300_000;

/// A copy of the address-space manager with raised limits.
pub(super) struct RaisedLimits {
    pub object: PathBuf,
    /// Number of mappings and gaps between them that Valgrind can keep.
    pub segments: u32,
}

/// Writes the copy into `folder`, from Valgrind's static library `archive`; none if the library is not as expected.
pub(super) fn raise(archive: &Path, folder: &Path) -> Result<Option<RaisedLimits>, TraceError> {
    let data = std::fs::read(archive).map_err(|e| TraceError::io(archive, e))?;
    let Some(mut manager) = address_space_manager(&data) else { return Ok(None) };
    let segments = if lengthen_table(&mut manager).is_some() { MORE_ENTRIES } else { ENTRIES };
    let object = folder.join(MEMBER);
    std::fs::write(&object, &manager).map_err(|e| TraceError::io(&object, e))?;
    // Part of binutils, as the linker is.
    let globalized =
        Command::new("objcopy").args(BOUNDS.map(|name| format!("--globalize-symbol={name}"))).arg(&object).status();
    Ok(globalized.is_ok_and(|status| status.success()).then_some(RaisedLimits { object, segments }))
}

fn address_space_manager(archive: &[u8]) -> Option<Vec<u8>> {
    let members = ArchiveFile::parse(archive).ok()?.members();
    let member = members.flatten().find(|member| member.name().ends_with(MEMBER.as_bytes()))?;
    Some(member.data(archive).ok()?.to_vec())
}

/// Makes the table of mappings longer; none, and nothing changed, unless everything is where it is expected.
fn lengthen_table(object: &mut [u8]) -> Option<()> {
    let file = ElfFile64::<LittleEndian>::parse(&*object).ok()?;
    let table = file.symbols().find(|symbol| symbol.name() == Ok(TABLE))?;
    let section = file.section_by_index(table.section_index()?).ok()?;
    let entry_bytes = table.size() / u64::from(ENTRIES);
    let is_last = table.address() + table.size() == section.size();
    if table.size() % u64::from(ENTRIES) != 0
        || !is_last
        || section.elf_section_header().sh_type(LittleEndian) != elf::SHT_NOBITS
    {
        return None;
    }
    let code = file.section_by_name(".text")?;
    let (code_start, code_bytes) = code.file_range()?;
    let code = usize::try_from(code_start).ok()?..usize::try_from(code_start + code_bytes).ok()?;
    let limit = only_limit(&object[code.clone()])?;

    let more_bytes = u64::from(MORE_ENTRIES - ENTRIES) * entry_bytes;
    let section_size = offset_in(object, &section.elf_section_header().sh_size);
    let symbol_size = offset_in(object, &table.elf_symbol().st_size);
    let sizes = [(section_size, section.size() + more_bytes), (symbol_size, table.size() + more_bytes)];
    for (at, size) in sizes {
        object[at..at + 8].copy_from_slice(&size.to_le_bytes());
    }
    let at = code.start + limit.at;
    object[at..at + 4].copy_from_slice(&(limit.value + MORE_ENTRIES - ENTRIES).to_le_bytes());
    Some(())
}

fn offset_in<T>(object: &[u8], field: &T) -> usize {
    std::ptr::from_ref(field).addr() - object.as_ptr().addr()
}

struct Limit {
    at: usize,
    value: u32,
}

/// The constant that the number of entries is compared with: `>= ENTRIES`, or `> ENTRIES - 1`, as compilers have it.
fn only_limit(code: &[u8]) -> Option<Limit> {
    let mut limits = [ENTRIES, ENTRIES - 1].into_iter().flat_map(|value| {
        memchr::memmem::find_iter(code, &value.to_le_bytes()).map(|at| Limit { at, value }).collect::<Vec<_>>()
    });
    let limit = limits.next()?;
    limits.next().is_none().then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY_BYTES: u64 = 72;

    /// An object file with a table as Valgrind's, `code` and `after` behind the table.
    fn assembled(code: &str, after: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let (source, object) = (folder.path().join("a.s"), folder.path().join("a.o"));
        let bytes = u64::from(ENTRIES) * ENTRY_BYTES;
        let text = format!(
            ".text\n{code}\n.bss\nnsegments_used: .zero 8\n.type nsegments, @object\n.size nsegments, {bytes}\n\
             nsegments: .zero {bytes}\n{after}\n"
        );
        std::fs::write(&source, text).unwrap();
        let status = Command::new("gcc").args(["-c", "-o"]).arg(&object).arg(&source).status().unwrap();
        assert!(status.success());
        std::fs::read(object).unwrap()
    }

    #[test]
    fn the_table_its_section_and_the_constant_grow() {
        for (least, code) in [(29_999, "cmp $29999, %r8d"), (30_000, "nop; cmpl $30000, nsegments_used(%rip)")] {
            let mut object = assembled(code, "");
            lengthen_table(&mut object).unwrap();
            let file = ElfFile64::<LittleEndian>::parse(&*object).unwrap();
            let table = file.symbols().find(|symbol| symbol.name() == Ok(TABLE)).unwrap();
            assert_eq!(table.size(), u64::from(MORE_ENTRIES) * ENTRY_BYTES);
            assert_eq!(file.section_by_name(".bss").unwrap().size(), table.address() + table.size());
            let code = file.section_by_name(".text").unwrap().data().unwrap();
            let constant: u32 = least + MORE_ENTRIES - ENTRIES;
            assert!(code.windows(4).any(|word| word == constant.to_le_bytes()), "{code:?}");
        }
    }

    #[test]
    fn an_object_that_is_not_as_expected_stays_as_it_is() {
        let twice = "cmp $29999, %r8d; cmp $30000, %r9d";
        for (code, after) in [("cmp $29999, %r8d", "other: .zero 8"), (twice, ""), ("nop", "")] {
            let object = assembled(code, after);
            let mut changed = object.clone();
            assert!(lengthen_table(&mut changed).is_none(), "{code} {after}");
            assert!(object == changed);
        }
    }

    #[test]
    fn a_library_without_the_manager_has_no_raised_limits() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("library.a");
        std::fs::write(&library, "!<arch>\n").unwrap();
        assert!(raise(&library, folder.path()).unwrap().is_none());
    }
}
