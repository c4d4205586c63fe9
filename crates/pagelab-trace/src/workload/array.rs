//! Shared by the workloads over one array: the threads' regions, the number of accesses, stores.

use super::{
    between::{Between, OtherData},
    layout::{Layout, Site},
    program::{Initialise, Plan, Stream, Worker, plan},
    spec::{COUNT, Kind, Parameter, Preset, SIZE, Values},
};
use crate::rng::Rng;
use crate::{Access, AccessKind, TraceError, quantity::format_bytes};

pub(super) const SIZE_1G: Parameter = Parameter {
    name: "size",
    kind: SIZE,
    default: Preset::Value("1GiB"),
    meaning: "bytes of the array, of each thread's if each has its own",
};
pub(super) const REGIONS: Parameter = Parameter {
    name: "regions",
    kind: Kind::Choice(&["own", "apart", "shared"]),
    default: Preset::Value("own"),
    meaning: "whether each thread has an array of its own or all share one; own ones are neighbours, which a kernel makes one \
              mapping of, unless they are apart",
};
pub(super) const WRITE: Parameter = Parameter {
    name: "write",
    kind: Kind::Fraction,
    default: Preset::Value("0"),
    meaning: "fraction of the accesses that are stores, chosen at random",
};
pub(super) const INITIALISE: Parameter = Parameter {
    name: "init",
    kind: Kind::Choice(&["yes", "no", "pages"]),
    default: Preset::Value("no"),
    meaning: "whether the array is first written from end to end, 8 bytes per store (pages: one store per page of 4 KiB), beyond \
              the accesses counted here",
};
pub(super) const PASSES: Parameter = Parameter {
    name: "passes",
    kind: COUNT,
    default: Preset::Derived("1, or as accesses demand"),
    meaning: "passes over the array",
};
pub(super) const ACCESSES_OF_PASSES: Parameter = Parameter {
    name: "accesses",
    kind: COUNT,
    default: Preset::Derived("as many as the passes take"),
    meaning: "accesses of all threads together, instead of passes",
};
pub(super) const ACCESSES: Parameter = Parameter {
    name: "accesses",
    kind: COUNT,
    default: Preset::Value("10M"),
    meaning: "accesses of all threads together",
};
pub(super) const GRANULARITY: Parameter = Parameter {
    name: "granularity",
    kind: Kind::Bytes { min: 1, max: 1 << 40 },
    default: Preset::Value("8"),
    meaning: "bytes of an element; an access reads the first 8 at most",
};

/// Distance in bytes between initialising stores of `word` bytes; none without initialisation.
pub(super) fn initialise_step(values: &Values, word: u64) -> Option<u64> {
    match values.word(INITIALISE.name) {
        "no" => None,
        "pages" => Some(PAGE),
        _ => Some(word),
    }
}

const PAGE: u64 = 4096;

/// Sites 0 and 1 are the workload's load and store; further ones are its own. This one initialises.
const INITIALISE_SITE: u64 = 15;

/// One thread's view of the array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub base: u64,
    pub bytes: u64,
    /// This thread's index among `threads` threads.
    pub thread: u64,
    pub threads: u64,
    /// True if all threads use the same array.
    pub shared: bool,
}

impl Part {
    /// The elements of a shared array of `elements` for this thread (begin and end); for an own array, all.
    pub fn share(&self, elements: u64) -> (u64, u64) {
        if self.shared { share(elements, self.thread, self.threads) } else { (0, elements) }
    }
}

/// Begin and end of part `index` when `0..count` is divided into `threads` equal parts.
pub(super) fn share(count: u64, index: u64, threads: u64) -> (u64, u64) {
    let at = |index: u64| (u128::from(count) * u128::from(index) / u128::from(threads)) as u64;
    (at(index), at(index + 1))
}

/// How many of `count` accesses thread `index` of `threads` makes; the threads' numbers differ by at most one.
pub(super) fn portion(count: u64, index: u64, threads: u64) -> u64 {
    count / threads + u64::from(index < count % threads)
}

/// Bytes that an access to an element of `element_bytes` reads or writes.
pub(super) fn width(element_bytes: u64) -> u16 {
    element_bytes.min(8) as u16
}

/// Maps the array or arrays and builds the workers.
///
/// Each array has `elements` elements of `element_bytes`, which a pass visits once. `make` builds a thread's stream
/// over its part.
pub(super) fn build<S: Stream + 'static>(
    values: &Values,
    element_bytes: u64,
    make: impl Fn(&Part) -> S,
) -> Result<Plan, TraceError> {
    let (bytes, threads) = (values.number(SIZE_1G.name), values.threads());
    if element_bytes > bytes {
        return Err(values.refuse(SIZE_1G.name, &format!("at least one element of {}", format_bytes(element_bytes))));
    }
    let elements = bytes / element_bytes;
    let regions = values.word(REGIONS.name);
    let shared = regions == "shared";
    let mut layout = Layout::new(values);
    let (mut workers, mut others) = (Vec::new(), Vec::new());
    let mut base = 0;
    for thread in 0..threads {
        if thread == 0 || !shared {
            if regions == "apart" {
                layout.leave_hole();
            }
            base = layout.map(thread as u32, bytes)?;
        }
        let other = OtherData::map(values, &mut layout, thread as u32)?;
        let part = Part { base, bytes, thread, threads, shared };
        let mut initialise = Vec::new();
        let site = Site::new(INITIALISE_SITE, width(bytes), values.gap());
        if let Some(step) = initialise_step(values, u64::from(site.size_bytes)) {
            // The rest of the array after the last whole word is not written.
            let stores = (bytes - bytes % u64::from(site.size_bytes)).div_ceil(step);
            let (begin, end) = part.share(stores);
            initialise.push(Initialise::new(site, base + begin * step, step, end - begin));
        }
        let accesses = accesses(values, &part, elements, other.map_or(1, |other| other.accesses_per_access()))?;
        workers.push(Worker { initialise, stream: make(&part), accesses });
        others.extend(other);
    }
    if others.is_empty() {
        return Ok(plan(layout, workers));
    }
    let with_other = workers.into_iter().zip(others).map(|(worker, other)| {
        let Worker { initialise, stream, accesses } = worker;
        Worker { initialise, stream: Between::new(stream, other), accesses }
    });
    Ok(plan(layout, with_other.collect()))
}

/// Number of accesses of one thread, from `accesses` or, where the workload has it, `passes`; each element takes `each`
/// accesses.
fn accesses(values: &Values, part: &Part, elements: u64, each: u64) -> Result<u64, TraceError> {
    let total = values.optional(ACCESSES.name);
    if total.is_some() && values.has(PASSES.name) && values.given(PASSES.name) {
        return Err(values.conflict("give passes or accesses, not both"));
    }
    if let Some(total) = total {
        return Ok(portion(total, part.thread, part.threads));
    }
    let passes = values.optional(PASSES.name).unwrap_or(1);
    let (begin, end) = part.share(elements);
    let count = passes
        .checked_mul(end - begin)
        .and_then(|count| count.checked_mul(each))
        .filter(|&count| count <= (u64::MAX >> 1) / part.threads);
    count.ok_or_else(|| values.refuse(PASSES.name, "small enough that 64 bits count the accesses"))
}

/// Chooses randomly between a load and a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    load: Site,
    store: Site,
    /// Number of stores per 2^32 accesses.
    stores: u64,
}

impl Mix {
    /// Accesses of `size_bytes`; the share `write` of the spec is stores.
    pub fn new(values: &Values, size_bytes: u16) -> Self {
        let site = |number| Site::new(number, size_bytes, values.gap());
        Self { load: site(0), store: site(1), stores: (values.real(WRITE.name) * (1u64 << 32) as f64) as u64 }
    }

    /// The access to `vaddr` that the low half of `random` chooses.
    #[inline(always)]
    pub fn access(&self, random: u64, vaddr: u64) -> Access {
        let store = random & 0xffff_ffff < self.stores;
        let kind = if store { AccessKind::Store } else { AccessKind::Load };
        Access { pc: if store { self.store.pc } else { self.load.pc }, ..self.load.access(kind, vaddr) }
    }

    /// The site and kind of all accesses, if they are all the same.
    pub fn uniform(&self) -> Option<(Site, AccessKind)> {
        match self.stores {
            0 => Some((self.load, AccessKind::Load)),
            0x1_0000_0000.. => Some((self.store, AccessKind::Store)),
            _ => None,
        }
    }
}

/// Visits `count` elements, `step` bytes apart, repeatedly.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    start: u64,
    step: u64,
    count: u64,
    at: u64,
    /// Offset within each element that the pass accesses; the next pass adds `advance`.
    offset: u64,
    advance: u64,
    mix: Mix,
    rng: Rng,
}

impl Sweep {
    pub fn new(values: &Values, part: &Part, step: u64, advance: u64) -> Self {
        let elements = part.bytes / step;
        // With more threads than elements, a thread without a share may still have accesses to make.
        let (begin, end) = Some(part.share(elements)).filter(|(begin, end)| begin < end).unwrap_or((0, elements));
        Self {
            start: part.base + begin * step,
            step,
            count: end - begin,
            at: 0,
            offset: 0,
            advance,
            mix: Mix::new(values, width(step)),
            rng: Rng::for_thread(values.seed(), values.name(), part.thread),
        }
    }
}

impl Stream for Sweep {
    fn fill(&mut self, out: &mut [Access]) -> usize {
        let mut rest = &mut *out;
        while !rest.is_empty() {
            let left = usize::try_from(self.count - self.at).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at_mut(left.min(rest.len()));
            let first = self.start + self.offset + self.at * self.step;
            // In the common cases kind and size are constants, so that the compiler merges the stores of the fields.
            const LOAD: AccessKind = AccessKind::Load;
            const WORD: u16 = 8;
            match self.mix.uniform() {
                Some((site @ Site { size_bytes: WORD, .. }, LOAD)) => {
                    write(now, first, self.step, |v| Site { size_bytes: WORD, ..site }.load(v));
                }
                Some((site @ Site { size_bytes: WORD, .. }, _)) => {
                    write(now, first, self.step, |v| Site { size_bytes: WORD, ..site }.store(v));
                }
                Some((site, kind)) => write(now, first, self.step, |v| site.access(kind, v)),
                None => {
                    let (mix, mut rng) = (self.mix, self.rng.clone());
                    write(now, first, self.step, |v| mix.access(rng.next_u64(), v));
                    self.rng = rng;
                }
            }
            self.at += now.len() as u64;
            if self.at == self.count {
                self.at = 0;
                self.offset += self.advance;
                if self.offset + u64::from(width(self.step)) > self.step {
                    self.offset = 0;
                }
            }
            rest = later;
        }
        out.len()
    }
}

/// Overwrites `out` with accesses to addresses `step` bytes apart.
#[inline(always)]
fn write(out: &mut [Access], first: u64, step: u64, mut access: impl FnMut(u64) -> Access) {
    let mut vaddr = first;
    for slot in out {
        *slot = access(vaddr);
        vaddr = vaddr.wrapping_add(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_complete() {
        for (count, threads) in [(10, 3), (0, 4), (7, 7), (3, 8), (u64::MAX, 1000)] {
            let mut end = 0;
            let mut sum = 0;
            for index in 0..threads {
                let (begin, next) = share(count, index, threads);
                assert_eq!(begin, end);
                assert!((count / threads..=count / threads + 1).contains(&(next - begin)));
                end = next;
                sum += portion(count, index, threads);
            }
            assert_eq!((end, sum), (count, count));
        }
    }
}
