//! What Valgrind's log tells: why a program did not start, and what a recording lacks.

use std::fs;
use std::path::Path;

use rustc_hash::FxHashSet;

/// Number of lines of the log that an error shows.
const LINES: usize = 8;
/// Maximum number of kinds of losses that are reported.
const MOST_LOSSES: usize = 20;

/// Valgrind's log of all processes, in the scratch folder.
pub(super) const NAME: &str = "log";

fn read(scratch: &Path) -> String {
    fs::read(scratch.join(NAME)).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
}

/// The last lines of Valgrind's log of a process, without its `==pid==`.
pub(super) fn tail(scratch: &Path, pid: u32) -> String {
    let log = read(scratch);
    let own = log.lines().map(parse_line).filter(|(by, line)| by.is_none_or(|by| by == pid) && !line.is_empty());
    let lines: Vec<&str> = own.map(|(_, line)| line).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// Whose line it is, and the line.
fn parse_line(line: &str) -> (Option<u32>, &str) {
    let parts = line.strip_prefix("==").or_else(|| line.strip_prefix("--")).and_then(|line| {
        let at = line.find(|letter: char| !letter.is_ascii_digit())?;
        let rest = &line[at..];
        let rest = rest.strip_prefix("==").or_else(|| rest.strip_prefix("--"))?;
        Some((line[..at].parse().ok()?, rest.trim()))
    });
    parts.map_or((None, line.trim()), |(pid, rest)| (Some(pid), rest))
}

/// What Valgrind's log says of things left out.
pub(super) fn losses(scratch: &Path, max_threads: u32) -> Vec<String> {
    losses_in(&read(scratch), max_threads)
}

/// Facts that a reader should know, though nothing is missing: each once.
pub(super) fn notes(scratch: &Path) -> Vec<String> {
    notes_in(&read(scratch))
}

fn notes_in(log: &str) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for note in log.lines().filter_map(|line| parse_line(line).1.strip_prefix("pagelab note: ")) {
        if !notes.iter().any(|known| known == note) {
            notes.push(note.to_owned());
        }
    }
    notes
}

/// Losses whose messages differ in numbers alone, as from a program that asks for less and less memory until it gets
/// some.
struct Kind {
    /// The message without its numbers.
    pattern: String,
    /// The first message.
    first: String,
    /// Different messages.
    messages: FxHashSet<String>,
    /// Lines of the log.
    count: usize,
    pids: Vec<u32>,
}

impl Kind {
    fn describe(self) -> String {
        let Self { first, count, .. } = self;
        let times =
            if self.messages.len() > 1 { format!(" ({count} times, with different numbers)") } else { String::new() };
        match self.pids.as_slice() {
            [] => format!("{first}{times}"),
            [pid] => format!("process {pid}: {first}{times}"),
            [pid, others @ ..] => format!("process {pid} and {} more: {first}{times}", others.len()),
        }
    }
}

/// Each kind of loss once, with the processes that had it.
fn losses_in(log: &str, max_threads: u32) -> Vec<String> {
    let mut kinds: Vec<Kind> = Vec::new();
    let mut left_out = 0;
    for (pid, line) in log.lines().map(parse_line) {
        let Some(loss) = noteworthy(line, max_threads) else { continue };
        let pattern = loss.replace(|letter: char| letter.is_ascii_digit(), "");
        let at = kinds.iter().position(|kind| kind.pattern == pattern);
        if at.is_none() && kinds.len() == MOST_LOSSES {
            left_out += 1;
            continue;
        }
        let at = at.unwrap_or_else(|| {
            let (first, messages, pids) = (loss.clone(), FxHashSet::default(), Vec::new());
            kinds.push(Kind { pattern, first, messages, count: 0, pids });
            kinds.len() - 1
        });
        let kind = &mut kinds[at];
        kind.count += 1;
        kind.messages.insert(loss);
        if let Some(pid) = pid.filter(|pid| !kind.pids.contains(pid)) {
            kind.pids.push(pid);
        }
    }
    let rest = (left_out > 0).then(|| format!("{left_out} more messages of other kinds are left out"));
    kinds.into_iter().map(Kind::describe).chain(rest).collect()
}

/// What a line of Valgrind's log means to the user, if it tells of something left out.
fn noteworthy(line: &str, max_threads: u32) -> Option<String> {
    if line.contains("Max number of threads is too low") {
        return Some(format!(
            "Valgrind ended it because it had more than {max_threads} threads at once; --max-threads allows more"
        ));
    }
    if line.contains("VG_N_SEGMENTS is too low") {
        return Some("Valgrind ended it because it had more mappings, or threads, than Valgrind can keep".to_owned());
    }
    if let Some((_, bytes)) = line.split_once("unhandled instruction bytes: ") {
        return Some(format!("Valgrind does not know the instruction {bytes}; the program got SIGILL there"));
    }
    if line.contains("Valgrind's memory management: out of memory") {
        return Some("Valgrind ended it because it had no more memory for itself".to_owned());
    }
    if line.starts_with("valgrind: ") && line.contains("Assertion") {
        return Some(format!("Valgrind ended it by a fault of its own ({})", line.trim_start_matches("valgrind: ")));
    }
    line.strip_prefix("pagelab: ").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_lose_their_process_number() {
        assert_eq!(parse_line("==123== pagelab: gone"), (Some(123), "pagelab: gone"));
        assert_eq!(parse_line("--7-- "), (Some(7), ""));
        assert_eq!(parse_line("plain  "), (None, "plain"));
        assert_eq!(parse_line("== 3"), (None, "== 3"));
    }

    #[test]
    fn log_messages_are_translated_for_users() {
        let threads = noteworthy("Max number of threads is too low", 7).unwrap();
        assert!(threads.contains("more than 7 threads") && threads.contains("--max-threads"), "{threads}");
        assert_eq!(noteworthy("pagelab: gone", 7).unwrap(), "gone");
        let memory = noteworthy("Valgrind's memory management: out of memory:", 7).unwrap();
        assert!(memory.starts_with("Valgrind ended it"), "{memory}");
        assert_eq!(noteworthy("Copyright", 7), None);
    }

    #[test]
    fn a_note_is_reported_once_and_is_no_loss() {
        let log = "==5== pagelab note: a\n==6== pagelab note: a\n==6== pagelab note: b\n";
        assert_eq!(notes_in(log), ["a", "b"]);
        assert!(losses_in(log, 7).is_empty());
    }

    #[test]
    fn a_loss_is_reported_once_with_its_processes() {
        let bytes = "vex amd64->IR: unhandled instruction bytes: 0x62 0xF1";
        let log = format!("==5== pagelab: a\n{bytes}\n==6== pagelab: a\n==6== pagelab: a\n==6== pagelab: b\n");
        let [a, instruction, b] = losses_in(&log, 7).try_into().unwrap();
        assert_eq!((a.as_str(), b.as_str()), ("process 5 and 1 more: a", "process 6: b"));
        assert!(instruction.contains("0x62 0xF1; the program got SIGILL"), "{instruction}");
    }

    #[test]
    fn losses_that_differ_in_numbers_are_one_kind() {
        let mut log: String =
            (1..=20).map(|n| format!("==5== pagelab: a mapping of {} GiB failed\n", 1024 - n)).collect();
        log += "==6== pagelab: a mapping of 1 GiB failed\n==6== pagelab: other\n";
        let expected = "process 5 and 1 more: a mapping of 1023 GiB failed (21 times, with different numbers)";
        assert_eq!(losses_in(&log, 7), [expected, "process 6: other"]);
    }

    #[test]
    fn losses_of_more_kinds_than_are_listed_are_counted() {
        let kinds = (b'a'..=b'z').map(|letter| format!("==5== pagelab: {}\n", char::from(letter)));
        let losses = losses_in(&kinds.collect::<String>(), 7);
        assert_eq!(losses.len(), MOST_LOSSES + 1);
        assert_eq!(losses[MOST_LOSSES], "6 more messages of other kinds are left out");
    }
}
