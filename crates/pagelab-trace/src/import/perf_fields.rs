//! The fields of `perf script`, where the user names them.
//!
//! perf prints the fields in one order, whatever the order of their names behind `-F` is. So names alone decide what
//! each word of a line is. Source: `output_field` and `process_event` in `tools/perf/builtin-script.c` of Linux 6.1.

use super::{
    numbers::{decimal, hexadecimal},
    perf::{Line, Sample, is_time, operation, pc, process_and_thread},
};
use crate::TraceError;

/// Fields that are understood, as perf names them.
const KNOWN: [&str; 17] = [
    "comm",
    "pid",
    "tid",
    "cpu",
    "time",
    "period",
    "event",
    "addr",
    "data_src",
    "weight",
    "ip",
    "sym",
    "symoff",
    "dso",
    "phys_addr",
    "data_page_size",
    "code_page_size",
];
/// Words that a command may have at most; Linux keeps 15 letters of it.
const MAX_COMMAND_WORDS: usize = 16;

/// Which fields the lines of a text have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    comm: bool,
    pid: bool,
    tid: bool,
    cpu: bool,
    time: bool,
    period: bool,
    event: bool,
    ip: bool,
    phys_addr: bool,
    /// Words behind the physical address.
    page_sizes: usize,
}

impl Layout {
    /// From names between commas, as behind `perf script -F`.
    ///
    /// # Errors
    /// [`TraceError::Usage`] for a name that is not known, and for names without `addr`.
    pub(super) fn from_names(names: &str) -> Result<Self, TraceError> {
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        if let Some(unknown) = names.iter().find(|name| !KNOWN.contains(name)) {
            let what = format!("--fields: {unknown:?} is no field that is read; those are {}", KNOWN.join(", "));
            return Err(TraceError::usage(what));
        }
        if !names.contains(&"addr") {
            let what = "--fields: without addr, the text has no addresses of data, and nothing to import";
            return Err(TraceError::usage(what));
        }
        let has = |name| names.contains(&name);
        Ok(Self {
            comm: has("comm"),
            pid: has("pid"),
            tid: has("tid"),
            cpu: has("cpu"),
            time: has("time"),
            period: has("period"),
            event: has("event"),
            ip: has("ip"),
            phys_addr: has("phys_addr"),
            page_sizes: usize::from(has("data_page_size")) + usize::from(has("code_page_size")),
        })
    }

    /// The meaning of a line; none if it does not have these fields.
    pub(super) fn parse(&self, line: &[u8]) -> Option<Line> {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            return Some(Line::Skip);
        }
        if !self.comm {
            return self.parse_after_command(line);
        }
        // The command has one word or several, which may be numbers.
        let mut rest = line;
        for _ in 0..MAX_COMMAND_WORDS {
            rest = word(rest)?.1;
            if let Some(sample) = self.parse_after_command(rest) {
                return Some(sample);
            }
        }
        None
    }

    fn parse_after_command(&self, text: &[u8]) -> Option<Line> {
        let (mut rest, mut process, mut thread) = (text, 0, 0);
        let mut next = || {
            let (word, behind) = word(rest)?;
            rest = behind;
            Some(word)
        };
        if self.pid || self.tid {
            let word = next()?;
            match (self.pid, self.tid) {
                (true, true) if word.contains(&b'/') => (process, thread) = process_and_thread(word)?,
                (true, true) => return None,
                // Its threads are not told: one.
                (true, false) => (process, thread) = (decimal(word)?, decimal(word)?),
                (false, _) => thread = decimal(word)?,
            }
        }
        if self.cpu {
            decimal(next()?.strip_prefix(b"[")?.strip_suffix(b"]")?)?;
        }
        if self.time && !is_time(next()?) {
            return None;
        }
        if self.period {
            decimal(next()?)?;
        }
        let event = if self.event { next()?.strip_suffix(b":")? } else { b"" };
        let payload = self.without_tail(rest)?;
        let address = hexadecimal(word(payload)?.0)?;
        let pc = if self.ip { pc(payload) } else { 0 };
        let operation = operation(event, payload);
        Some(Line::Sample(Sample { process, thread, operation, address, pc, may_be_weight: false }))
    }

    /// A payload without what is behind the instruction's address: a physical address and sizes of pages.
    fn without_tail<'a>(&self, payload: &'a [u8]) -> Option<&'a [u8]> {
        let mut payload = payload.trim_ascii_end();
        for _ in 0..self.page_sizes + usize::from(self.phys_addr) {
            let last = payload.iter().rposition(u8::is_ascii_whitespace)?;
            payload = payload[..last].trim_ascii_end();
        }
        Some(payload)
    }
}

/// The first word, and what is behind it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let len = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    (len > 0).then(|| text.split_at(len))
}

#[cfg(test)]
mod tests {
    use super::{super::perf::Operation, *};
    use crate::AccessKind;

    #[test]
    fn words_are_what_the_names_say() {
        let unknown = Operation::Unknown;
        let store = Operation::Access(AccessKind::Store);
        for (names, line, (process, thread, operation, address, pc)) in [
            ("addr", "7f0d3c2b1a40", (0, 0, unknown, 0x7f0d_3c2b_1a40, 0)),
            ("tid,addr,ip", "7 7f0d3c2b1a40 401000", (0, 7, unknown, 0x7f0d_3c2b_1a40, 0x40_1000)),
            ("pid,addr", "7 1000", (7, 7, unknown, 0x1000, 0)),
            ("addr,event,comm,pid", "a b 7 page-faults: 123", (7, 7, unknown, 0x123, 0)),
            ("comm,pid,tid,time,event,addr", "w 1 1/2 5.1: mem-stores: 10", (1, 2, store, 16, 0)),
            (
                "comm,pid,tid,cpu,time,period,event,addr,data_src,weight,ip,sym,symoff,dso,phys_addr,data_page_size",
                "w 1/2 [003] 5.1: 9 e: 7000 522 |OP STORE SIMD|BLK  N/A 7 401000 f+0x1 (/x) 12345678 4K",
                (1, 2, store, 0x7000, 0x40_1000),
            ),
        ] {
            let sample = Sample { process, thread, operation, address, pc, may_be_weight: false };
            let layout = Layout::from_names(names).unwrap();
            assert_eq!(layout.parse(line.as_bytes()), Some(Line::Sample(sample)), "{names}: {line}");
        }
    }

    #[test]
    fn lines_with_other_fields_are_none() {
        let layout = Layout::from_names("comm,pid,tid,time,event,addr").unwrap();
        for line in ["w 1 5.1: e: 10", "w 1/2 e: 10", "w 1/2 5.1: 10", "w 1/2 5.1: e: f+0x1", "w 1/2 5.1: e:"] {
            assert_eq!(layout.parse(line.as_bytes()), None, "{line:?}");
        }
        assert_eq!(layout.parse(b"# 1/2"), Some(Line::Skip));
    }

    #[test]
    fn names_are_known_and_have_an_address_among_them() {
        let error = Layout::from_names("comm,adr").unwrap_err().to_string();
        assert!(error.contains("\"adr\"") && error.contains("data_src"), "{error}");
        assert!(Layout::from_names("comm,ip").unwrap_err().to_string().contains("without addr"));
        assert!(Layout::from_names("").is_err());
    }
}
