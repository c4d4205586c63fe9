//! Major page faults: accesses pages of a file that are not in the page cache.
//!
//! Models: nothing; it measures. Each page is accessed once, in random order, with a clock reading before and after.
//! Tracepoints, which others record (`python/pagelab/major_faults`), show what the kernel does in between. So the clock
//! is one that perf supports too (CLOCK_MONOTONIC_RAW), and the thread has a name by which tracepoints can be filtered.
//! Source: mm/filemap.c (`filemap_fault`) of Linux 6.12: MADV_RANDOM disables read-ahead, so that a fault reads one
//! page.
//! Parameters: [`Touching`].
//! Deviations: each time includes a clock reading, about 20 to 50 ns.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use pagelab_trace::{format::HostFacts, rng::Rng};
use serde::{Deserialize, Serialize};

use crate::{
    clock,
    sys::{self, AlignedPage, PAGE_BYTES, ReadOnlyFile},
};

/// How often the page cache is asked to drop the file's pages; the last ones may be in per-CPU lists of other CPUs.
const DROPS: usize = 5;

/// The accesses to make.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Touching {
    /// Pages to access, at most the pages of the file.
    pub faults: usize,
    /// Seed for the choice and order of the pages.
    pub seed: u64,
    /// The CPU to run on, if any.
    pub cpu: Option<usize>,
    /// The thread's name; Linux keeps 15 bytes.
    pub thread: String,
    /// Whether to read pages with pread(2) past the page cache (O_DIRECT) instead of accessing a mapping.
    pub direct: bool,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Touches {
    /// The machine.
    pub host: HostFacts,
    /// Frequency of the core's clock.
    pub cycles_per_nanosecond: f64,
    /// Start of each access on CLOCK_MONOTONIC_RAW.
    pub begin_ns: Vec<u64>,
    /// End of each access on the same clock.
    pub end_ns: Vec<u64>,
    /// Page numbers in the file, in the order of the accesses.
    pub pages: Vec<u64>,
    /// Pages of the file that were still in the page cache after it was asked to drop them.
    pub resident: usize,
    /// Major faults that the kernel counted for the thread in this time.
    pub major_faults: u64,
    /// Whether the thread had real-time priority, so that other programs did not take the CPU from it.
    pub real_time: bool,
}

/// Accesses pages of a file in random order, after dropping them from the page cache, on a thread of its own.
///
/// The first eight bytes of each page must be its number in the machine's byte order.
///
/// `going` is asked between accesses; once it returns false, the rest is omitted.
///
/// # Errors
/// If the file cannot be read, has too few pages, or unexpected contents.
pub fn touch(path: &Path, touching: &Touching, going: &(dyn Fn() -> bool + Sync)) -> io::Result<Touches> {
    on_its_own_thread(&touching.thread, || on_this_thread(path, touching, going))
}

/// Runs work on a thread with this name.
pub(crate) fn on_its_own_thread<T: Send>(name: &str, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn_scoped(scope, work)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A file whose pages were dropped from the page cache, and some of its pages to access.
pub(crate) struct Cold {
    pub mapping: ReadOnlyFile,
    /// The pages to access, in random order.
    pub pages: Vec<u64>,
    /// Pages of the file that are in the page cache nevertheless.
    pub resident: usize,
}

impl Cold {
    pub fn new(path: &Path, count: usize, seed: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        drop_pages(&file)?;
        let mapping = ReadOnlyFile::at_random(&file)?;
        let pages = at_random(mapping.pages(), count, seed)?;
        let resident = mapping.resident()?;
        Ok(Self { mapping, pages, resident })
    }

    /// Reads the first eight bytes of a page, which must be its number.
    pub fn touch(&self, page: u64) -> io::Result<()> {
        ensure_own_number(page, self.mapping.read(page as usize))
    }
}

fn ensure_own_number(page: u64, number: u64) -> io::Result<()> {
    if number == page {
        return Ok(());
    }
    Err(io::Error::other(format!("page {page} of the file holds {number}, not its own number")))
}

fn on_this_thread(path: &Path, touching: &Touching, going: &dyn Fn() -> bool) -> io::Result<Touches> {
    if let Some(cpu) = touching.cpu {
        sys::stay_on(cpu)?;
    }
    let cycles_per_nanosecond = clock::measure()?.cycles_per_nanosecond;
    let Cold { mapping, pages, resident } = Cold::new(path, touching.faults, touching.seed)?;
    let real_time = sys::real_time();
    let before = sys::major_faults();
    let (begin_ns, end_ns) = if touching.direct {
        let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(path)?;
        let mut block = AlignedPage::new();
        timed(&pages, going, |page| {
            direct.read_exact_at(&mut block.0, page * PAGE_BYTES as u64)?;
            Ok(u64::from_ne_bytes(*block.0.first_chunk().expect("a page has eight bytes")))
        })
    } else {
        timed(&pages, going, |page| Ok(mapping.read(page as usize)))
    }?;
    let (host, major_faults) = (HostFacts::this_machine(), sys::major_faults() - before);
    Ok(Touches { host, cycles_per_nanosecond, begin_ns, end_ns, pages, resident, major_faults, real_time })
}

fn drop_pages(file: &File) -> io::Result<()> {
    file.sync_all()?;
    for _ in 0..DROPS {
        sys::drop_from_page_cache(file)?;
        if ReadOnlyFile::at_random(file)?.resident()? == 0 {
            break;
        }
    }
    Ok(())
}

/// Start and end of each read.
fn timed(
    pages: &[u64],
    going: &dyn Fn() -> bool,
    mut read: impl FnMut(u64) -> io::Result<u64>,
) -> io::Result<(Vec<u64>, Vec<u64>)> {
    let (mut begin, mut end) = (Vec::with_capacity(pages.len()), Vec::with_capacity(pages.len()));
    // Written once to avoid faults later.
    begin.resize(pages.len(), 0);
    end.resize(pages.len(), 0);
    for (at, &page) in pages.iter().enumerate() {
        if !going() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        begin[at] = sys::raw_nanoseconds();
        let number = read(page)?;
        end[at] = sys::raw_nanoseconds();
        ensure_own_number(page, number)?;
    }
    Ok((begin, end))
}

/// Chooses `count` of the pages in random order, each at most once.
fn at_random(pages: usize, count: usize, seed: u64) -> io::Result<Vec<u64>> {
    if count > pages {
        return Err(io::Error::other(format!("the file has {pages} pages, fewer than the {count} to touch")));
    }
    let mut order: Vec<u64> = (0..pages as u64).collect();
    let mut rng = Rng::new(seed, "touches");
    for at in 0..count {
        order.swap(at, at + rng.below((pages - at) as u64) as usize);
    }
    order.truncate(count);
    Ok(order)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::{collections::BTreeSet, io::Write};

    pub fn numbered(pages: u64) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for page in 0..pages {
            let mut block = [0xa5; PAGE_BYTES];
            block[..8].copy_from_slice(&page.to_ne_bytes());
            file.write_all(&block).unwrap();
        }
        file
    }

    fn touching(faults: usize, direct: bool) -> Touching {
        Touching { faults, seed: 1, cpu: None, thread: "touch".into(), direct }
    }

    #[test]
    fn every_page_is_touched_once_and_timed() {
        let file = numbered(256);
        let touches = touch(file.path(), &touching(256, false), &|| true).unwrap();
        let pages: BTreeSet<_> = touches.pages.iter().copied().collect();
        assert_eq!(pages, (0..256).collect());
        assert!(!touches.pages.is_sorted());
        assert!(touches.begin_ns.iter().zip(&touches.end_ns).all(|(begin, end)| begin < end));
        assert!(touches.end_ns.iter().zip(&touches.begin_ns[1..]).all(|(end, next)| end <= next));
        // A file in memory cannot be dropped and has no major faults.
        assert!(touches.major_faults + touches.resident as u64 >= 256, "{touches:?}");
    }

    #[test]
    fn what_cannot_be_touched_is_said() {
        let file = numbered(16);
        let more = touch(file.path(), &touching(17, false), &|| true).unwrap_err();
        assert!(more.to_string().contains("16 pages, fewer than the 17"));
        let stopped = touch(file.path(), &touching(16, false), &|| false).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
        file.as_file().set_len(0).unwrap();
        file.as_file().set_len(16 * PAGE_BYTES as u64).unwrap();
        let other = touch(file.path(), &touching(16, false), &|| true).unwrap_err();
        assert!(other.to_string().contains("holds 0, not its own number"));
    }

    #[test]
    fn pages_come_at_random_and_from_everywhere() {
        let some = at_random(1000, 100, 7).unwrap();
        assert_eq!(some.iter().collect::<BTreeSet<_>>().len(), 100);
        assert!(some.iter().any(|&page| page < 100) && some.iter().any(|&page| page >= 900));
        assert_ne!(some, at_random(1000, 100, 8).unwrap());
    }
}
