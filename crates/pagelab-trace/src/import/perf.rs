//! Samples of accesses, as `perf script` prints them.
//!
//! ```text
//! sort 812/814 [003] 24544.670223: 1 cpu/mem-loads,ldlat=30/P: 7f0d3c2b1a40 5080022 |OP LOAD|LVL L1 hit|… 7 7f0d3c0a5e10 f+0x1 (/lib/x)
//! sort 812/814 24544.670242:       1 page-faults:     7fac80c4f110 ffffffff817554ea
//! ```
//! A command, process and thread (or the thread alone), processor, time, period, event, then the address of the
//! accessed data. What the sample did (`|OP LOAD|`, `|OP STORE|`) or the event's name says whether it is a load or a
//! store; where neither does, it is taken for a load. The last hexadecimal word is the instruction's address.
//! `perf mem record` and `perf script -F comm,pid,tid,time,event,addr,data_src,ip` make such lines, and so do
//! `perf record -d -e page-faults` and `perf script -F comm,pid,tid,time,event,addr,ip`. Source:
//! `tools/perf/builtin-script.c` of Linux 6.1.
//!
//! Samples are a few of the accesses: the trace is marked as sampled. Those without an address, and those of the
//! kernel's own data, are left out and counted. Each counts for one instruction.

use super::{
    Head, ImportOptions,
    files::only,
    input::Input,
    lines::{MAX_LINE_BYTES, each_line},
    numbers::{decimal, decimal_at, hexadecimal, hexadecimal_at},
    sink::{Problem, Sink},
};
use crate::{AccessKind, TraceError};

/// Addresses from here on are the kernel's, as on x86-64 and AArch64.
const KERNEL: u64 = 1 << 63;
/// Digits of an instruction's address at least; shorter words behind the data's address are weights.
const MIN_PC_DIGITS: usize = 6;

const EXPECTED: &str = "expected `command pid/tid seconds: event: address …`, as `perf script -F \
                        comm,pid,tid,time,event,addr,ip` prints samples with addresses";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    process: u64,
    thread: u64,
    kind: AccessKind,
    address: u64,
    pc: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Skip,
    Sample(Sample),
}

/// The line's meaning; none if it is malformed.
fn parse(line: &[u8]) -> Option<Line> {
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
    let (process, thread) = match word.iter().position(|&b| b == b'/') {
        Some(slash) => (decimal(&word[..slash])?, decimal(&word[slash + 1..])?),
        // The process is not told, so all threads are taken to be of one.
        None => (0, decimal(word)?),
    };
    let (event, payload) = event(behind)?;
    let (address, pc) = addresses(payload)?;
    Some(Line::Sample(Sample { process, thread, kind: kind(event, payload), address, pc }))
}

/// A sample as `perf script` writes it, at the begin of a text, with its end, and its length. The command is one word.
#[inline]
fn usual(text: &[u8]) -> Option<(Option<Line>, usize)> {
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
    let (event, rest) = word(rest)?;
    let event = event.strip_suffix(b":")?;
    let (address, rest) = hexadecimal_at(after_blanks(rest))?;
    let line = |kind, pc, rest: &[u8]| {
        let sample = Sample { process, thread, kind, address, pc };
        Some((Some(Line::Sample(sample)), text.len() - rest.len()))
    };
    match rest {
        [b'\n', rest @ ..] => return line(kind(event, b""), 0, rest),
        [b' ', ..] => {}
        _ => return None,
    }
    let second = after_blanks(rest);
    if let Some((pc, [b'\n', rest @ ..])) = hexadecimal_at(second) {
        let digits = second.len() - rest.len() - 1;
        return line(kind(event, b""), if digits < MIN_PC_DIGITS { 0 } else { pc }, rest);
    }
    // What the sample says of its data, and names, need the whole line.
    let room = MAX_LINE_BYTES.checked_sub(text.len() - rest.len())?;
    let end = memchr::memchr(b'\n', &rest[..rest.len().min(room)])?;
    let (payload, rest) = (&rest[..end], &rest[end + 1..]);
    line(kind(event, payload), pc(payload)?, rest)
}

#[inline]
fn after_blanks(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|&&letter| letter == b' ').count()..]
}

/// A word that a blank ends, no other white space, and what follows it.
#[inline]
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = text.iter().position(|&letter| letter <= b' ')?;
    (len > 0 && text[len] == b' ').then(|| text.split_at(len))
}

/// What is before and behind the time.
fn at_time(line: &[u8]) -> Option<(&[u8], &[u8])> {
    memchr::memchr_iter(b':', line).find_map(|colon| {
        let begin = line[..colon].iter().rposition(u8::is_ascii_whitespace)? + 1;
        let time = &line[begin..colon];
        let point = time.iter().position(|&b| b == b'.')?;
        decimal(&time[..point])?;
        decimal(&time[point + 1..])?;
        Some((&line[..begin], &line[colon + 1..]))
    })
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

/// The addresses of the data and of the instruction, 0 if it is not told.
fn addresses(payload: &[u8]) -> Option<(u64, u64)> {
    let payload = payload.trim_ascii_start();
    let (first, behind) = payload.split_at(payload.iter().position(u8::is_ascii_whitespace).unwrap_or(payload.len()));
    Some((hexadecimal(first)?, pc(behind)?))
}

/// The instruction's address in what is behind that of the data, 0 if it is not told. A symbol alone makes the address
/// before it the instruction's, and then there is none of the data.
fn pc(behind: &[u8]) -> Option<u64> {
    let is_word = |word: &&[u8]| !word.is_empty();
    // From the end: the words of a data source are many.
    let mut next = &b""[..];
    for word in behind.rsplit(u8::is_ascii_whitespace).filter(is_word) {
        // The number before the words of a data source is the source's own.
        if word.len() >= MIN_PC_DIGITS
            && !next.starts_with(b"|OP")
            && let Some(pc) = hexadecimal(word)
        {
            return Some(pc);
        }
        next = word;
    }
    // Without an instruction's address: nothing follows, or a weight.
    let mut others = behind.split(u8::is_ascii_whitespace).filter(is_word).peekable();
    (others.peek().is_none() || others.any(|word| hexadecimal(word).is_some())).then_some(0)
}

/// `text` from `part` on. Texts are short, so a search for the first letter alone is faster than one that is prepared.
fn part_of<'a>(text: &'a [u8], part: &[u8]) -> Option<&'a [u8]> {
    memchr::memchr_iter(part[0], text).map(|at| &text[at..]).find(|rest| rest.starts_with(part))
}

fn kind(event: &[u8], payload: &[u8]) -> AccessKind {
    let sources =
        [(&b"|OP LOAD|"[..], AccessKind::Load), (b"|OP STORE|", AccessKind::Store), (b"|OP EXEC|", AccessKind::Fetch)];
    let told = part_of(payload, b"|OP ");
    let told = told.and_then(|source| sources.into_iter().find(|(words, _)| source.starts_with(words)));
    match told {
        Some((_, kind)) => kind,
        None if part_of(event, b"store").is_some() => AccessKind::Store,
        None => AccessKind::Load,
    }
}

/// True if the first line with something to say is a sample with an address.
pub(super) fn looks_like(head: Head<'_>) -> bool {
    let lines = head.bytes.split_inclusive(|&b| b == b'\n').filter(|line| head.whole || line.ends_with(b"\n"));
    lines.map(parse).find(|line| *line != Some(Line::Skip)).is_some_and(|line| line.is_some())
}

/// Feeds the data to `sink`.
pub(super) fn read(inputs: &mut [Input], sink: &mut Sink, options: &ImportOptions) -> Result<(), TraceError> {
    let input = only(inputs)?;
    let size_bytes = u64::from(options.assumed_size_bytes);
    let mut current = None;
    let mut all_processes = true;
    each_line(input, sink, usual, parse, |meaning, _, _, sink| {
        let sample = match meaning {
            Some(Line::Skip) => return Ok(()),
            Some(Line::Sample(sample)) => sample,
            None => return Err(Problem::from(EXPECTED.to_owned())),
        };
        if sample.address == 0 || sample.address >= KERNEL {
            sink.leave_out();
            return Ok(());
        }
        all_processes &= sample.process != 0;
        if current != Some((sample.process, sample.thread)) {
            sink.enter(sample.process, sample.thread)?;
            current = Some((sample.process, sample.thread));
        }
        let by_kernel = sample.pc >= KERNEL;
        if by_kernel || sample.pc == 0 {
            sink.site(sample.pc);
            sink.count(1);
        } else {
            sink.instruction(sample.pc, 1)?;
        }
        match sample.kind {
            AccessKind::Fetch => sink.fetch(sample.address, 1),
            kind => sink.access_by(kind, sample.address, size_bytes, by_kernel),
        }
    })?;
    if !all_processes {
        sink.note("the samples do not tell processes, so their threads are taken to be of one".to_owned());
    }
    Ok(())
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
    use super::{super::lines::tests::usual_means_the_same, *};

    fn sample(process: u64, thread: u64, kind: AccessKind, address: u64, pc: u64) -> Option<Line> {
        Some(Line::Sample(Sample { process, thread, kind, address, pc }))
    }

    #[test]
    fn usual_lines_mean_what_they_mean_alone() {
        let known = [
            "  t 32471/32472 24544.670846: page-faults:     7fac80bf7b60     7fac80c21df9",
            "t 7/7 [001] 24544.670846:          1 page-faults:u:     7fac80bf7b60",
            "  sort 812/814 7.000001: cpu/mem-stores,ldlat=30/P:     7ffc00000000           400000",
            "a 1/2 5.1: e: 10 7",
            "t 7/7 5.000001: 9 e: 7f0d3c2b1a40 5080022 |OP STORE|LVL L1 hit|LCK No| 7 7f0d3c0a5e10 f+0x1 (/x)",
            "t 7/7 5.000001: 9 e: 7f0d3c2b1a40 5080022 |OP EXEC|LVL L1 hit|LCK No|",
            "t 1/2 5.000001: 1 page-faults:  55f965f97028 __TMC_END__+0x0 (/usr/bin/t) ffffffff817554ea load+0x28a ([k])",
        ];
        let others = [
            "# a 1/2 5.1: e: 10 7",
            "a b 1/2 5.1: 3 e: 10 7777777 f+0x1",
            "t 7 5.000001: 9 e: 7f0d3c2b1a40 5080022 |OP STORE|LVL L1 hit|LCK No| 7 7f0d3c0a5e10 f+0x1 (/x)",
            "a 1/2 5.1: 3.4: e: 10 7",
        ];
        usual_means_the_same(usual, parse, &known, &others);
    }

    #[test]
    fn lines_are_parsed_or_refused() {
        let (load, store) = (AccessKind::Load, AccessKind::Store);
        let fault = "  t 32471/32472 24544.670846: page-faults:     7fac80bf7b60     7fac80c21df9\n";
        assert_eq!(parse(fault.as_bytes()), sample(32471, 32472, load, 0x7fac_80bf_7b60, 0x7fac_80c2_1df9));
        let bare = "t 7 [001] 24544.670846:          1 page-faults:u:     7fac80bf7b60";
        assert_eq!(parse(bare.as_bytes()), sample(0, 7, load, 0x7fac_80bf_7b60, 0));
        let named = "a b: c 1/2 5.000001:  1 page-faults:  55f965f97028 __TMC_END__+0x0 (/usr/bin/t) ffffffff817554ea elf_load+0x28a ([k])";
        assert_eq!(parse(named.as_bytes()), sample(1, 2, load, 0x55f9_65f9_7028, 0xffff_ffff_8175_54ea));
        for (op, kind) in [("LOAD", load), ("STORE", store), ("EXEC", AccessKind::Fetch)] {
            let source = format!("5080022 |OP {op}|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A");
            let with = format!(
                "t 1/2 [000] 5.000001: 9 cpu/mem-loads,ldlat=30/P: 7f0d3c2b1a40 {source} 7 7f0d3c0a5e10 f+0x1 (/x)"
            );
            assert_eq!(parse(with.as_bytes()), sample(1, 2, kind, 0x7f0d_3c2b_1a40, 0x7f0d_3c0a_5e10));
            let without = format!("t 1/2 5.000001: cpu/mem-loads,ldlat=30/P: 7f0d3c2b1a40 {source}");
            assert_eq!(parse(without.as_bytes()), sample(1, 2, kind, 0x7f0d_3c2b_1a40, 0));
        }
        let stores = "t 1/2 5.000001: cpu/mem-stores/P: 7f0d3c2b1a40 7f0d3c0a5e10";
        assert_eq!(parse(stores.as_bytes()), sample(1, 2, store, 0x7f0d_3c2b_1a40, 0x7f0d_3c0a_5e10));
        // A weight is no instruction, and a symbol may be a number.
        assert_eq!(parse(b"t 1/2 5.1: e: 10 7"), sample(1, 2, load, 0x10, 0));
        assert_eq!(parse(b"t 1/2 5.1: e: 10 123456 facade (/x)"), sample(1, 2, load, 0x10, 0xfa_cade));
        assert_eq!(parse(b"t 1/2 5.1: e: 10 5080022 |OP NA| 7"), sample(1, 2, load, 0x10, 0));
        for skip in ["", "  ", "# captured on"] {
            assert_eq!(parse(skip.as_bytes()), Some(Line::Skip), "{skip:?}");
        }
        for wrong in [
            "t 32514 24546.263493:     250000 cpu-clock:      7fdec7c8e0af f.constprop.0+0x2f (/lib/ld.so)",
            "t 32514 24546.263493: page-faults:",
            "32471     55f965f97028",
            "t 1/2 5.000001:",
            "t x 5.000001: page-faults: 10",
            "buy milk",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
