//! Samples of accesses, as `perf script` prints them.
//!
//! ```text
//! sort 812/814 [003] 24544.670223: 1 cpu/mem-loads,ldlat=30/P:     7f0d3c2b1a40 5080022 |OP LOAD|LVL L1 hit|… 7 7f0d3c0a5e10 f+0x1 (/lib/x)
//! sort 812/814 24544.670242:       1 page-faults:     7fac80c4f110     7fac80c21df9
//! ```
//! A command, process and thread (or one of them), processor, time, period, event, then the address of the accessed
//! data. What the sample did (`|OP LOAD|`, `|OP STORE SIMD|`) or the event's name says whether it is a load or a store;
//! where neither does, it is taken for a load. The last hexadecimal word is the instruction's address.
//! `perf mem record` and `perf script -F comm,pid,tid,time,event,addr,data_src,ip` make such lines, and so do
//! `perf record -d -e page-faults` and `perf script -F comm,pid,tid,time,event,addr,ip`. Source:
//! `tools/perf/builtin-script.c` (`process_event`) of Linux 6.1.
//!
//! The text does not name its fields. `--fields` does ([`layout`](super::perf_fields)). Without it, a line is read only
//! if its first number behind the event must be the address of the data ([`first_number`]): an instruction's address, a
//! data source or a weight are no addresses of data, and a text that may have one of them there is refused.
//!
//! Samples are a few of the accesses: the trace is marked as sampled. Those without an address, and those of the
//! kernel's own data, are left out and counted. Each counts for one instruction.

use super::{
    Head, ImportOptions,
    files::only,
    input::Input,
    lines::{MAX_LINE_BYTES, each_line},
    numbers::{decimal, decimal_at, hexadecimal, hexadecimal_at},
    perf_fields::Layout,
    sink::{Problem, Sink},
    words::{after_blanks, word},
};
use crate::{AccessKind, TraceError};

/// Digits of an instruction's address at least; shorter words behind the data's address are weights.
const MIN_PC_DIGITS: usize = 6;
/// Digits of a weight at most.
const MAX_WEIGHT_DIGITS: usize = 10;
/// perf prints addresses right-aligned in so many columns.
const ADDRESS_COLUMNS: usize = 16;

const EXPECTED: &str = "expected `command pid/tid seconds: event: address …`, as `perf script -F \
                        comm,pid,tid,time,event,addr,ip` prints samples with addresses; --fields names the fields \
                        of another text";
const NO_ADDRESS: &str = "a sample without the address of its data; print it with `perf script -F \
                          comm,pid,tid,time,event,addr,data_src,ip` of a recording made by `perf mem record` or \
                          `perf record -d`, or name the text's fields by --fields if addr is among them";
const UNCERTAIN: &str = "the number behind the event may be the address of the data, of an instruction, or a weight; \
                         name the text's fields as `perf script -F` has them, such as --fields \
                         comm,pid,tid,time,event,addr";

/// What a sample did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Access(AccessKind),
    /// Nothing says it.
    Unknown,
    /// A prefetch, which is no access.
    Prefetch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub process: u64,
    pub thread: u64,
    pub operation: Operation,
    pub address: u64,
    pub pc: u64,
    /// The address could be a weight: it has decimal digits only, and nothing else decides.
    pub may_be_weight: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Skip,
    Sample(Sample),
    /// There is no address of data in it.
    NoAddress,
    /// Its first number may be anything.
    Uncertain,
    /// Neither of the above.
    Malformed,
}

/// The meaning of a line whose fields nobody names.
fn parse(line: &[u8]) -> Line {
    parse_sample(line).unwrap_or(Line::Malformed)
}

fn parse_sample(line: &[u8]) -> Option<Line> {
    let line = line.trim_ascii();
    if line.is_empty() || line[0] == b'#' {
        return Some(Line::Skip);
    }
    // The command may hold blanks and colons, so what is certain is looked for: the time, `seconds.micros:`.
    let (before, behind) = at_time(line)?;
    let mut backwards = before.rsplit(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut word = backwards.next()?;
    if word.starts_with(b"[") {
        word = backwards.next()?;
    }
    let (process, thread) = process_and_thread(word)?;
    let (event, payload) = event(behind)?;
    let (address, may_be_weight) = match first_number(payload)? {
        First::Address { address, may_be_weight } => (address, may_be_weight),
        First::Other => return Some(Line::NoAddress),
        First::Uncertain => return Some(Line::Uncertain),
    };
    let operation = operation(event, payload);
    Some(Line::Sample(Sample { process, thread, operation, address, pc: pc(payload), may_be_weight }))
}

/// `PID/TID`, or one number. The process is not told then, so all threads are taken to be of one.
pub(super) fn process_and_thread(word: &[u8]) -> Option<(u64, u64)> {
    match word.iter().position(|&b| b == b'/') {
        Some(slash) => Some((decimal(&word[..slash])?, decimal(&word[slash + 1..])?)),
        None => Some((0, decimal(word)?)),
    }
}

/// What the first number behind an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Address {
        address: u64,
        may_be_weight: bool,
    },
    /// The address of an instruction, or a data source.
    Other,
    Uncertain,
}

/// Tells what the first number of a payload is: what is behind an event's colon.
///
/// A data source (`5080022 |OP LOAD|…`) has a number of its own in front of `|OP`; an address before that is the
/// data's. Otherwise the columns decide. perf prints the data's address in 16 columns behind one blank, and weights
/// likewise; an instruction's address stands behind two. Where a text's blanks are others', the data's address is the
/// first of two, and alone it is uncertain.
fn first_number(payload: &[u8]) -> Option<First> {
    let blanks = payload.iter().take_while(|letter| letter.is_ascii_whitespace()).count();
    let words = payload[blanks..].trim_ascii_end();
    if words.is_empty() {
        return Some(First::Other);
    }
    let (word, behind) = words.split_at(words.iter().position(u8::is_ascii_whitespace).unwrap_or(words.len()));
    let address = hexadecimal(word)?;
    let behind = behind.trim_ascii_start();
    if behind.starts_with(b"|OP ") {
        return Some(First::Other);
    }
    if part_of(behind, b"|OP ").is_some() {
        return Some(First::Address { address, may_be_weight: false });
    }
    let padding = ADDRESS_COLUMNS.saturating_sub(word.len());
    let address = First::Address { address, may_be_weight: may_be_weight(word) };
    Some(match blanks.checked_sub(padding) {
        Some(1) => address,
        Some(2) => First::Other,
        _ if has_pc(behind) => address,
        _ if is_symbol(behind) => First::Other,
        _ => First::Uncertain,
    })
}

/// Whether a number could be a weight, which is decimal and of 32 bits.
#[inline]
fn may_be_weight(word: &[u8]) -> bool {
    word.len() <= MAX_WEIGHT_DIGITS && word.iter().all(u8::is_ascii_digit)
}

/// Whether words have an instruction's address among them.
fn has_pc(words: &[u8]) -> bool {
    words.split(u8::is_ascii_whitespace).any(|word| word.len() >= MIN_PC_DIGITS && hexadecimal(word).is_some())
}

/// Whether words begin with a name rather than a number.
fn is_symbol(words: &[u8]) -> bool {
    words.split(u8::is_ascii_whitespace).next().is_some_and(|word| !word.is_empty() && hexadecimal(word).is_none())
}

/// A sample as `perf script` writes it, at the begin of a text, with its end, and its length. The command is one word.
#[inline]
fn usual(text: &[u8]) -> Option<(Line, usize)> {
    let line = after_blanks(text);
    if line.first()? == &b'#' {
        return None;
    }
    let (_, rest) = word(line)?;
    let (process, rest) = decimal_at(after_blanks(rest))?;
    let (thread, rest) = decimal_at(rest.strip_prefix(b"/")?)?;
    let mut rest = after_blanks(rest.strip_prefix(b" ")?);
    if let [b'[', processor @ ..] = rest {
        rest = after_blanks(decimal_at(processor)?.1.strip_prefix(b"] ")?);
    }
    let (_, rest) = decimal_at(rest)?;
    let (_, rest) = decimal_at(rest.strip_prefix(b".")?)?;
    let mut rest = after_blanks(rest.strip_prefix(b": ")?);
    if let Some((_, [b' ', behind @ ..])) = decimal_at(rest) {
        rest = after_blanks(behind);
    }
    let (event, payload) = word(rest)?;
    let event = event.strip_suffix(b":")?;
    let number = after_blanks(payload);
    let blanks = payload.len() - number.len();
    let (address, rest) = hexadecimal_at(number)?;
    let digits = number.len() - rest.len();
    let columns = blanks.checked_sub(ADDRESS_COLUMNS.saturating_sub(digits));
    let line = |operation, pc, rest: &[u8]| {
        let may_be_weight = may_be_weight(&number[..digits]);
        let sample = Sample { process, thread, operation, address, pc, may_be_weight };
        Some((Line::Sample(sample), text.len() - rest.len()))
    };
    match rest {
        [b'\n', rest @ ..] if columns == Some(1) => return line(operation(event, b""), 0, rest),
        [b' ', ..] => {}
        _ => return None,
    }
    let second = after_blanks(rest);
    if let Some((pc, [b'\n', rest @ ..])) = hexadecimal_at(second) {
        let has_pc = second.len() - rest.len() > MIN_PC_DIGITS;
        let is_address = columns == Some(1) || (has_pc && columns != Some(2));
        return if is_address { line(operation(event, b""), if has_pc { pc } else { 0 }, rest) } else { None };
    }
    // What the sample says of its data, and names, need the whole line.
    let room = MAX_LINE_BYTES.checked_sub(text.len() - payload.len())?;
    let end = memchr::memchr(b'\n', &payload[..payload.len().min(room)])?;
    let (payload, rest) = (&payload[..end], &payload[end + 1..]);
    let First::Address { may_be_weight, .. } = first_number(payload)? else { return None };
    let (operation, pc) = (operation(event, payload), pc(payload));
    let sample = Sample { process, thread, operation, address, pc, may_be_weight };
    Some((Line::Sample(sample), text.len() - rest.len()))
}

/// What is before and behind the time.
fn at_time(line: &[u8]) -> Option<(&[u8], &[u8])> {
    memchr::memchr_iter(b':', line).find_map(|colon| {
        let begin = line[..colon].iter().rposition(u8::is_ascii_whitespace)? + 1;
        is_time(&line[begin..=colon]).then(|| (&line[..begin], &line[colon + 1..]))
    })
}

/// Whether a word is `seconds.micros:`.
pub(super) fn is_time(word: &[u8]) -> bool {
    let Some(time) = word.strip_suffix(b":") else { return false };
    let point = time.iter().position(|&b| b == b'.');
    point.is_some_and(|point| decimal(&time[..point]).is_some() && decimal(&time[point + 1..]).is_some())
}

/// The event's name, behind a period if there is one, and what follows its last colon.
fn event(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace)?;
    let (word, rest) = text.split_at(end);
    if decimal(word).is_some() {
        return event(rest);
    }
    Some((word.strip_suffix(b":")?, rest))
}

/// The instruction's address in a payload, behind the data's; 0 if it is not told.
pub(super) fn pc(payload: &[u8]) -> u64 {
    let payload = payload.trim_ascii_start();
    let behind = &payload[payload.iter().position(u8::is_ascii_whitespace).unwrap_or(payload.len())..];
    // From the end: the words of a data source are many.
    let mut next = &b""[..];
    for word in behind.rsplit(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        // The number before the words of a data source is the source's own.
        if word.len() >= MIN_PC_DIGITS
            && !next.starts_with(b"|OP")
            && let Some(pc) = hexadecimal(word)
        {
            return pc;
        }
        next = word;
    }
    0
}

/// `text` from `part` on. Texts are short, so a search for the first letter alone is faster than one that is prepared.
fn part_of<'a>(text: &'a [u8], part: &[u8]) -> Option<&'a [u8]> {
    memchr::memchr_iter(part[0], text).map(|at| &text[at..]).find(|rest| rest.starts_with(part))
}

/// What a sample did, by the words between `|OP ` and the next bar, which may be several (`LOAD SIMD`), or by the
/// event's name.
pub(super) fn operation(event: &[u8], payload: &[u8]) -> Operation {
    let (mut loads, mut stores, mut fetches, mut prefetches) = (false, false, false, false);
    if let Some(source) = part_of(payload, b"|OP ") {
        let words = source[4..].split(|&letter| letter == b'|').next().unwrap_or_default();
        for word in words.split(|letter| !letter.is_ascii_alphanumeric()) {
            match word {
                b"LOAD" => loads = true,
                b"STORE" => stores = true,
                b"EXEC" => fetches = true,
                b"PFETCH" => prefetches = true,
                _ => {}
            }
        }
    }
    match (loads, stores) {
        (true, true) => Operation::Access(AccessKind::Modify),
        (true, false) => Operation::Access(AccessKind::Load),
        (false, true) => Operation::Access(AccessKind::Store),
        (false, false) if fetches => Operation::Access(AccessKind::Fetch),
        (false, false) if prefetches => Operation::Prefetch,
        (false, false) => operation_of_event(event),
    }
}

/// Loads and stores have names with these words in them, in capitals or not. Both words have one `o`.
fn operation_of_event(event: &[u8]) -> Operation {
    let mut loads = false;
    for (at, _) in event.iter().enumerate().filter(|(_, letter)| **letter | 0x20 == b'o') {
        let begins = |word: &[u8], before: usize| {
            let found = at.checked_sub(before).and_then(|begin| event.get(begin..begin + word.len()));
            found.is_some_and(|found| found.eq_ignore_ascii_case(word))
        };
        if begins(b"store", 2) {
            return Operation::Access(AccessKind::Store);
        }
        loads |= begins(b"load", 1);
    }
    if loads { Operation::Access(AccessKind::Load) } else { Operation::Unknown }
}

/// True if the first line with something to say is a sample, with an address or without.
pub(super) fn looks_like(head: Head<'_>) -> bool {
    let lines = head.bytes.split_inclusive(|&b| b == b'\n').filter(|line| head.whole || line.ends_with(b"\n"));
    let first = lines.map(parse).find(|line| *line != Line::Skip);
    first.is_some_and(|line| line != Line::Malformed)
}

/// Feeds the data to `sink`.
pub(super) fn read(inputs: &mut [Input], sink: &mut Sink, options: &ImportOptions) -> Result<(), TraceError> {
    let input = only(inputs)?;
    let mut samples = Samples::new(options);
    match &options.fields {
        None => each_line(input, sink, usual, parse, |line, text, _, sink| samples.take(line, text, sink))?,
        Some(fields) => {
            let layout = Layout::from_names(fields)?;
            let parse = |line: &[u8]| layout.parse(line).unwrap_or(Line::Malformed);
            each_line(input, sink, |_| None, parse, |line, text, _, sink| samples.take(line, text, sink))?;
        }
    }
    samples.finish(sink).map_err(|what| input.corrupt(what))
}

/// What becomes of samples, of a text or of perf's own file.
pub(super) struct Samples {
    size_bytes: u64,
    /// The thread that was entered.
    current: Option<(u64, u64)>,
    /// Some sample tells no process.
    without_process: bool,
    /// Samples that nothing tells a kind of.
    unknown: u64,
    /// Samples that were taken, and those among them whose address could be a weight.
    taken: u64,
    perhaps_weights: u64,
}

impl Samples {
    pub(super) fn new(options: &ImportOptions) -> Self {
        let size_bytes = u64::from(options.assumed_size_bytes);
        Self { size_bytes, current: None, without_process: false, unknown: 0, taken: 0, perhaps_weights: 0 }
    }

    fn take(&mut self, line: Line, text: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        match line {
            Line::Skip => Ok(()),
            Line::Sample(sample) => self.sample(sample, sink),
            Line::NoAddress => Err(NO_ADDRESS.to_owned().into()),
            Line::Uncertain => Err(UNCERTAIN.to_owned().into()),
            Line::Malformed if is_call_chain(text) => {
                Err("a line of a call chain; print the samples without it, by `perf script -G`".to_owned().into())
            }
            Line::Malformed => Err(EXPECTED.to_owned().into()),
        }
    }

    pub(super) fn sample(&mut self, sample: Sample, sink: &mut Sink) -> Result<(), Problem> {
        let kind = match sample.operation {
            Operation::Access(kind) => kind,
            Operation::Unknown => AccessKind::Load,
            Operation::Prefetch => {
                sink.skip_record();
                return Ok(());
            }
        };
        if sample.address == 0 || sink.is_kernel(sample.address) {
            sink.skip_record();
            return Ok(());
        }
        self.unknown += u64::from(sample.operation == Operation::Unknown);
        self.taken += 1;
        self.perhaps_weights += u64::from(sample.may_be_weight);
        self.without_process |= sample.process == 0;
        if self.current != Some((sample.process, sample.thread)) {
            sink.enter(sample.process, sample.thread)?;
            self.current = Some((sample.process, sample.thread));
        }
        let by_kernel = sink.is_kernel(sample.pc);
        if by_kernel || sample.pc == 0 {
            sink.site(sample.pc);
            sink.count(1);
        } else {
            sink.instruction(sample.pc, 1)?;
        }
        match kind {
            AccessKind::Fetch => sink.fetch(sample.address, 1),
            kind => sink.access_by(kind, sample.address, self.size_bytes, by_kernel),
        }
    }

    /// Says what was assumed, or why the samples are none.
    pub(super) fn finish(self, sink: &mut Sink) -> Result<(), String> {
        if self.taken > 0 && self.perhaps_weights == self.taken {
            return Err(UNCERTAIN.to_owned());
        }
        if self.without_process {
            let (threads, _) = sink.threads();
            let several =
                if threads > 1 { "; if these numbers are processes, name the fields by --fields" } else { "" };
            sink.note(format!("the samples do not tell processes, so their threads are taken to be of one{several}"));
        }
        match self.unknown {
            0 => {}
            1 => sink.note("1 sample does not tell whether it loads or stores, and is taken for a load".to_owned()),
            several => {
                sink.note(format!("{several} samples do not tell whether they load or store, and are taken for loads"));
            }
        }
        Ok(())
    }
}

/// Whether a line is one of the call chain behind a sample: blanks, an address, and a symbol or nothing.
fn is_call_chain(line: &[u8]) -> bool {
    let words = line.trim_ascii_start();
    let word = words.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    words.len() < line.len() && word.len() >= MIN_PC_DIGITS && hexadecimal(word).is_some()
}

/// What readers of results should know.
pub(super) fn notes(options: &ImportOptions) -> Vec<String> {
    let size = options.assumed_size_bytes;
    vec![
        "the accesses are samples: rates and footprints of the program cannot be told from them".to_owned(),
        format!(
            "perf does not tell the sizes of accesses: every one is taken for {size} bytes, and for one instruction"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::{super::lines::tests::check_usual, *};

    const LOAD: Operation = Operation::Access(AccessKind::Load);
    const STORE: Operation = Operation::Access(AccessKind::Store);

    fn sample(process: u64, thread: u64, operation: Operation, address: u64, pc: u64) -> Line {
        Line::Sample(Sample { process, thread, operation, address, pc, may_be_weight: false })
    }

    #[test]
    fn common_lines_parse_like_any_line() {
        let known = [
            "  t 32471/32472 24544.670846: page-faults:     7fac80bf7b60     7fac80c21df9",
            "t 7/7 [001] 24544.670846:          1 page-faults:u:     7fac80bf7b60",
            "  sort 812/814 7.000001: cpu/mem-stores,ldlat=30/P:     7ffc00000000           400000",
            "a 1/2 5.1: e:           10f000 7",
            "t 7/7 5.000001: 9 e: 7f0d3c2b1a40 5080022 |OP STORE|LVL L1 hit|LCK No| 7 7f0d3c0a5e10 f+0x1 (/x)",
            "t 7/7 5.000001: 9 e: 7f0d3c2b1a40 5080022 |OP EXEC|LVL L1 hit|LCK No|",
            "t 1/2 5.000001: 1 page-faults:  55f965f97028 __TMC_END__+0x0 (/usr/bin/t) ffffffff817554ea load+0x28a ([k])",
        ];
        let others = [
            "# a 1/2 5.1: e: 10 7",
            "a b 1/2 5.1: 3 e: 10 7777777 f+0x1",
            "t 7 5.000001: 9 e: 7f0d3c2b1a40 5080022 |OP STORE|LVL L1 hit|LCK No| 7 7f0d3c0a5e10 f+0x1 (/x)",
            "a 1/2 5.1: 3.4: e: 10 7",
            "a 1/2 5.1: cpu-clock:      7fdec7c8e0af     7fac80c21df9",
            "t 7/7 5.000001: 9 e: 5080022 |OP STORE|LVL L1 hit|LCK No| 7 7f0d3c0a5e10 f+0x1 (/x)",
        ];
        check_usual(usual, parse, &known, &others);
    }

    #[test]
    fn samples_with_addresses_are_parsed() {
        let unknown = Operation::Unknown;
        let fault = "  t 32471/32472 24544.670846: page-faults:     7fac80bf7b60     7fac80c21df9\n";
        assert_eq!(parse(fault.as_bytes()), sample(32471, 32472, unknown, 0x7fac_80bf_7b60, 0x7fac_80c2_1df9));
        let bare = "t 7 [001] 24544.670846:          1 page-faults:u:     7fac80bf7b60";
        assert_eq!(parse(bare.as_bytes()), sample(0, 7, unknown, 0x7fac_80bf_7b60, 0));
        let named = "a b: c 1/2 5.000001:  1 page-faults:  55f965f97028 __TMC_END__+0x0 (/usr/bin/t) ffffffff817554ea elf_load+0x28a ([k])";
        assert_eq!(parse(named.as_bytes()), sample(1, 2, unknown, 0x55f9_65f9_7028, 0xffff_ffff_8175_54ea));
        let data = "t 1/2 5.1: page-faults:     55f965f97028 table (/usr/bin/t)";
        assert_eq!(parse(data.as_bytes()), sample(1, 2, unknown, 0x55f9_65f9_7028, 0), "by its columns");
        let stores = "t 1/2 5.000001: cpu/mem-stores/P: 7f0d3c2b1a40 7f0d3c0a5e10";
        assert_eq!(parse(stores.as_bytes()), sample(1, 2, STORE, 0x7f0d_3c2b_1a40, 0x7f0d_3c0a_5e10));
        assert_eq!(parse(b"t 1/2 5.1: e: a0 5080022 |OP NA| 7"), sample(1, 2, unknown, 0xa0, 0));
        for skip in ["", "  ", "# captured on"] {
            assert_eq!(parse(skip.as_bytes()), Line::Skip, "{skip:?}");
        }
    }

    #[test]
    fn the_operation_may_have_words_behind_it() {
        let modify = Operation::Access(AccessKind::Modify);
        let fetch = Operation::Access(AccessKind::Fetch);
        for (words, operation) in [
            ("LOAD", LOAD),
            ("LOAD SIMD", LOAD),
            ("STORE", STORE),
            ("STORE SIMD", STORE),
            ("STORE, atomic", STORE),
            ("LOAD or STORE", modify),
            ("LOAD,STORE", modify),
            ("EXEC", fetch),
            ("PFETCH", Operation::Prefetch),
            ("LOAD PFETCH", LOAD),
            ("N/A", LOAD),
        ] {
            let source = format!("5080022 |OP {words}|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A");
            for (tail, pc) in [(" 7 7f0d3c0a5e10 f+0x1 (/x)", 0x7f0d_3c0a_5e10), ("", 0)] {
                let line = format!("t 1/2 [000] 5.000001: 9 cpu/mem-loads,ldlat=30/P: 7f0d3c2b1a40 {source}{tail}");
                assert_eq!(parse(line.as_bytes()), sample(1, 2, operation, 0x7f0d_3c2b_1a40, pc), "{line}");
            }
        }
        assert_eq!(operation(b"MEM_INST_RETIRED.ALL_STORES:", b""), STORE);
        assert_eq!(operation(b"MEM_INST_RETIRED.ALL_LOADS:", b""), LOAD);
        assert_eq!(operation(b"page-faults:", b""), Operation::Unknown);
    }

    #[test]
    fn names_of_events_tell_the_operation() {
        for (event, operation) in [
            ("cpu/mem-loads,ldlat=30/P", LOAD),
            ("MEM_UOPS_RETIRED.ALL_STORES", STORE),
            ("loads-and-sTores", STORE),
            ("LoAd", LOAD),
            ("store", STORE),
            ("oload", LOAD),
        ] {
            assert_eq!(operation_of_event(event.as_bytes()), operation, "{event}");
        }
        for event in ["", "o", "loa", "oad", "stor", "tore", "st0re", "faults:u", "l\u{f}ad"] {
            assert_eq!(operation_of_event(event.as_bytes()), Operation::Unknown, "{event}");
        }
    }

    #[test]
    fn other_numbers_are_no_addresses() {
        for no_address in [
            "t 32514 24546.263493:     250000 cpu-clock:      7fdec7c8e0af f.constprop.0+0x2f (/lib/ld.so)",
            "t 32514 24546.263493:     250000 cpu-clock:      7fdec7c8e0af",
            "t 1/2 5.1: cpu-clock:      7fdec7c8e0af       107f0a5000",
            "t 1/2 5.1: cpu-clock: 7fdec7c8e0af f+0x2f (/lib/ld.so)",
            "t 1/2 5.1: 1 memory:  68100142 |OP LOAD|LVL L1 hit|BLK  N/A  55e0c0001100 main+0x10 (/app)",
            "t 32514 24546.263493: page-faults:",
            "t 1/2 5.1: page-faults: ",
        ] {
            assert!(matches!(parse(no_address.as_bytes()), Line::NoAddress | Line::Malformed), "{no_address:?}");
        }
        for uncertain in ["t 1/2 5.1: page-faults: 7fac80bf7b60", "t 1/2 5.1: e: 10 7"] {
            assert_eq!(parse(uncertain.as_bytes()), Line::Uncertain, "{uncertain:?}");
        }
        let weight = "t 1/2 5.1: cpu/mem-loads/P:              233     55e0c0001100";
        assert!(matches!(parse(weight.as_bytes()), Line::Sample(Sample { may_be_weight: true, .. })));
        for wrong in ["32471     55f965f97028", "t 1/2 5.000001:", "t x 5.000001: page-faults: 10", "buy milk"] {
            assert_eq!(parse(wrong.as_bytes()), Line::Malformed, "{wrong:?}");
        }
        assert!(is_call_chain(b"\t    55e0c0001100 main+0x10 (/app)") && !is_call_chain(b"55e0c0001100 main"));
    }
}
