//! Names of generated code, from the files that programs write for perf
//! (linux/tools/perf/Documentation/jit-interface.txt).
//!
//! Such a file is named after the process id, and nothing removes it. So it may come from an earlier process with the
//! same id: its last change is then before the process's start. Both times are on the system's real-time clock.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::calls::GeneratedCode;

/// Tolerance when comparing the file's time with the process's start. FAT has a resolution of two seconds; other file
/// systems are more precise.
const SLACK: Duration = Duration::from_secs(2);

/// A recorded process that may have written such a file.
#[derive(Clone, Debug)]
pub(super) struct Generating {
    process: u32,
    file: PathBuf,
    started: SystemTime,
}

impl Generating {
    /// Process number `process` of the recording, whose process id is `pid`. It did not start before `recording`.
    pub(super) fn new(process: u32, pid: u32, recording: SystemTime) -> Self {
        let started = start_of(pid).map_or(recording, |started| started.max(recording));
        Self { process, file: format!("/tmp/perf-{pid}.map").into(), started }
    }

    fn read(&self, into: &mut Vec<GeneratedCode>, notes: &mut Vec<String>) {
        let Ok((text, changed, created)) = read_with_times(&self.file) else { return };
        let is_older = |time: Option<SystemTime>| time.is_some_and(|time| time + SLACK < self.started);
        let file = self.file.display();
        if is_older(changed) {
            notes.push(format!(
                "{file} was ignored: it is older than the recorded process, so its names are another one's"
            ));
            return;
        }
        if is_older(created) {
            notes.push(format!("{file} is older than the recorded process: some of its names may be another one's"));
        }
        into.extend(text.lines().filter_map(|line| parse_symbol(self.process, line)));
    }
}

/// A file's text, the time of its last change, and the time of its creation, if the file system records them.
fn read_with_times(path: &Path) -> std::io::Result<(String, Option<SystemTime>, Option<SystemTime>)> {
    let mut file = File::open(path)?;
    let facts = file.metadata()?;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok((String::from_utf8_lossy(&content).into_owned(), facts.modified().ok(), facts.created().ok()))
}

/// Start of a running process: the kernel reports it in ticks since boot (proc(5), field 22 of `stat`).
fn start_of(pid: u32) -> Option<SystemTime> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, field 2, may contain any character.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: u64 = fields.split(' ').nth(19)?.parse().ok()?;
    let since_boot = Duration::from_millis(ticks.checked_mul(1000)? / rustix::param::clock_ticks_per_second().max(1));
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Duration::new(now.tv_sec.try_into().ok()?, now.tv_nsec.try_into().ok()?);
    SystemTime::now().checked_sub(now.checked_sub(since_boot)?)
}

/// The names of all processes' generated code, and notes on doubtful ones, one sentence each.
pub(super) fn generated_code(processes: &[Generating]) -> (Vec<GeneratedCode>, Vec<String>) {
    let (mut all, mut notes) = (Vec::new(), Vec::new());
    // A process that has executed another program occurs once per program.
    let mut seen = std::collections::BTreeSet::new();
    for generating in processes.iter().filter(|generating| seen.insert((generating.process, &generating.file))) {
        generating.read(&mut all, &mut notes);
    }
    // If there are several names for an address, the last one is valid: the file is only appended to.
    all.sort_by_key(|code| (code.process, code.start));
    all.reverse();
    all.dedup_by_key(|code| (code.process, code.start));
    all.reverse();
    (all, notes)
}

/// Parses `START SIZE name`, both numbers hexadecimal.
fn parse_symbol(process: u32, line: &str) -> Option<GeneratedCode> {
    let (start, rest) = line.split_once(' ')?;
    let (len, name) = rest.split_once(' ')?;
    let number = |digits: &str| u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok();
    let (start, len) = (number(start)?, number(len)?);
    (len > 0).then(|| GeneratedCode { process, start, len, name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(process: u32, start: u64, len: u64, name: &str) -> GeneratedCode {
        GeneratedCode { process, start, len, name: name.into() }
    }

    #[test]
    fn maps_are_read_line_by_line() {
        assert_eq!(parse_symbol(3, "7f00 1a py::main:/x.py"), Some(code(3, 0x7f00, 0x1a, "py::main:/x.py")));
        assert_eq!(parse_symbol(3, "0x10 0x2 Lazy:~ f a.js:1"), Some(code(3, 0x10, 2, "Lazy:~ f a.js:1")));
        assert_eq!(["10 0 empty", "x 1 name", "10", ""].map(|line| parse_symbol(3, line)), [None, None, None, None]);
    }

    #[test]
    fn the_file_of_an_earlier_process_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("perf-1.map");
        fs::write(&file, "10 2 f\n10 3 g\n").unwrap();
        let changed = fs::metadata(&file).unwrap().modified().unwrap();
        let read = |started| generated_code(&[Generating { process: 5, file: file.clone(), started }]);
        // Clocks of files are behind by up to one tick.
        for after in [0, 1] {
            assert_eq!(read(changed + Duration::from_secs(after)), (vec![code(5, 0x10, 3, "g")], Vec::new()));
        }
        let (found, notes) = read(changed + Duration::from_secs(10));
        assert_eq!((found, notes.len()), (Vec::new(), 1));
        assert!(notes[0].starts_with(&format!("{} was ignored", file.display())), "{notes:?}");
    }

    #[test]
    fn a_file_that_two_processes_have_written_is_doubted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("perf-1.map");
        fs::write(&file, "10 2 f\n").unwrap();
        let facts = fs::metadata(&file).unwrap();
        let started = facts.modified().unwrap() + Duration::from_secs(10);
        File::options().write(true).open(&file).unwrap().set_modified(started).unwrap();
        let generating = Generating { process: 5, file: file.clone(), started };
        let (found, notes) = generated_code(&[generating.clone(), generating]);
        assert_eq!(found, [code(5, 0x10, 2, "f")]);
        // Some file systems do not store the creation time.
        assert_eq!(notes.len(), usize::from(facts.created().is_ok()), "{notes:?}");
    }

    #[test]
    fn the_start_of_a_process_is_in_the_past() {
        let (mine, now) = (start_of(std::process::id()).unwrap(), SystemTime::now());
        assert!(mine <= now && start_of(1).unwrap() <= mine + SLACK);
        // A process of this test starts now, to the precision of the kernel's tick.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let begun = start_of(child.id());
        child.kill().and_then(|()| child.wait()).unwrap();
        assert!(begun.unwrap() + Duration::from_secs(1) >= now, "{begun:?} long before {now:?}");
        assert_eq!(start_of(u32::MAX), None);
        let unknown = Generating::new(0, u32::MAX, now);
        assert_eq!(unknown.started, now);
    }
}
