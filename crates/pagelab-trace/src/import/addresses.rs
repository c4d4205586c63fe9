//! Which addresses an imported trace may have.
//!
//! No page table translates more than 57 bits (x86-64 with five levels, RISC-V's Sv57; AArch64 has 52, or 56 with
//! 16-byte entries). An address beyond that has something else in its upper bits: a tag of AArch64, of Intel's LAM or
//! of a sanitizer, or the ones of the kernel's half. To replay it as it is would give it a page of its own in the
//! trace, and another program page's entry in the page table. So it is refused, and the error names the option that
//! decides what becomes of it.

/// Bits of address that the largest page tables translate.
const ADDRESS_BITS: u32 = 57;
/// The highest byte is the tag (AArch64 "top byte ignore", LAM's bits 57 to 62 and those of sanitizers are in it).
const TAG_SHIFT: u32 = 56;
/// The kernel's half begins here in the largest address spaces: all upper bits are ones.
const KERNEL_BEGIN: u64 = u64::MAX << (ADDRESS_BITS - 1);

/// How addresses are taken that have more bits than page tables translate.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddressRules {
    /// What lies below needs no second look.
    end: u64,
    remove_tags: bool,
    leave_out_kernel: bool,
}

/// What an access at an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The program's, at this address.
    User(u64),
    /// The kernel's, and to be left out.
    Kernel,
}

impl AddressRules {
    pub(super) fn new(remove_tags: bool, leave_out_kernel: bool) -> Self {
        let bits = if remove_tags { TAG_SHIFT } else { ADDRESS_BITS };
        Self { end: 1 << bits, remove_tags, leave_out_kernel }
    }

    /// Whether tags are removed from addresses.
    pub(super) fn removes_tags(self) -> bool {
        self.remove_tags
    }

    /// Whether an address is in the kernel's half.
    #[inline]
    pub(super) fn is_kernel(self, address: u64) -> bool {
        if self.remove_tags { address >> (TAG_SHIFT - 1) & 1 == 1 } else { address >= KERNEL_BEGIN }
    }

    /// Where so many bytes at an address are, or why they can be nowhere.
    #[inline]
    pub(super) fn place(self, address: u64, size_bytes: u64) -> Result<Place, String> {
        if self.is_plain(address, size_bytes) { Ok(Place::User(address)) } else { self.place_wide(address, size_bytes) }
    }

    /// Whether so many bytes, at least one, are the program's and at the address as it is.
    #[inline]
    pub(super) fn is_plain(self, address: u64, size_bytes: u64) -> bool {
        size_bytes != 0 && address.checked_add(size_bytes).is_some_and(|end| end <= self.end)
    }

    #[cold]
    fn place_wide(self, address: u64, size_bytes: u64) -> Result<Place, String> {
        if size_bytes == 0 {
            return Err("a size of 0 bytes, expected at least 1".to_owned());
        }
        if self.is_kernel(address) {
            if self.leave_out_kernel {
                return Ok(Place::Kernel);
            }
            return Err(format!(
                "{address:#x} is an address of the kernel's half, not of a program; --leave-out-kernel leaves out what \
                 is there, and counts it"
            ));
        }
        let untagged = address & ((1 << TAG_SHIFT) - 1);
        if untagged.saturating_add(size_bytes) > 1 << TAG_SHIFT {
            return Err(format!("{size_bytes} bytes at {address:#x} reach beyond the address space"));
        }
        if self.remove_tags {
            return Ok(Place::User(untagged));
        }
        Err(format!(
            "{address:#x} has more bits than the {ADDRESS_BITS} that page tables translate; if its highest byte is a \
             tag, as on AArch64, --remove-tags takes it off and leaves {untagged:#x}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_programs_stay_as_they_are() {
        let rules = AddressRules::new(false, false);
        for address in [0, 0x1000, 0x7fff_ffff_f000, 1 << 48, (1 << 57) - 8] {
            assert_eq!(rules.place(address, 8), Ok(Place::User(address)), "{address:#x}");
        }
        assert!(rules.place(0x1000, 0).unwrap_err().contains("0 bytes"));
        assert!(rules.place(1 << 57, 8).unwrap_err().contains("--remove-tags"));
        assert!(rules.place((1 << 57) - 4, 8).unwrap_err().contains("beyond"));
        assert!(rules.place(u64::MAX - 3, 8).unwrap_err().contains("--leave-out-kernel"));
    }

    #[test]
    fn tags_are_named_or_removed() {
        let (as_is, removing) = (AddressRules::new(false, false), AddressRules::new(true, false));
        for (tagged, address) in [
            (0x5a00_7f00_0000_1000, 0x7f00_0000_1000),
            (0xb400_7f00_0000_1000, 0x7f00_0000_1000),
            (0xff00_7f00_0000_1000, 0x7f00_0000_1000),
            (0x0100_7f00_0000_1000, 0x7f00_0000_1000),
            (0x0000_7f00_0000_1000, 0x7f00_0000_1000),
        ] {
            assert_eq!(removing.place(tagged, 8), Ok(Place::User(address)), "{tagged:#x}");
        }
        let error = as_is.place(0x5a00_7f00_0000_1000, 8).unwrap_err();
        assert!(error.contains("0x5a007f0000001000") && error.contains("leaves 0x7f0000001000"), "{error}");
        // With bit 55 the kernel's half is meant, whatever the tag.
        assert!(removing.place(0x5aff_8000_0000_1000, 8).unwrap_err().contains("kernel's half"));
    }

    #[test]
    fn the_kernel_s_half_is_refused_or_left_out() {
        for address in [0xffff_8880_1234_5678, 0xffff_ffff_8100_0000, 0xff00_0000_0000_0000, 0xffff_1000_0000_1000] {
            assert!(AddressRules::new(false, false).place(address, 8).unwrap_err().contains("--leave-out-kernel"));
            assert_eq!(AddressRules::new(false, true).place(address, 8), Ok(Place::Kernel), "{address:#x}");
        }
        // With tags, bit 55 decides.
        assert_eq!(AddressRules::new(true, true).place(0x5aff_8880_1234_5678, 8), Ok(Place::Kernel));
        assert!(AddressRules::new(false, true).place(0x5a00_7f00_0000_1000, 8).is_err());
    }
}
