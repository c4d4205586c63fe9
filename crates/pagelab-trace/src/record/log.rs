//! What Valgrind's log tells: why a program did not start, and what a recording lacks.

use std::fs;
use std::path::Path;

/// Number of lines of the log that an error shows.
const LINES: usize = 8;
/// Different losses that are told, at most.
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

/// Each loss once, with the processes that had it.
fn losses_in(log: &str, max_threads: u32) -> Vec<String> {
    let mut losses: Vec<(String, Vec<u32>)> = Vec::new();
    for (pid, line) in log.lines().map(parse_line) {
        let Some(loss) = noteworthy(line, max_threads) else { continue };
        let at = losses.iter().position(|(known, _)| *known == loss);
        if at.is_none() && losses.len() == MOST_LOSSES {
            continue;
        }
        let at = at.unwrap_or_else(|| {
            losses.push((loss, Vec::new()));
            losses.len() - 1
        });
        let pids = &mut losses[at].1;
        if let Some(pid) = pid.filter(|pid| !pids.contains(pid)) {
            pids.push(pid);
        }
    }
    let of_processes = losses.into_iter().map(|(loss, pids)| match pids.as_slice() {
        [] => loss,
        [pid] => format!("process {pid}: {loss}"),
        [pid, others @ ..] => format!("process {pid} and {} more: {loss}", others.len()),
    });
    of_processes.collect()
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
}
