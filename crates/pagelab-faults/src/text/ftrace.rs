//! ftrace's file `trace`: `task-pid [cpu] flags time: event: payload`.

use super::{
    Line, RawFault,
    words::{core, decimal, number, time, tracepoint, words},
};

const EXPECTED: &str = "expected `task-pid [core] flags seconds: page_fault_user: address=0x… ip=0x… error_code=0x…`, as \
                        /sys/kernel/tracing/trace has it";

/// Parses a line; on error, what is wrong and what would be right.
pub(super) fn parse(line: &str) -> Result<Line, String> {
    if line.trim().is_empty() {
        return Ok(Line::Skip);
    }
    if let Some(comment) = line.strip_prefix('#') {
        return Ok(header(comment));
    }
    if let Some(lost) = lost(line) {
        return Ok(lost);
    }
    let words = words(line);
    let at = place_of_core(&words).ok_or(EXPECTED)?;
    let core = core(words[at].1).ok_or(EXPECTED)?;
    let clock_ns = time(words[at + 2].1).ok_or(EXPECTED)?;
    let (begin, name) = *words.get(at + 3).ok_or(EXPECTED)?;
    let (process, thread) = task(&line[..words[at].0]).ok_or(EXPECTED)?;
    match name {
        "page_fault_user:" | "page_fault_kernel:" => {
            let fault = |(address, kind)| Line::Fault(RawFault { clock_ns, core, process, thread, address, kind });
            Ok(tracepoint(&line[begin + name.len()..])?.map_or(Line::OtherEvent, fault))
        }
        _ => Ok(Line::OtherEvent),
    }
}

/// True if the line has flags between core and time.
pub(super) fn looks_like(line: &str) -> bool {
    place_of_core(&words(line)).is_some()
}

/// Index of the word with the core: flags and time follow.
fn place_of_core(words: &[(usize, &str)]) -> Option<usize> {
    words.windows(3).position(|three| core(three[0].1).is_some() && time(three[2].1).is_some())
}

/// A comment can contain the numbers of entries and cores: `entries-in-buffer/entries-written: 406/410   #P:2`. Entries
/// that are no longer in the buffer are lost; [`lost`] parses those that were never written.
fn header(comment: &str) -> Line {
    let Some((_, facts)) = comment.split_once("entries-in-buffer/entries-written:") else { return Line::Skip };
    let cores = facts.split_once("#P:").and_then(|(_, cores)| number(cores.trim())).filter(|&cores| cores > 0);
    let entries = facts.split_ascii_whitespace().next().and_then(|word| word.split_once('/'));
    let lost = entries.and_then(|(kept, written)| decimal(written)?.checked_sub(decimal(kept)?)).unwrap_or(0);
    Line::Buffer { lost, cores }
}

/// `CPU:1 [LOST 123 EVENTS]`.
fn lost(line: &str) -> Option<Line> {
    let (_, rest) = line.strip_prefix("CPU:")?.split_once("[LOST ")?;
    Some(Line::Lost(decimal(rest.split_ascii_whitespace().next()?).unwrap_or(1)))
}

/// Process and thread of `task-34` or `task-34 (12)`. Without a process, the thread id is used for both.
fn task(text: &str) -> Option<(u32, u32)> {
    let text = text.trim();
    let (task, process) = match text.strip_suffix(')').and_then(|text| text.rsplit_once('(')) {
        Some((task, process)) => (task.trim(), number(process.trim())),
        None => (text, None),
    };
    let thread = number(task.rsplit_once('-')?.1)?;
    Some((process.unwrap_or(thread), thread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FaultKind;

    #[test]
    fn faults_are_read() {
        let rest = "d....  1270.192648: page_fault_user: address=0x7f380ab0f353 ip=0x7f380ab0f353 error_code=0x6";
        for (task, process, thread) in [
            ("              ls-25270  ", 25270, 25270),
            ("   a-b c [001] x-7  ", 7, 7),
            ("   ls-12 (     11)", 11, 12),
            ("   ls-12 (-----)", 12, 12),
        ] {
            let expected = RawFault {
                clock_ns: 1_270_192_648_000,
                core: 1,
                process,
                thread,
                address: 0x7f38_0ab0_f353,
                kind: FaultKind::FIRST_WRITE,
            };
            assert_eq!(parse(&format!("{task} [001] {rest}")), Ok(Line::Fault(expected)), "{task}");
        }
    }

    #[test]
    fn headers_losses_and_other_events() {
        for skip in ["", "#", "# tracer: nop", "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION"] {
            assert_eq!(parse(skip), Ok(Line::Skip));
        }
        assert_eq!(
            parse("# entries-in-buffer/entries-written: 406/406   #P:2"),
            Ok(Line::Buffer { lost: 0, cores: Some(2) })
        );
        assert_eq!(parse("# entries-in-buffer/entries-written: 406/410"), Ok(Line::Buffer { lost: 4, cores: None }));
        assert_eq!(parse("CPU:1 [LOST 123 EVENTS]"), Ok(Line::Lost(123)));
        assert_eq!(parse("CPU:1 [LOST EVENTS]"), Ok(Line::Lost(1)));
        assert_eq!(parse("ls-1 [001] d.... 1.5: sched_switch: prev_comm=ls"), Ok(Line::OtherEvent));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for wrong in ["hello", "ls-1 [001] 1.5: page_fault_user: address=0x1", "ls [001] d.... 1.5: page_fault_user:"] {
            assert!(parse(wrong).unwrap_err().contains("expected `task-pid"), "{wrong}");
        }
        let error = parse("ls-1 [001] d.... 1.5: page_fault_user: ip=0x1 error_code=0x6").unwrap_err();
        assert!(error.contains("expected address=0x"), "{error}");
    }
}
