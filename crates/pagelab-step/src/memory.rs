//! Reading and changing the memory of a traced process, and what the kernel tells of its mappings.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use libc::pid_t;

const PAGE_BYTES: u64 = 4096;

/// The memory of a process.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    pub fn open(pid: pid_t) -> io::Result<Self> {
        File::options().read(true).write(true).open(format!("/proc/{pid}/mem")).map(Self)
    }

    /// Reads as many bytes from `address` on as there are.
    pub fn read(&self, address: u64, into: &mut [u8]) -> usize {
        // Offsets are signed; no program has memory in the upper half.
        if address > i64::MAX as u64 {
            return 0;
        }
        self.0.read_at(into, address).unwrap_or(0)
    }

    pub fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.read(address, &mut bytes) == N).then_some(bytes)
    }

    pub fn u32(&self, address: u64) -> Option<u32> {
        self.bytes(address).map(u32::from_le_bytes)
    }

    pub fn u64(&self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_le_bytes)
    }

    /// The bytes of a text up to its end, without the final zero; none if it is not readable.
    pub fn text(&self, address: u64) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut at = address;
        while text.len() < 1 << 20 {
            let mut page = [0; PAGE_BYTES as usize];
            let wanted = (PAGE_BYTES - at % PAGE_BYTES) as usize;
            let read = self.read(at, &mut page[..wanted]);
            if let Some(end) = page[..read].iter().position(|byte| *byte == 0) {
                text.extend(&page[..end]);
                return Some(text);
            }
            if read < wanted {
                return None;
            }
            text.extend(&page[..read]);
            at += read as u64;
        }
        None
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }
}

/// A mapping, as `/proc/PID/maps` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// `PROT_*`.
    pub protection: u32,
    pub is_shared: bool,
    pub offset: u64,
    pub inode: u64,
    /// The path of a file, or a name such as `[stack]`; empty without one.
    pub name: String,
}

/// All mappings of a process, in order.
pub fn mappings(pid: pid_t) -> Vec<Mapping> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.lines().filter_map(parse_mapping).collect()
}

fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hexadecimal(words.next()?)?;
    let inode = words.nth(1)?.parse().ok()?;
    let letters = [('r', 1), ('w', 2), ('x', 4)];
    let protection = letters.iter().filter(|(letter, _)| rights.contains(*letter)).map(|(_, bit)| bit).sum();
    let name = words.next().unwrap_or_default().trim_start().to_owned();
    let is_shared = rights.contains('s');
    Some(Mapping { start: hexadecimal(start)?, end: hexadecimal(end)?, protection, is_shared, offset, inode, name })
}

/// The starts and ends of a process's locked mappings, in order, without those that are locked on fault.
/// `None` if the kernel does not tell.
pub fn locked_mappings(pid: pid_t) -> Option<Vec<(u64, u64)>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    if status.lines().any(|line| line.split_ascii_whitespace().take(2).eq(["VmLck:", "0"])) {
        return Some(Vec::new());
    }
    fs::read_to_string(format!("/proc/{pid}/smaps")).ok().map(|text| parse_locked(&text))
}

/// Memory with the flag `lf` is locked page by page as it faults.
fn parse_locked(text: &str) -> Vec<(u64, u64)> {
    let (mut current, mut locked) = (None, Vec::new());
    for line in text.lines() {
        if let Some(mapping) = parse_mapping(line) {
            current = Some((mapping.start, mapping.end));
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |name| flags.split_ascii_whitespace().any(|flag| flag == name);
            locked.extend(current.filter(|_| has("lo") && !has("lf")));
        }
    }
    locked
}

/// Whether a process's page has no frame; false if the kernel does not tell.
pub fn is_absent(pid: pid_t, address: u64) -> bool {
    let mut entry = [0; 8];
    let read = File::open(format!("/proc/{pid}/pagemap"))
        .and_then(|file| file.read_exact_at(&mut entry, address / PAGE_BYTES * 8));
    read.is_ok() && u64::from_le_bytes(entry) >> 63 == 0
}

/// Where the heap of a process begins.
pub fn heap_start(pid: pid_t) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may contain spaces; after it, the heap's start is field 47 of all.
    let (_, fields) = text.rsplit_once(") ")?;
    fields.split(' ').nth(47 - 3)?.parse().ok().filter(|start| *start != 0)
}

/// The ids of a process or thread in the namespaces that it is in, from ours to its own.
pub fn namespace_ids(pid: pid_t) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    ids.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// The path of the program that a process runs.
pub fn program_path(pid: pid_t) -> String {
    fs::read_link(format!("/proc/{pid}/exe")).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_parsed() {
        let line = "7f12a000-7f12c000 r-xp 00003000 fe:01 1234                       /a path/with spaces";
        let expected = Mapping {
            start: 0x7f12_a000,
            end: 0x7f12_c000,
            protection: 5,
            is_shared: false,
            offset: 0x3000,
            inode: 1234,
            name: "/a path/with spaces".to_owned(),
        };
        assert_eq!(parse_mapping(line), Some(expected));
        let nameless = parse_mapping("1000-2000 -w-s 00000000 00:00 0 ").unwrap();
        assert_eq!((nameless.protection, nameless.is_shared, nameless.name.as_str()), (2, true, ""));
        assert_eq!(parse_mapping("nothing"), None);
    }

    #[test]
    fn locked_mappings_have_a_flag() {
        let text = "1000-2000 rw-p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd wr lo ac \n\
                    3000-5000 r--p 00000000 00:00 0 \nVmFlags: rd mr \n\
                    6000-7000 r--p 00000000 00:00 0 \nVmFlags: rd lo lf \n";
        assert_eq!(parse_locked(text), [(0x1000, 0x2000)]);
    }

    #[test]
    fn this_process_has_memory() {
        let pid = std::process::id() as pid_t;
        let text = b"some text\0behind";
        let memory = Memory::open(pid).unwrap();
        assert_eq!(memory.text(text.as_ptr() as u64).unwrap(), b"some text");
        assert_eq!(memory.read(8, &mut [0; 4]), 0);
        assert!(mappings(pid).iter().any(|mapping| mapping.name == "[stack]"));
        assert!(heap_start(pid).is_some());
        assert!(is_absent(pid, 0) && !is_absent(pid, text.as_ptr() as u64));
        assert_eq!(namespace_ids(pid)[0], pid as u32);
    }
}
