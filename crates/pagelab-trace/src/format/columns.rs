//! The columns of accesses.

use std::sync::{Arc, LazyLock};

use parquet::{
    basic::{Compression, ZstdLevel},
    schema::{parser::parse_message_type, types::TypePtr},
};

use crate::{Access, AccessKind, Branches, Maker};

/// Positions of the columns in a part of accesses.
pub(super) const KIND: usize = 0;
pub(super) const SIZE: usize = 1;
pub(super) const VADDR: usize = 2;
pub(super) const PC: usize = 3;
pub(super) const TID: usize = 4;
pub(super) const GAP: usize = 5;
/// Only in traces with dependencies.
pub(super) const WAITS: usize = 6;
pub(super) const NAMES: [&str; 7] = ["kind", "size", "vaddr", "pc", "tid", "gap", "waits"];

/// The schema, with or without the column of dependencies.
pub(super) fn schema(dependencies: bool) -> &'static TypePtr {
    static SCHEMAS: LazyLock<[TypePtr; 2]> = LazyLock::new(|| {
        ["", "REQUIRED INT32 waits (INTEGER(32, false));"].map(|waits| {
            let text = format!(
                "message accesses {{
                    REQUIRED INT32 kind (INTEGER(8, false));
                    REQUIRED INT32 size (INTEGER(16, false));
                    REQUIRED INT64 vaddr (INTEGER(64, false));
                    REQUIRED INT64 pc (INTEGER(64, false));
                    REQUIRED INT32 tid (INTEGER(32, false));
                    REQUIRED INT32 gap (INTEGER(32, false));
                    {waits}
                }}"
            );
            Arc::new(parse_message_type(&text).expect("a valid schema"))
        })
    });
    &SCHEMAS[usize::from(dependencies)]
}

/// What an access and the branches before it depend on, in one word: the distance to the address's producer in the
/// lowest byte, that of the branches in the next, then the branches' outcomes.
#[inline(always)]
pub(crate) fn waits_of(maker: Maker, branches: Branches) -> u32 {
    let producers = [maker.producer(), branches.producer()].map(|distance| distance.unwrap_or(0) as u8);
    u32::from_le_bytes([producers[0], producers[1], branches.outcome_byte(), 0])
}

/// The branches in such a word.
#[inline(always)]
pub(super) fn branches_of(waits: u32) -> Branches {
    let [_, producer, outcomes, _] = waits.to_le_bytes();
    Branches::from_bytes(outcomes, producer)
}

/// Level 1, except for the settings in `compress`: level 3 saves 5–15 % of the bytes and takes 1.2–1.5 times as long.
pub(super) const ZSTD_LEVEL: i32 = 1;

pub(super) fn compression() -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).expect("a valid level"))
}

/// Bit of `kind` that is set if the kernel made the access.
const BY_KERNEL: u8 = 0x10;

/// All values of `kind`, each at the index that [`kind_index`] returns: the dictionary of the column.
pub(super) const KINDS: [u8; 8] = [0, 1, 2, 3, BY_KERNEL, BY_KERNEL + 1, BY_KERNEL + 2, BY_KERNEL + 3];

/// Index of the access's `kind` in [`KINDS`].
#[inline(always)]
pub(super) fn kind_index(access: &Access) -> u8 {
    access.kind as u8 | u8::from(access.maker.is_kernel()) << 2
}

/// Kind and maker at an index of [`KINDS`].
#[inline]
pub(super) fn kind_at(index: usize) -> (AccessKind, Maker) {
    kind_of(KINDS[index].into()).expect("each of them is a kind")
}

/// Kind and maker for a value of the column `kind`; none if there is no such value.
pub(super) fn kind_of(value: u32) -> Option<(AccessKind, Maker)> {
    let value = u8::try_from(value).ok()?;
    Some((AccessKind::from_code(value & !BY_KERNEL)?, Maker::kernel_if(value & BY_KERNEL != 0)))
}

/// The value of the column `kind` of an access.
#[cfg(test)]
pub(super) fn kind_value(access: &Access) -> u8 {
    KINDS[kind_index(access) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_have_their_bytes() {
        let mut branches = Branches::NONE;
        assert_eq!(waits_of(Maker::KERNEL, branches), 0);
        branches.push(true);
        branches.wait_for(7);
        assert_eq!(waits_of(Maker::after(254), branches), 0x0307fe);
    }

    #[test]
    fn kinds_have_the_numbers_of_the_format() {
        for (maker, bit) in [(Maker::PROGRAM, 0), (Maker::KERNEL, 16)] {
            for code in 0..4 {
                let kind = AccessKind::from_code(code).unwrap();
                let access = Access { maker, ..Access::new(kind, 0, 1) };
                assert_eq!(kind_value(&access), code + bit);
                assert_eq!(kind_of(u32::from(code + bit)), Some((kind, maker)));
            }
        }
        for wrong in [4, 8, 15, 20, 32, 256, u32::MAX] {
            assert_eq!(kind_of(wrong), None);
        }
    }
}
