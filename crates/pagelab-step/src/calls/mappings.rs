//! What system calls do to the mappings of a process.

use libc::pid_t;

use super::files::{OpenFile, system_v};
use super::{Call, Effects};
use crate::memory::{Mapping, is_absent, locked_mappings, mappings};
use crate::stream::{FileId, Record};

const PAGE_BYTES: u64 = 4096;
const MADV_POPULATE_READ: u32 = libc::MADV_POPULATE_READ as u32;
const MADV_POPULATE_WRITE: u32 = libc::MADV_POPULATE_WRITE as u32;
const MAP_ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
const MAP_SHARED: u32 = libc::MAP_SHARED as u32;
const MAP_LOCKED: u32 = libc::MAP_LOCKED as u32;
const MAP_PRIVATE: u32 = libc::MAP_PRIVATE as u32;
const POPULATED: u32 = (libc::MAP_LOCKED | libc::MAP_POPULATE) as u32;
/// Any access.
const ANY_PROTECTION: u32 = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u32;
const PROT_WRITE: u32 = libc::PROT_WRITE as u32;
const ALL_ADDRESSES: u64 = 1 << 47;

fn whole_pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes)
}

/// Where the heap of a process is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap {
    pub start: u64,
    pub end: u64,
}

impl Effects<'_> {
    fn advise(&mut self, address: u64, bytes: u64, advice: u32) {
        self.stream.send(&Record::Madvise { address, bytes, advice });
    }

    /// Before the call: data of a file in memory that is about to be mapped, and what the call will leave no trace of.
    pub fn before_mapping(&mut self, call: &mut Call) {
        let [address, bytes, third, flags, descriptor, offset] = call.arguments;
        match call.number {
            libc::SYS_mprotect | libc::SYS_pkey_mprotect if third as u32 & PROT_WRITE != 0 => {
                call.locked = self.locked_parts(address, whole_pages(bytes), PROT_WRITE);
            }
            libc::SYS_mremap if third > bytes => call.locked = self.locked_parts(address, PAGE_BYTES, 0),
            libc::SYS_mmap if flags & MAP_ANONYMOUS == 0 => {
                if let Some(file) = OpenFile::of_descriptor(self.tid, descriptor) {
                    file.send_data(offset, whole_pages(bytes), self.stream);
                }
            }
            libc::SYS_shmdt => {
                let attached = mappings(self.pid).into_iter().find(|mapping| mapping.start == address);
                call.detached_bytes = attached.map_or(0, |mapping| mapping.end - mapping.start);
            }
            _ => {}
        }
    }

    /// After a call that has succeeded.
    pub fn after_mapping(&mut self, call: &Call) {
        let ([first, second, third, fourth, ..], result) = (call.arguments, call.result as u64);
        match call.number {
            libc::SYS_mmap => self.mapped(call),
            libc::SYS_munmap => self.stream.send(&Record::Munmap { address: first, bytes: whole_pages(second) }),
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
                let (bytes, protection) = (whole_pages(second), third as u32);
                self.stream.send(&Record::Mprotect { address: first, bytes, protection });
                self.made_writable(call, first.saturating_add(bytes));
            }
            libc::SYS_mremap => self.remapped(call),
            libc::SYS_madvise => self.advise(first, whole_pages(second), third as u32),
            libc::SYS_process_madvise => self.process_advised(first, second, third, fourth as u32, result),
            libc::SYS_remap_file_pages => {
                let what = "remap_file_pages: the trace keeps the order of the pages that the mapping had before";
                self.losses.add(self.pid, what);
            }
            libc::SYS_mlock => self.locked(first, second),
            libc::SYS_mlock2 if third & 1 == 0 => self.locked(first, second),
            libc::SYS_mlockall => self.all_locked(first),
            libc::SYS_munlockall => *self.locks_new_mappings = false,
            libc::SYS_msync => self.synchronised(call),
            libc::SYS_brk => self.heap_moved(result),
            libc::SYS_shmat => self.attached(first, result),
            libc::SYS_shmdt if call.detached_bytes > 0 => {
                self.stream.send(&Record::Munmap { address: first, bytes: call.detached_bytes });
            }
            _ => {}
        }
    }

    /// After a call that has failed, but may have done a part.
    pub fn after_failed_mapping(&mut self, call: &Call) {
        let [first, second, third, ..] = call.arguments;
        let (error, advice) = (-call.result as i32, third as u32);
        let populates = call.number == libc::SYS_madvise && matches!(advice, MADV_POPULATE_READ | MADV_POPULATE_WRITE);
        if matches!(call.number, libc::SYS_mprotect | libc::SYS_pkey_mprotect) && error != libc::EINVAL {
            self.protected_in_part(call);
            return;
        }
        if error != libc::ENOMEM && !(populates && matches!(error, libc::EINVAL | libc::EFAULT)) {
            return;
        }
        match call.number {
            libc::SYS_msync => self.synchronised(call),
            libc::SYS_madvise => {
                let parts = self.mapped_parts(first, whole_pages(second), populates).0;
                for (mapping, start, bytes) in parts {
                    let allowed = match advice {
                        MADV_POPULATE_WRITE => mapping.protection & PROT_WRITE != 0,
                        MADV_POPULATE_READ => mapping.protection & ANY_PROTECTION != 0,
                        _ => true,
                    };
                    if !allowed {
                        return;
                    }
                    self.advise(start, bytes, advice);
                }
            }
            libc::SYS_mlock => self.locked(first, second),
            libc::SYS_mlock2 if third & 1 == 0 => self.locked(first, second),
            _ => {}
        }
    }

    /// A call that has failed half way has changed what comes before.
    fn protected_in_part(&mut self, call: &Call) {
        let [address, bytes, protection, ..] = call.arguments;
        let protection = protection as u32 & ANY_PROTECTION;
        let parts = self.mapped_parts(address, whole_pages(bytes), true).0;
        let changed = parts.iter().take_while(|(mapping, ..)| mapping.protection == protection);
        let bytes: u64 = changed.map(|(_, _, bytes)| bytes).sum();
        if bytes > 0 {
            self.stream.send(&Record::Mprotect { address, bytes, protection });
            self.made_writable(call, address + bytes);
        }
    }

    /// Private locked memory that becomes writable is populated, unless it is locked as it faults.
    fn made_writable(&mut self, call: &Call, end: u64) {
        for &(start, bytes) in call.locked.iter().filter(|(start, _)| *start < end) {
            if !is_absent(self.pid, start) {
                self.advise(start, bytes, MADV_POPULATE_WRITE);
            }
        }
    }

    /// The locked parts of a range in mappings that are private and have none of these rights.
    fn locked_parts(&mut self, address: u64, bytes: u64, without: u32) -> Vec<(u64, u64)> {
        let locked = locked_mappings(self.pid).unwrap_or_else(|| {
            let what = "/proc/PID/smaps is unreadable: pages that mprotect and mremap populate are not in the trace";
            self.losses.add(self.pid, what);
            Vec::new()
        });
        if locked.is_empty() {
            return Vec::new();
        }
        let parts = self.mapped_parts(address, bytes, true).0.into_iter();
        let fitting = parts.filter(|(mapping, start, _)| {
            mapping.protection & without == 0
                && (without == 0 || !mapping.is_shared)
                && locked.iter().any(|(from, to)| (from..to).contains(&start))
        });
        fitting.map(|(_, start, bytes)| (start, bytes)).collect()
    }

    fn synchronised(&mut self, call: &Call) {
        let [address, bytes, flags, ..] = call.arguments;
        self.stream.send(&Record::Msync { address, bytes: whole_pages(bytes), flags: flags as u32 });
    }

    fn mapped(&mut self, call: &Call) {
        let ([_, bytes, protection, flags, descriptor, offset], address) = (call.arguments, call.result as u64);
        let (bytes, protection, mut flags_sent) = (whole_pages(bytes), protection as u32, flags as u32);
        let is_file = flags & MAP_ANONYMOUS == 0;
        let file = if is_file { OpenFile::of_descriptor(self.tid, descriptor) } else { None };
        let populated = file.as_ref().map_or(bytes, |file| file.bytes_from(offset, bytes));
        let locks = *self.locks_new_mappings && protection != 0;
        let asks = locks || flags_sent & POPULATED != 0;
        // Behind the end of a file there is nothing to populate, and nothing is that is locked as it faults.
        let is_on_fault = asks && populated > 0 && is_absent(self.pid, address);
        let is_partial = asks && populated < bytes && !is_on_fault;
        if is_partial || is_on_fault {
            flags_sent &= !POPULATED;
        } else if locks {
            flags_sent |= MAP_LOCKED;
        }
        let (id, path) = file.as_ref().map_or((FileId::default(), ""), |file| (file.id, file.path.as_str()));
        self.stream.send(&Record::Mmap { address, bytes, protection, flags: flags_sent, offset, id, path });
        if is_partial && populated > 0 && protection & ANY_PROTECTION != 0 {
            let writes = protection & PROT_WRITE != 0 && flags as u32 & MAP_SHARED == 0;
            self.advise(address, populated, if writes { MADV_POPULATE_WRITE } else { MADV_POPULATE_READ });
        }
    }

    fn remapped(&mut self, call: &Call) {
        let ([old_address, old_bytes, bytes, flags, ..], address) = (call.arguments, call.result as u64);
        let (old_bytes, bytes) = (whole_pages(old_bytes), whole_pages(bytes));
        let found = mappings(self.pid);
        let at = |address: u64| found.iter().find(|mapping| (mapping.start..mapping.end).contains(&address));
        if let Some(mapping) = at(address).filter(|mapping| bytes > old_bytes && mapping.inode != 0)
            && let Some(file) = self.mapped_file(mapping)
        {
            let grown = address + old_bytes;
            file.send_data(mapping.offset + (grown - mapping.start), bytes - old_bytes, self.stream);
        }
        self.stream.send(&Record::Mremap { old_address, old_bytes, address, bytes });
        let grown = address + old_bytes;
        if !call.locked.is_empty()
            && bytes > old_bytes
            && !is_absent(self.pid, grown)
            && let Some(mapping) = at(grown)
        {
            self.populate(mapping, grown, bytes - old_bytes);
        }
        if flags & libc::MREMAP_DONTUNMAP as u64 != 0
            && let Some(mapping) = at(old_address)
        {
            // The pages have gone; the mapping is still there.
            let (protection, flags) = (mapping.protection, MAP_PRIVATE | MAP_ANONYMOUS as u32);
            let (offset, id, path) = (0, FileId::default(), "");
            self.stream.send(&Record::Mmap {
                address: old_address,
                bytes: old_bytes,
                protection,
                flags,
                offset,
                id,
                path,
            });
        }
    }

    fn mapped_file(&self, mapping: &Mapping) -> Option<OpenFile> {
        let place = format!("/proc/{}/map_files/{:x}-{:x}", self.pid, mapping.start, mapping.end);
        OpenFile::at(place.into(), mapping.name.clone()).filter(|file| file.id.is_in_memory())
    }

    /// The parts of a range that are mapped; up to the first hole if it stops there. And whether it has no hole.
    pub fn mapped_parts(&self, address: u64, bytes: u64, stops_at_hole: bool) -> (Vec<(Mapping, u64, u64)>, bool) {
        let (end, mut reached, mut parts) = (address.saturating_add(bytes), address, Vec::new());
        for mapping in mappings(self.pid) {
            let (from, to) = (mapping.start.max(address), mapping.end.min(end));
            if from >= to {
                continue;
            }
            if stops_at_hole && from != reached {
                break;
            }
            parts.push((mapping, from, to - from));
            reached = to;
        }
        (parts, reached == end)
    }

    /// Over a hole `mlock` does nothing; else it populates, up to memory that must not be accessed.
    fn locked(&mut self, address: u64, bytes: u64) {
        let start = address & !(PAGE_BYTES - 1);
        let bytes = whole_pages(address.saturating_add(bytes) - start);
        let (parts, is_whole) = self.mapped_parts(start, bytes, true);
        if is_whole {
            for (mapping, start, bytes) in parts {
                if !self.populate(&mapping, start, bytes) {
                    return;
                }
            }
        }
    }

    fn populate(&mut self, mapping: &Mapping, start: u64, bytes: u64) -> bool {
        let writes = mapping.protection & PROT_WRITE != 0 && !mapping.is_shared;
        let allowed = mapping.protection & ANY_PROTECTION != 0;
        if allowed {
            self.advise(start, bytes, if writes { MADV_POPULATE_WRITE } else { MADV_POPULATE_READ });
        }
        allowed
    }

    fn all_locked(&mut self, flags: u64) {
        let (current, future, on_fault) = (libc::MCL_CURRENT as u64, libc::MCL_FUTURE as u64, libc::MCL_ONFAULT as u64);
        *self.locks_new_mappings = flags & future != 0 && flags & on_fault == 0;
        if flags & current != 0 && flags & on_fault == 0 {
            for (mapping, start, bytes) in self.mapped_parts(0, ALL_ADDRESSES, false).0 {
                self.populate(&mapping, start, bytes);
            }
        }
    }

    fn heap_moved(&mut self, end: u64) {
        let Heap { start, end: before } = *self.heap;
        if end == before || end < start {
            return;
        }
        self.heap.end = end;
        self.stream.send(&Record::Brk { start, end });
        if *self.locks_new_mappings && end > before {
            self.advise(before, end - before, MADV_POPULATE_WRITE);
        }
    }

    fn attached(&mut self, segment: u64, address: u64) {
        let found = mappings(self.pid);
        let Some(mapping) = found.iter().find(|mapping| mapping.start == address) else { return };
        // `/SYSV` and the key.
        let key = mapping.name.get(5..13).and_then(|key| u32::from_str_radix(key, 16).ok()).unwrap_or(0);
        let ((id, path), bytes) = (system_v(segment, key), mapping.end - mapping.start);
        let part = crate::stream::FilePart { offset: 0, bytes, id, path: &path };
        // Which of its pages exist is not known; all count.
        self.stream.send(&Record::FileData(part));
        let locks = *self.locks_new_mappings && !is_absent(self.pid, address);
        let (protection, flags) = (mapping.protection, if locks { MAP_SHARED | MAP_LOCKED } else { MAP_SHARED });
        self.stream.send(&Record::Mmap { address, bytes, protection, flags, offset: 0, id, path: &path });
    }

    /// Advice to a process by its descriptor: this process's own mappings, or those of others, which are not followed.
    fn process_advised(&mut self, descriptor: u64, list: u64, count: u64, advice: u32, bytes: u64) {
        let target = process_of_descriptor(self.tid, descriptor);
        if target != Some(self.pid) {
            self.losses.add(self.pid, "process_madvise of another process: its effect is not in the trace");
            return;
        }
        let mut left = bytes;
        for (start, length) in self.parts(list, count) {
            let length = length.min(left);
            if length > 0 {
                self.advise(start, length, advice);
            }
            left -= length;
        }
    }
}

/// The process, as this one sees it, that a descriptor stands for.
fn process_of_descriptor(tid: pid_t, descriptor: u64) -> Option<pid_t> {
    let about = std::fs::read_to_string(format!("/proc/{tid}/fdinfo/{}", descriptor as i32)).ok()?;
    about.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}
