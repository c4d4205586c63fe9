//! What is recorded during a run besides the counters.

use crate::observe::page_faults::PageFaults;
use crate::observe::profile::Profile;
use crate::observe::windows::Windows;

/// Number of refused accesses that are kept as examples.
const REFUSED_EXAMPLES: usize = 8;

/// An access that no mapping covers, or that the mapping forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedAccess {
    /// Virtual address of its first byte.
    pub vaddr: u64,
    /// Address of the instruction, as the trace gives it.
    pub pc: u64,
    /// Whether it is a store; otherwise it is a load or a fetch.
    pub write: bool,
}

/// The observers, see the module's text.
#[derive(Clone, Default)]
pub struct Observers {
    /// Parts of the run that are counted separately, in accesses of the main sources.
    pub windows: Windows,
    /// The programs' page faults one by one, if requested.
    pub page_faults: Option<PageFaults>,
    /// The profile of paging costs, if requested. There is then no fast path.
    pub profile: Option<Box<Profile>>,
    /// The first refused accesses, as examples for a warning.
    pub refused: Vec<RefusedAccess>,
}

impl Observers {
    /// Records an access that a kernel refused, if there are not enough examples yet.
    pub fn note_refused(&mut self, access: RefusedAccess) {
        if self.refused.len() < REFUSED_EXAMPLES {
            self.refused.push(access);
        }
    }

    /// The profile, unless the program is in a skipped stretch.
    pub fn measuring_profile(&mut self) -> Option<&mut Profile> {
        self.profile.as_deref_mut().filter(|_| !self.windows.is_between())
    }
}
