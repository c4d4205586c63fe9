//! What is noted during a run, beside what is counted.

use crate::observe::page_faults::PageFaults;
use crate::observe::profile::Profile;
use crate::observe::windows::Windows;

/// Refused accesses that are kept as examples.
const REFUSED_EXAMPLES: usize = 8;

/// An access that no mapping covers, or that one forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedAccess {
    /// Virtual address of its first byte.
    pub vaddr: u64,
    /// Address of the instruction, as the trace gives it.
    pub pc: u64,
    /// Whether it writes; else it reads or fetches.
    pub write: bool,
}

/// See the module's text.
#[derive(Clone, Default)]
pub struct Observers {
    /// Parts of the run that are counted apart, in accesses of the main sources.
    pub windows: Windows,
    /// The programs' page faults one by one, if they are wanted.
    pub page_faults: Option<PageFaults>,
    /// Where paging costs, if that is wanted. There is no fast path then.
    pub profile: Option<Box<Profile>>,
    /// The first accesses that were refused, as examples for a warning.
    pub refused: Vec<RefusedAccess>,
}

impl Observers {
    /// Notes an access that a kernel refused, if there are not enough examples yet.
    pub(crate) fn note_refused(&mut self, access: RefusedAccess) {
        if self.refused.len() < REFUSED_EXAMPLES {
            self.refused.push(access);
        }
    }

    /// The profile, unless the program is in a stretch that is skipped.
    pub(crate) fn measuring_profile(&mut self) -> Option<&mut Profile> {
        self.profile.as_deref_mut().filter(|_| !self.windows.is_between())
    }
}
