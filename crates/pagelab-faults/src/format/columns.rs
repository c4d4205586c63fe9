//! The columns of a fault trace.

use std::{
    num::NonZeroU32,
    sync::{Arc, LazyLock},
};

use parquet::schema::{parser::parse_message_type, types::TypePtr};

use crate::{Fault, FaultKind};

pub(super) static SCHEMA: LazyLock<TypePtr> = LazyLock::new(|| {
    let text = "message faults {
        REQUIRED INT64 time_ns (INTEGER(64, false));
        REQUIRED INT32 core (INTEGER(16, false));
        REQUIRED INT64 address (INTEGER(64, false));
        REQUIRED INT32 kind (INTEGER(8, false));
        REQUIRED INT32 process (INTEGER(32, false));
        REQUIRED INT32 thread (INTEGER(32, false));
        REQUIRED INT32 latency_ns (INTEGER(32, false));
    }";
    Arc::new(parse_message_type(text).expect("a valid schema"))
});

/// Positions of the 64-bit columns.
pub(super) const WIDE: [usize; 2] = [0, 2];
/// Positions of the 32-bit columns.
pub(super) const NARROW: [usize; 5] = [1, 3, 4, 5, 6];

/// The columns of some rows. Parquet's integers are signed; here only their bits matter.
#[derive(Default)]
pub(super) struct Columns {
    pub wide: [Vec<i64>; WIDE.len()],
    pub narrow: [Vec<i32>; NARROW.len()],
}

impl Columns {
    pub fn len(&self) -> usize {
        self.wide[0].len()
    }

    pub fn clear(&mut self) {
        self.wide.iter_mut().for_each(Vec::clear);
        self.narrow.iter_mut().for_each(Vec::clear);
    }

    pub fn push(&mut self, fault: &Fault) {
        let latency = fault.latency_ns.map_or(0, NonZeroU32::get);
        for (column, value) in self.wide.iter_mut().zip([fault.time_ns, fault.address]) {
            column.push(value.cast_signed());
        }
        let narrow = [u32::from(fault.core), u32::from(fault.kind.code()), fault.process, fault.thread, latency];
        for (column, value) in self.narrow.iter_mut().zip(narrow) {
            column.push(value.cast_signed());
        }
    }

    /// The fault in an existing row; none if a value is out of its column's range.
    pub fn fault(&self, row: usize) -> Option<Fault> {
        let [time_ns, address] = [0, 1].map(|column| self.wide[column][row].cast_unsigned());
        let [core, kind, process, thread, latency] =
            [0, 1, 2, 3, 4].map(|column| self.narrow[column][row].cast_unsigned());
        Some(Fault {
            time_ns,
            core: u16::try_from(core).ok()?,
            address,
            kind: FaultKind::from_code(u8::try_from(kind).ok()?)?,
            process,
            thread,
            latency_ns: NonZeroU32::new(latency),
        })
    }
}
