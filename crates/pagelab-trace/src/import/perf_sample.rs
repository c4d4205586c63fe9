//! A sample of `perf.data`: which fields its event asks for, and where they are.
//!
//! Source: the comment on `PERF_RECORD_SAMPLE` in `include/uapi/linux/perf_event.h` of Linux 6.12.

/// Bits of `sample_type` (`enum perf_event_sample_format`).
mod field {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const WEIGHT: u64 = 1 << 14;
    pub const DATA_SRC: u64 = 1 << 15;
    pub const IDENTIFIER: u64 = 1 << 16;
    pub const WEIGHT_STRUCT: u64 = 1 << 24;
}

/// Bits of `read_format`.
const READ_ENABLED: u64 = 1 << 0;
const READ_RUNNING: u64 = 1 << 1;
const READ_ID: u64 = 1 << 2;
const READ_GROUP: u64 = 1 << 3;
const READ_LOST: u64 = 1 << 4;
/// Bits of `branch_sample_type`.
const BRANCH_HW_INDEX: u64 = 1 << 17;
const BRANCH_COUNTERS: u64 = 1 << 19;

/// What is recorded of an event.
#[derive(Clone, Debug)]
pub(super) struct Attribute {
    sample_type: u64,
    read_format: u64,
    branch_sample_type: u64,
    user_registers: u64,
    /// Numbers that its samples may have.
    ids: Vec<u64>,
}

impl Attribute {
    /// From `struct perf_event_attr`, which grows with Linux' versions; what it does not reach is 0.
    pub(super) fn new(attr: &[u8], ids: Vec<u64>) -> Option<Self> {
        let number =
            |at: usize| attr.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
        Some(Self {
            sample_type: number(24)?,
            read_format: number(32)?,
            branch_sample_type: number(72).unwrap_or(0),
            user_registers: number(80).unwrap_or(0),
            ids,
        })
    }

    #[inline]
    fn has(&self, field: u64) -> bool {
        self.sample_type & field != 0
    }

    /// Whether samples have the address of their data.
    pub(super) fn has_address(&self) -> bool {
        self.has(field::ADDR)
    }

    /// Whether samples tell their event: each has its number at the same place, or all have the same fields.
    pub(super) fn can_be_distinguished(all: &[Self]) -> bool {
        all.iter().all(|attribute| attribute.has(field::IDENTIFIER))
            || all.windows(2).all(|pair| {
                let fields = |attribute: &Self| {
                    (
                        attribute.sample_type,
                        attribute.read_format,
                        attribute.branch_sample_type,
                        attribute.user_registers,
                    )
                };
                fields(&pair[0]) == fields(&pair[1])
            })
    }

    /// The event of a sample; none if it is not among them.
    #[inline]
    pub(super) fn find_for_sample<'a>(all: &'a [Self], body: &[u8]) -> Option<&'a Self> {
        match all {
            [one] => Some(one),
            [first, ..] if !first.has(field::IDENTIFIER) => Some(first),
            several => {
                let id = u64::from_le_bytes(*body.first_chunk()?);
                several.iter().find(|attribute| attribute.ids.contains(&id))
            }
        }
    }
}

/// The fields of a sample that matter; 0 where it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RawSample {
    pub ip: u64,
    pub process: u64,
    pub thread: u64,
    pub time: u64,
    pub address: u64,
    pub data_source: Option<u64>,
}

impl RawSample {
    /// From a record's body; none if it is too short.
    #[inline]
    pub(super) fn new(attribute: &Attribute, body: &[u8]) -> Option<Self> {
        let mut cursor = Cursor(body);
        let mut sample = Self::default();
        let has = |field| attribute.has(field);
        if has(field::IDENTIFIER) {
            cursor.skip(8)?;
        }
        if has(field::IP) {
            sample.ip = cursor.number()?;
        }
        if has(field::TID) {
            let both = cursor.number()?;
            (sample.process, sample.thread) = (both & u64::from(u32::MAX), both >> 32);
        }
        if has(field::TIME) {
            sample.time = cursor.number()?;
        }
        if has(field::ADDR) {
            sample.address = cursor.number()?;
        }
        for field in [field::ID, field::STREAM_ID, field::CPU, field::PERIOD] {
            if has(field) {
                cursor.skip(8)?;
            }
        }
        if !has(field::DATA_SRC) {
            return Some(sample);
        }
        cursor.skip_until_data_source(attribute)?;
        sample.data_source = Some(cursor.number()?);
        Some(sample)
    }
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    #[inline]
    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    fn skip_numbers(&mut self, count: u64) -> Option<()> {
        self.skip(count.checked_mul(8)?)
    }

    /// Passes by what may be between the period and the data source.
    fn skip_until_data_source(&mut self, attribute: &Attribute) -> Option<()> {
        let has = |field| attribute.has(field);
        let bit = |bits: u64, bit: u64| u64::from(bits & bit != 0);
        if has(field::READ) {
            let format = attribute.read_format;
            let times = bit(format, READ_ENABLED) + bit(format, READ_RUNNING);
            let each = 1 + bit(format, READ_ID) + bit(format, READ_LOST);
            let values = if format & READ_GROUP != 0 { self.number()?.checked_mul(each)? } else { each };
            self.skip_numbers(times.checked_add(values)?)?;
        }
        if has(field::CALLCHAIN) {
            let count = self.number()?;
            self.skip_numbers(count)?;
        }
        if has(field::RAW) {
            let (bytes, rest) = self.0.split_first_chunk()?;
            self.0 = rest;
            self.skip(u64::from(u32::from_le_bytes(*bytes)))?;
        }
        if has(field::BRANCH_STACK) {
            let branches = self.number()?;
            let each = 3 + bit(attribute.branch_sample_type, BRANCH_COUNTERS);
            let index = bit(attribute.branch_sample_type, BRANCH_HW_INDEX);
            self.skip_numbers(branches.checked_mul(each)?.checked_add(index)?)?;
        }
        if has(field::REGS_USER) && self.number()? != 0 {
            self.skip_numbers(u64::from(attribute.user_registers.count_ones()))?;
        }
        if has(field::STACK_USER) {
            let bytes = self.number()?;
            self.skip(bytes)?;
            if bytes > 0 {
                self.skip(8)?;
            }
        }
        if has(field::WEIGHT) || has(field::WEIGHT_STRUCT) {
            self.skip(8)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(sample_type: u64, read_format: u64, branch_sample_type: u64, registers: u64) -> Attribute {
        let mut attr = [0; 128];
        for (at, value) in [(24, sample_type), (32, read_format), (72, branch_sample_type), (80, registers)] {
            attr[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        Attribute::new(&attr, vec![7, 8]).unwrap()
    }

    fn body(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn fields_are_where_the_others_leave_them() {
        let plain = attribute(field::IP | field::TID | field::ADDR, 0, 0, 0);
        let sample = RawSample::new(&plain, &body(&[0x40_1000, 42 << 32 | 41, 0x7000])).unwrap();
        let expected = RawSample { ip: 0x40_1000, process: 41, thread: 42, address: 0x7000, ..RawSample::default() };
        assert_eq!(sample, expected);
        assert_eq!(RawSample::new(&plain, &body(&[0x40_1000, 1])), None);

        // Everything that may be in between.
        let all = field::IDENTIFIER | ((1 << 16) - 1);
        let everything = attribute(all, READ_GROUP | READ_ENABLED | READ_ID, BRANCH_HW_INDEX, 0b101);
        let mut bytes = body(&[7, 0x40_1000, 42 << 32 | 41, 99, 0x7000, 1, 2, 3, 4]);
        bytes.extend(body(&[2, 5, 10, 11, 12, 13])); // two counters, the time, and each a value and a number
        bytes.extend(body(&[3, 1, 2, 3])); // a call chain
        bytes.extend([4, 0, 0, 0, 1, 2, 3, 4]); // raw bytes
        bytes.extend(body(&[1, 0, 1, 2, 3])); // a branch behind an index
        bytes.extend(body(&[2, 1, 2])); // two registers
        bytes.extend(body(&[16, 1, 2, 8])); // a stack and how much of it is used
        bytes.extend(body(&[233, 0x6810_0144])); // weight and data source
        let sample = RawSample::new(&everything, &bytes).unwrap();
        assert_eq!(sample.data_source, Some(0x6810_0144));
        assert_eq!((sample.time, sample.address), (99, 0x7000));
        for len in 0..bytes.len() {
            assert_eq!(RawSample::new(&everything, &bytes[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn events_are_identified_by_number() {
        let first = attribute(field::IDENTIFIER | field::IP, 0, 0, 0);
        let second = Attribute { ids: vec![9], ..attribute(field::IDENTIFIER | field::ADDR, 0, 0, 0) };
        let both = [first, second];
        assert!(Attribute::can_be_distinguished(&both));
        assert!(Attribute::find_for_sample(&both, &body(&[9])).unwrap().has_address());
        assert!(!Attribute::find_for_sample(&both, &body(&[8])).unwrap().has_address());
        assert!(
            Attribute::find_for_sample(&both, &body(&[10])).is_none()
                && Attribute::find_for_sample(&both, &[1]).is_none()
        );
        assert!(!Attribute::can_be_distinguished(&[attribute(field::IP, 0, 0, 0), attribute(field::ADDR, 0, 0, 0)]));
    }
}
