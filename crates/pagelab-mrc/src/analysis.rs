//! One pass over a source: a curve for each page size, and one for cache lines.

use pagelab_trace::{Access, AccessKind, Batch, EventKind, Segment, Source, TraceError};
use serde::{Deserialize, Serialize};

use crate::curve::{Curve, Stream};
use crate::host::{self, Work};
use crate::sampling::Sampling;
use crate::spaces::{DroppedPages, Spaces};
use crate::tracker::Tracker;

/// Options of an analysis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Page sizes, powers of two.
    pub page_bytes: Vec<u64>,
    /// Line size, a power of two; none omits caches.
    pub line_bytes: Option<u64>,
    /// Which pages are analysed.
    pub sampling: Sampling,
    /// Seed of samples.
    pub seed: u64,
    /// Maximum number of accesses to analyse.
    pub max_accesses: Option<u64>,
    /// Additional numbers of entries for every curve.
    pub sizes: Vec<u64>,
    /// Ways of the caches whose misses are estimated in addition.
    pub ways: Option<u64>,
}

/// The curves of a source.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// Number of accesses analysed, including fetches.
    pub accesses: u64,
    /// Data accesses; the rest are fetches.
    pub data_accesses: u64,
    /// Instructions up to the last access analysed.
    pub instructions: u64,
    /// One curve for each page size or line size, and each stream.
    pub curves: Vec<Curve>,
}

/// Minimum number of pages of a bounded sample: with fewer, the bounds would be meaningless.
const LEAST_PAGES: u64 = 256;
const LEAST_GRANULE_BYTES: u64 = 16;

impl Options {
    fn check(&self) -> Result<(), TraceError> {
        let usage = |what: String| Err(TraceError::usage(what));
        let sizes = self.page_bytes.iter().chain(&self.line_bytes);
        for &bytes in sizes.clone() {
            if !bytes.is_power_of_two() || !(LEAST_GRANULE_BYTES..=1 << 48).contains(&bytes) {
                return usage(format!(
                    "a page or line of {bytes} bytes is not possible: sizes are powers of two from 16 bytes to 256 TiB"
                ));
            }
        }
        if sizes.count() == 0 {
            return usage("there is nothing to do: name a size of pages or of lines".to_owned());
        }
        match self.sampling {
            Sampling::Rate(rate) if !(rate > 0.0 && rate <= 1.0) => {
                return usage(format!("a sample of the rate {rate} is not possible: it is above 0 and at most 1"));
            }
            Sampling::Pages(pages) if pages < LEAST_PAGES => {
                return usage(format!("a sample of {pages} pages is too small: {LEAST_PAGES} are the least"));
            }
            Sampling::All | Sampling::Rate(_) | Sampling::Pages(_) => {}
        }
        if self.sizes.contains(&0) || self.ways == Some(0) {
            return usage("a cache has an entry at least, and a way".to_owned());
        }
        Ok(())
    }
}

/// Analyses a source in one pass.
///
/// `progress` is called with the number of accesses after each batch. If it returns false, the pass ends, and the
/// result covers the accesses so far.
///
/// # Errors
/// [`TraceError::Usage`] for impossible options, and the errors of the source.
pub fn analyse(
    source: &mut dyn Source,
    options: &Options,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Analysis, TraceError> {
    options.check()?;
    let mut pass = Pass::new(options);
    let (mut spaces, mut batch) = (Spaces::default(), Batch::default());
    let most = options.max_accesses.unwrap_or(u64::MAX);
    while pass.accesses < most && source.next_batch(&mut batch)? {
        pass.batch(&mut spaces, &batch, most)?;
        if !progress(pass.accesses) {
            break;
        }
    }
    pass.finish(options)
}

/// Trackers of one stream, in ascending order of granule size.
struct Granules {
    trackers: Vec<Tracker>,
    /// The last used smallest granule; another use of it is also one of the last used larger granules.
    last: u64,
    shift: u32,
}

impl Granules {
    fn new(bytes: &[u64], options: &Options, name: &str) -> Self {
        let mut shifts: Vec<u32> = bytes.iter().map(|bytes| bytes.trailing_zeros()).collect();
        shifts.sort_unstable();
        shifts.dedup();
        let shift = shifts.first().copied().unwrap_or(63);
        let tracker = |&shift: &u32| Tracker::new(shift, options.sampling, options.seed, &format!("{name}.{shift}"));
        Self { trackers: shifts.iter().map(tracker).collect(), last: u64::MAX, shift }
    }

    /// Uses the bytes from `first` to `last`.
    #[inline(always)]
    fn touch(&mut self, first: u64, last: u64) -> Result<(), TraceError> {
        if first >> self.shift == self.last && last >> self.shift == self.last {
            return Ok(());
        }
        self.last = last >> self.shift;
        for tracker in &mut self.trackers {
            if tracker.touch(first, last)? {
                break;
            }
        }
        Ok(())
    }

    /// Calls `what` with each tracker and forgets the last granule.
    fn each(&mut self, what: impl FnMut(&mut Tracker) -> Result<(), TraceError>) -> Result<(), TraceError> {
        self.last = u64::MAX;
        self.trackers.iter_mut().try_for_each(what)
    }
}

struct Pass {
    data: Granules,
    code: Granules,
    /// The address space of the last access; none before the first.
    space: Option<usize>,
    accesses: u64,
    data_accesses: u64,
    instructions: u64,
}

impl Pass {
    fn new(options: &Options) -> Self {
        let of_data: Vec<u64> = options.page_bytes.iter().chain(&options.line_bytes).copied().collect();
        Self {
            data: Granules::new(&of_data, options, "data"),
            code: Granules::new(&options.page_bytes, options, "code"),
            space: None,
            accesses: 0,
            data_accesses: 0,
            instructions: 0,
        }
    }

    fn batch(&mut self, spaces: &mut Spaces, batch: &Batch, most: u64) -> Result<(), TraceError> {
        let mut begin = 0_usize;
        for segment in &batch.segments {
            match segment {
                Segment::Event(event) if event.kind == EventKind::Skip => {
                    return Err(TraceError::usage(
                        "stretches of the program were skipped when it was recorded, so how soon its pages are used again is not \
                         known: curves need a trace of all accesses",
                    ));
                }
                Segment::Event(event) => spaces.event(event, |left| self.leave(left))?,
                &Segment::Run { thread, end } => {
                    self.enter(spaces.for_thread(thread))?;
                    let left = usize::try_from(most - self.accesses).unwrap_or(usize::MAX);
                    self.run(&batch.accesses[begin..end.min(begin.saturating_add(left))])?;
                    begin = end;
                }
            }
            if self.accesses == most {
                break;
            }
        }
        Ok(())
    }

    fn enter(&mut self, space: usize) -> Result<(), TraceError> {
        if self.space.replace(space) != Some(space) {
            self.each(|tracker| tracker.enter(space))?;
        }
        Ok(())
    }

    fn leave(&mut self, left: DroppedPages) -> Result<(), TraceError> {
        self.each(|tracker| match left {
            DroppedPages::Range { space, first, last } => tracker.forget(space, first, last),
            DroppedPages::All { space } => tracker.forget_space(space),
        })
    }

    fn each(&mut self, mut what: impl FnMut(&mut Tracker) -> Result<(), TraceError>) -> Result<(), TraceError> {
        self.data.each(&mut what)?;
        self.code.each(&mut what)
    }

    fn run(&mut self, accesses: &[Access]) -> Result<(), TraceError> {
        self.accesses += accesses.len() as u64;
        host::run(Run { pass: self, accesses })
    }

    fn finish(mut self, options: &Options) -> Result<Analysis, TraceError> {
        self.each(Tracker::flush)?;
        let mut curves = Vec::new();
        let pages: Vec<u32> = options.page_bytes.iter().map(|bytes| bytes.trailing_zeros()).collect();
        let lines = options.line_bytes.map(u64::trailing_zeros);
        let streams = [
            (Stream::DataTlb, &self.data, self.data_accesses),
            (Stream::CodeTlb, &self.code, 0),
            (Stream::DataCache, &self.data, self.data_accesses),
        ];
        for (stream, granules, accesses) in streams {
            for tracker in &granules.trackers {
                let is_counted = match stream {
                    Stream::DataCache => Some(tracker.shift()) == lines,
                    Stream::DataTlb | Stream::CodeTlb => pages.contains(&tracker.shift()),
                };
                if is_counted {
                    let bytes = 1 << tracker.shift();
                    curves.push(tracker.counts(accesses).curve(stream, bytes, &options.sizes, options.ways));
                }
            }
        }
        let Self { accesses, data_accesses, instructions, .. } = self;
        Ok(Analysis { accesses, data_accesses, instructions, curves })
    }
}

/// Accesses of one thread.
struct Run<'a> {
    pass: &'a mut Pass,
    accesses: &'a [Access],
}

impl Work for Run<'_> {
    type Output = Result<(), TraceError>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let pass = self.pass;
        for access in self.accesses {
            pass.instructions += u64::from(access.gap);
            // Kernel code is not part of the program's code.
            if access.pc != 0 && !access.maker.is_kernel() {
                pass.code.touch(access.pc, access.pc)?;
            }
            if access.kind == AccessKind::Fetch {
                pass.code.touch(access.vaddr, access.vaddr)?;
            } else {
                let last = access.vaddr.saturating_add(u64::from(access.size_bytes.max(1)) - 1);
                pass.data_accesses += 1;
                pass.data.touch(access.vaddr, last)?;
            }
        }
        Ok(())
    }
}
