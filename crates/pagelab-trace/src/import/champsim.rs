//! ChampSim's records: `input_instr`, and `cloudsuite_instr` of its CloudSuite traces.
//!
//! An instruction each, little-endian: instruction pointer (8), is-branch and branch-taken (1 each, 0 or 1),
//! destination registers (1 each: 2, of CloudSuite 4), 4 source registers (1 each), store addresses (8 each: 2, of
//! CloudSuite 4), 4 load addresses (8 each), 0 where there is none. That makes 64 bytes. CloudSuite's records have 96,
//! with 6 unused bytes before the addresses, address-space ids (2) and 6 more unused bytes behind them. Loads come
//! before stores. Registers, branches and address-space ids are dropped. Source: `inc/trace_instruction.h` of ChampSim.
//!
//! The records tell no sizes: data accesses get an assumed one, fetches 1 byte, so that no page is fetched from that
//! the trace does not name.

use super::{
    Head, ImportOptions,
    files::only,
    input::Input,
    sink::{Problem, Sink},
};
use crate::{AccessKind, TraceError};

const FLAGS: [(&str, usize); 2] = [("is_branch", 8), ("branch_taken", 9)];

/// Where the addresses are in a record of this many bytes.
struct Layout<const BYTES: usize> {
    stores_at: usize,
    stores: usize,
    loads_at: usize,
}

const INPUT: Layout<64> = Layout { stores_at: 16, stores: 2, loads_at: 32 };
const CLOUDSUITE: Layout<96> = Layout { stores_at: 24, stores: 4, loads_at: 56 };
const LOADS: usize = 4;
/// Programs have no memory below (`vm.mmap_min_addr`, of which 4 KiB is the least).
const LOWEST_ADDRESS: u64 = 4096;
/// Instructions follow each other mostly within so many bytes.
const NEAR_BYTES: u64 = 4096;

/// True if the data begins with records of 64 bytes rather than of 96, or of either.
pub(super) fn looks_like(head: Head<'_>) -> bool {
    matches!(Guess::new(&head), Guess::Input | Guess::Either)
}

/// True if the data begins with records of 96 bytes rather than of 64.
pub(super) fn looks_like_cloudsuite(head: Head<'_>) -> bool {
    Guess::new(&head) == Guess::CloudSuite
}

/// Why data that looks like records is not certain to be of one kind; none if it is.
pub(super) fn doubt(head: Head<'_>) -> Option<String> {
    (Guess::new(&head) == Guess::Either).then(|| {
        "records of ChampSim, of 64 bytes (input_instr) or of 96 (cloudsuite_instr): the content does not decide; give \
         --record-bytes 64 or --record-bytes 96"
            .to_owned()
    })
}

/// Which records data begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guess {
    Input,
    CloudSuite,
    /// Of one of both kinds, and nothing tells of which.
    Either,
    Neither,
}

impl Guess {
    fn new(head: &Head<'_>) -> Self {
        let fits = |bytes| !head.whole || head.bytes.len().is_multiple_of(bytes);
        match (likelihood(head.bytes, &INPUT), likelihood(head.bytes, &CLOUDSUITE)) {
            (None, None) => Self::Neither,
            (Some(_), None) => Self::Input,
            (None, Some(_)) => Self::CloudSuite,
            // Read at the wrong distance, hardly any instructions are near each other.
            (Some(one), Some(other)) if one > 0 && one >= 2 * other => Self::Input,
            (Some(one), Some(other)) if other > 0 && other >= 2 * one => Self::CloudSuite,
            (Some(_), Some(_)) => match (fits(64), fits(96)) {
                (true, false) => Self::Input,
                (false, true) => Self::CloudSuite,
                (true, true) | (false, false) => Self::Either,
            },
        }
    }
}

/// How many of a thousand instructions are near the one before, if the data has records of a layout; none if it does
/// not, as flags are no flags or addresses no addresses. Records read at the wrong distance have addresses of data or
/// nothing instead of half their instructions, and zeros often enough instead of flags.
fn likelihood<const BYTES: usize>(head: &[u8], layout: &Layout<BYTES>) -> Option<usize> {
    let (records, _) = head.as_chunks::<BYTES>();
    // Text has no bytes 0 and 1, in which every record must consist at two places.
    if records.is_empty() || records.iter().any(|record| FLAGS.iter().any(|(_, at)| record[*at] > 1)) {
        return None;
    }
    // Smaller records of other tools, four of which are taken for one, have kinds and sizes where addresses should be.
    let odd = records.iter().filter(|record| layout.addresses(record).any(|(_, vaddr)| vaddr < LOWEST_ADDRESS)).count();
    if odd * 10 > records.len() {
        return None;
    }
    let ip = |record: &[u8; BYTES]| word(record, 0);
    let near = |pair: &&[[u8; BYTES]]| ip(&pair[0]) != 0 && ip(&pair[0]).abs_diff(ip(&pair[1])) < NEAR_BYTES;
    Some(records.windows(2).filter(near).count() * 1000 / records.len())
}

#[inline]
fn word(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"))
}

/// Feeds records of 64 bytes to `sink`.
pub(super) fn read(inputs: &mut [Input], sink: &mut Sink, options: &ImportOptions) -> Result<(), TraceError> {
    INPUT.read(only(inputs)?, sink, u64::from(options.assumed_size_bytes))
}

/// Feeds records of 96 bytes to `sink`.
pub(super) fn read_cloudsuite(
    inputs: &mut [Input],
    sink: &mut Sink,
    options: &ImportOptions,
) -> Result<(), TraceError> {
    CLOUDSUITE.read(only(inputs)?, sink, u64::from(options.assumed_size_bytes))
}

/// What readers of results should know.
pub(super) fn notes(options: &ImportOptions) -> Vec<String> {
    let size = options.assumed_size_bytes;
    vec![format!("ChampSim does not tell the sizes of accesses: every one is taken for {size} bytes")]
}

impl<const BYTES: usize> Layout<BYTES> {
    fn read(&self, input: &mut Input, sink: &mut Sink, size_bytes: u64) -> Result<(), TraceError> {
        sink.enter(0, 1).map_err(|problem| problem.at(input, str::to_owned))?;
        loop {
            let begin = input.offset();
            let ahead = input.ahead(BYTES)?;
            let (records, left) = ahead.as_chunks::<BYTES>();
            let (done, left) = (records.as_flattened().len(), left.len());
            if done == 0 && left > 0 {
                let what = format!("{left} bytes left, expected a whole record");
                return Err(input.corrupt(format!("{}: {what}", Self::place(begin))));
            }
            if done == 0 {
                return Ok(());
            }
            for (number, record) in records.iter().enumerate() {
                if !sink.next_record()? {
                    return Ok(());
                }
                if let Err(problem) = self.take(record, sink, size_bytes) {
                    let place = Self::place(begin + (number * BYTES) as u64);
                    return Err(problem.at(input, |what| format!("{place}: {what}")));
                }
            }
            input.consume(done);
        }
    }

    fn place(offset: u64) -> String {
        format!("offset {offset} (record {}, of {BYTES} bytes each)", offset / BYTES as u64)
    }

    #[inline]
    fn take(&self, record: &[u8; BYTES], sink: &mut Sink, size_bytes: u64) -> Result<(), Problem> {
        for (name, at) in FLAGS {
            if record[at] > 1 {
                return Err(format!("{name} is {}, expected 0 or 1", record[at]).into());
            }
        }
        sink.instruction(word(record, 0), 1)?;
        self.addresses(record).try_for_each(|(kind, vaddr)| sink.access(kind, vaddr, size_bytes))
    }

    /// The addresses that a record loads from and stores to.
    #[inline]
    fn addresses<'r>(&self, record: &'r [u8; BYTES]) -> impl Iterator<Item = (AccessKind, u64)> + use<'r, BYTES> {
        let loads = (self.loads_at..self.loads_at + 8 * LOADS).step_by(8).map(|at| (AccessKind::Load, at));
        let stores = (self.stores_at..self.stores_at + 8 * self.stores).step_by(8).map(|at| (AccessKind::Store, at));
        let all = loads.chain(stores).map(|(kind, at)| (kind, word(record, at)));
        all.filter(|(_, vaddr)| *vaddr != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop of instructions with a load and a store each, of which only the first slots are used.
    fn records<const BYTES: usize>(layout: &Layout<BYTES>, count: usize, more: usize) -> Vec<u8> {
        let mut head = vec![0; count * BYTES + more];
        for (number, record) in head.chunks_exact_mut(BYTES).enumerate() {
            record[..8].copy_from_slice(&(0x40_0000 + number as u64 % 50).to_le_bytes());
            record[8] = 1;
            for (at, address) in [(layout.loads_at, 0x7fff_0000_1000u64), (layout.stores_at, 0x60_1000)] {
                record[at..at + 8].copy_from_slice(&address.to_le_bytes());
            }
        }
        head
    }

    #[test]
    fn records_are_recognised() {
        let recognised = |bytes: &[u8]| {
            let head = || Head { bytes, whole: true };
            (looks_like(head()), looks_like_cloudsuite(head()))
        };
        assert_eq!(recognised(&[0x40; 200]), (false, false));
        for count in [1, 2, 3, 5, 100] {
            assert_eq!(recognised(&records(&INPUT, count, 0)), (true, false), "{count}");
            assert_eq!(recognised(&records(&CLOUDSUITE, count, 0)), (false, true), "{count}");
        }
        assert_eq!(recognised(&records(&INPUT, 30, 5)), (true, false));
        assert_eq!(recognised(&records(&CLOUDSUITE, 30, 5)), (false, true));
        let mut wrong = records(&INPUT, 3, 5);
        (wrong[64 + 9], wrong[96 + 9]) = (2, 2);
        assert_eq!(recognised(&wrong), (false, false));
        assert_eq!(recognised(&[0; 63]), (false, false));
    }

    #[test]
    fn a_layout_that_nothing_decides_is_in_doubt() {
        let doubted = |bytes: &[u8], whole| doubt(Head { bytes, whole }).is_some();
        // 192 zeros are three records of 64 bytes or two of 96.
        assert!(doubted(&[0; 192], true) && doubted(&[0; 320], false));
        assert!(!doubted(&[0; 128], true) && !doubted(&[0; 96], true));
        assert!(!doubted(&records(&INPUT, 3, 0), true) && !doubted(&records(&CLOUDSUITE, 4, 0), true));
    }

    #[test]
    fn smaller_records_of_other_tools_are_none() {
        // Address, then a kind and zeros: 16 bytes each.
        let mut bytes = Vec::new();
        for number in 0..400u64 {
            bytes.extend((0x7f00_0000_1000 + 8 * number).to_le_bytes());
            bytes.extend((number % 2).to_le_bytes());
        }
        let head = || Head { bytes: &bytes, whole: true };
        assert!(!looks_like(head()) && !looks_like_cloudsuite(head()));
    }
}
