//! `perf script`: `comm pid/tid [cpu] time: event: payload`.

use super::{
    Line, RawFault,
    words::{core, decimal, hexadecimal, number, time, tracepoint, words},
};
use crate::FaultKind;

const EXPECTED: &str = "expected `command pid/tid [core] seconds: event: …`, as `perf script --ns -F \
                        comm,pid,tid,cpu,time,event,trace` prints tracepoints and `perf script --ns -F \
                        comm,pid,tid,cpu,time,event,addr` page-faults";

/// Parses a line; on error, what is wrong and what would be right.
pub(super) fn parse(line: &str) -> Result<Line, String> {
    if line.trim().is_empty() || line.starts_with('#') {
        return Ok(Line::Skip);
    }
    if let Some((_, lost)) = line.split_once("PERF_RECORD_LOST") {
        let count = lost.split_ascii_whitespace().find_map(decimal);
        return count.map(Line::Lost).ok_or_else(|| "expected `PERF_RECORD_LOST lost COUNT`".to_owned());
    }
    let words = words(line);
    let at = words.iter().position(|(_, word)| time(word).is_some()).ok_or(EXPECTED)?;
    let clock_ns = time(words[at].1).ok_or(EXPECTED)?;
    let before = |back: usize| at.checked_sub(back).map(|place| words[place].1);
    let core = before(1).and_then(core).ok_or(
        "it does not say the core, as in [003]; record tracepoints, or page-faults with `perf record --sample-cpu`, and \
         print the field cpu",
    )?;
    let (process, thread) = before(2).and_then(ids).ok_or(EXPECTED)?;
    let (name, payload) = event(line, &words[at + 1..]).ok_or(EXPECTED)?;
    let found = match name.split(':').collect::<Vec<_>>()[..] {
        ["exceptions", "page_fault_user" | "page_fault_kernel"] => tracepoint(payload)?,
        ["page-faults" | "faults" | "minor-faults", ..] => Some((address(payload)?, FaultKind::default())),
        _ => return Ok(Line::OtherEvent),
    };
    let fault = |(address, kind)| Line::Fault(RawFault { clock_ns, core, process, thread, address, kind });
    Ok(found.map_or(Line::OtherEvent, fault))
}

/// Process and thread of `12/34`; with `34` alone, the thread id is used for both.
fn ids(word: &str) -> Option<(u32, u32)> {
    match word.split_once('/') {
        Some((process, thread)) => Some((number(process)?, number(thread)?)),
        None => number(word).map(|thread| (thread, thread)),
    }
}

/// The event's name without the last colon, and the rest of the line. A period may precede the name.
fn event<'a>(line: &'a str, words: &[(usize, &'a str)]) -> Option<(&'a str, &'a str)> {
    let words = if words.first().is_some_and(|(_, word)| decimal(word).is_some()) { &words[1..] } else { words };
    let (begin, word) = *words.first()?;
    Some((word.strip_suffix(':')?, &line[begin + word.len()..]))
}

/// The accessed address of a software event. If there are two addresses, the second is the instruction's. A single
/// address followed by a symbol is the instruction's only.
fn address(payload: &str) -> Result<u64, String> {
    const MISSING: &str = "it does not say which address was accessed; record with `perf record --data` and print with \
                           `perf script -F comm,pid,tid,cpu,time,event,addr`";
    let mut words = payload.split_ascii_whitespace();
    let first = words.next().and_then(hexadecimal).ok_or(MISSING)?;
    let rest: Vec<_> = words.collect();
    if rest.is_empty() || rest.iter().any(|word| hexadecimal(word).is_some()) { Ok(first) } else { Err(MISSING.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(
        clock_ns: u64,
        core: u32,
        process: u32,
        thread: u32,
        address: u64,
        kind: FaultKind,
    ) -> Result<Line, String> {
        Ok(Line::Fault(RawFault { clock_ns, core, process, thread, address, kind }))
    }

    #[test]
    fn tracepoints_and_software_events_are_read() {
        let tracepoint = "  ls 25155 [001]  1263.840693: exceptions:page_fault_user: address=0x7fc69c851e06 \
                          ip=0x7fc69c8397ad error_code=0x6";
        assert_eq!(
            parse(tracepoint),
            fault(1_263_840_693_000, 1, 25155, 25155, 0x7fc6_9c85_1e06, FaultKind::FIRST_WRITE)
        );
        let spaces = "Web Content 7/8 [012] 3.5: exceptions:page_fault_kernel: address=0x10 ip=0xffff error_code=0x2";
        let kind = FaultKind { by_kernel: true, ..FaultKind::FIRST_WRITE };
        assert_eq!(parse(spaces), fault(3_500_000_000, 12, 7, 8, 0x10, kind));
        let unknown = FaultKind::default();
        for software in [
            "ls 9/9 [000] 1.000000001: minor-faults:u:     7f1637930110",
            "ls 9/9 [000] 1.000000001:          1 page-faults:  7f1637930110 ffffffff81752b6a",
            "ls 9 [000] 1.000000001: 1 page-faults: 7f1637930110 x+0x0 (/usr/bin/ls) ffffffff81752b6a f+0x2 ([k])",
        ] {
            assert_eq!(parse(software), fault(1_000_000_001, 0, 9, 9, 0x7f16_3793_0110, unknown), "{software}");
        }
    }

    #[test]
    fn other_lines_are_skipped_or_counted() {
        for skip in ["", "   ", "# a comment"] {
            assert_eq!(parse(skip), Ok(Line::Skip));
        }
        for other in ["ls 9/9 [000] 1.0: sched:sched_switch: prev_comm=ls", "ls 9/9 [000] 1.0: major-faults: 7f00"] {
            assert_eq!(parse(other), Ok(Line::OtherEvent));
        }
        assert_eq!(parse("swapper 0 [000] 0.000000: PERF_RECORD_LOST lost 17"), Ok(Line::Lost(17)));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (line, says) in [
            ("hello", "expected `command pid/tid"),
            ("ls 9 1266.039196867: 1 minor-faults:u: 7fa3", "does not say the core"),
            ("ls x [000] 1.0: minor-faults: 7fa3", "expected `command"),
            ("ls 9 [000] 1.0:", "expected `command"),
            ("ls 9 [000] 1.0: minor-faults: 7fa3 _start+0x0 (/usr/bin/ls)", "which address was accessed"),
            ("ls 9 [000] 1.0: minor-faults:", "which address was accessed"),
            ("ls 9 [000] 1.0: exceptions:page_fault_user: address=here error_code=0x6", "expected address=0x"),
            ("ls 9 [000] 1.0: exceptions:page_fault_user: address=0x12", "expected error_code=0x"),
            ("x PERF_RECORD_LOST", "lost COUNT"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
