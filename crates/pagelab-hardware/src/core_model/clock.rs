//! The clock of a CPU, with its cycles divided into classes.

use super::kernel_branches::BranchRun;
use super::{
    BranchCounts, Common, CompiledCore, CoreModel, CoreTime, Data, DataLocation, IncomingAccess, KernelWindow,
    L1TlbMiss, ROW, Row, Siblings, Stall, Timing,
};
use crate::cache::Traffic;
use pagelab_base::code_cost::CodeCost;
use pagelab_base::cycles::Cycles;
use pagelab_trace::{Access, Branches};

/// What a CPU's cycles are spent on. The classes partition its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Class {
    /// Retiring instructions of the program.
    Base,
    /// The program waiting for its data.
    DataStall,
    /// The program waiting for address translation: second-level TLBs and page walks.
    Translation,
    /// The program waiting for instructions that the first-level instruction cache lacks.
    Fetch,
    /// The program's instructions waiting for the resolution of a mispredicted branch and the refill after it.
    Branch,
    /// The program's instructions waiting for those of the core's other hardware threads.
    Sibling,
    /// Page-fault handlers, including their own data stalls and translation.
    Fault,
    /// Other kernel work: mapping calls, TLB shootdowns, context switches.
    Kernel,
    /// Waiting for another CPU's handler for the same page.
    LockWait,
    /// Waiting for other threads of the process, as the recorded order requires.
    Blocked,
    /// Waiting for a device: swap, storage.
    Io,
    /// Work that others caused on this CPU: interrupts for TLB shootdowns.
    Stolen,
    /// Nothing to run.
    Idle,
}

impl Class {
    /// All classes, in the order of their counters.
    pub const ALL: [Self; 13] = [
        Self::Base,
        Self::DataStall,
        Self::Translation,
        Self::Fetch,
        Self::Branch,
        Self::Sibling,
        Self::Fault,
        Self::Kernel,
        Self::LockWait,
        Self::Blocked,
        Self::Io,
        Self::Stolen,
        Self::Idle,
    ];
}

/// The clock of a CPU.
#[derive(Clone, Debug)]
pub struct CpuClock<C = CoreModel> {
    core: C,
    /// Whether the program's source records which loads its addresses depend on.
    pub has_dependencies: bool,
    instructions: u64,
    /// Kernel instructions that the core model has timed.
    timed: u64,
    /// By class; `Base` stays 0 here, since it follows from the instructions.
    spent: [Cycles; Class::ALL.len()],
    /// Sum of `spent`.
    beyond_base: Cycles,
}

impl CpuClock {
    /// A clock for code compiled for one core model, if this core has that model. It must be passed to
    /// [`Self::take_over`] before this clock is used again.
    #[inline]
    pub fn take_known<C: CompiledCore>(&mut self) -> Option<CpuClock<C>> {
        let core = C::take(&mut self.core)?;
        let &mut Self { has_dependencies, instructions, timed, spent, beyond_base, .. } = self;
        Some(CpuClock { core, has_dependencies, instructions, timed, spent, beyond_base })
    }

    /// Takes back the state of a clock made by [`Self::take_known`].
    #[inline]
    pub fn take_over<C: CompiledCore>(&mut self, other: CpuClock<C>) {
        other.core.give_back(&mut self.core);
        (self.instructions, self.timed) = (other.instructions, other.timed);
        (self.spent, self.beyond_base) = (other.spent, other.beyond_base);
    }
}

impl<C: Timing> CpuClock<C> {
    /// A clock that shows 0.
    pub fn new(core: C) -> Self {
        let spent = [Cycles::ZERO; Class::ALL.len()];
        Self { core, has_dependencies: false, instructions: 0, timed: 0, spent, beyond_base: Cycles::ZERO }
    }

    /// The current time: the sum of the cycles of all classes.
    #[inline]
    pub fn now(&self) -> Cycles {
        self.base() + self.beyond_base
    }

    /// The value of [`Self::now`] after `instructions` more have retired, with `repeats` accesses as in
    /// [`Self::repeat`].
    #[inline]
    pub fn now_after(&self, instructions: u64, repeats: u64) -> Cycles {
        let stall = repeats * self.core.repeat_stall();
        self.core.base_cycles(self.instructions + instructions) + self.beyond_base + stall
    }

    #[inline]
    fn base(&self) -> Cycles {
        self.core.base_cycles(self.instructions)
    }

    #[inline]
    fn moment(&self) -> CoreTime {
        CoreTime { instructions: self.instructions, now: self.now() }
    }

    /// Counts retired instructions of the program.
    #[inline]
    pub fn retire(&mut self, instructions: u64) {
        self.instructions += instructions;
    }

    /// Counts `accesses` to the line of the previous access.
    #[inline]
    pub fn repeat(&mut self, accesses: u64) {
        self.add(Class::DataStall, accesses * self.core.repeat_stall());
    }

    /// Whether the core model needs a call of [`Self::begin_access`] for each access.
    #[inline]
    pub fn models_dependencies(&self) -> bool {
        self.core.models_dependencies()
    }

    /// Assumed dependency of accesses recorded without one, if the core needs dependencies.
    pub fn dependency_assumption(&self) -> Option<&'static str> {
        self.core.dependency_assumption()
    }

    /// Statistics of branch prediction, if the core predicts branches.
    pub fn branches(&self) -> Option<BranchCounts> {
        self.core.branches()
    }

    /// Executes branches of kernel code. Returns the cycles to spend on mispredictions.
    pub fn kernel_branches(&mut self, run: &BranchRun) -> Cycles {
        self.core.kernel_branches(run)
    }

    /// The window in which references of kernel code overlap; none if it waits for each.
    #[inline]
    pub fn kernel_window(&mut self) -> Option<&mut KernelWindow> {
        self.core.kernel_window()
    }

    /// Cycles until the references of kernel code are complete.
    #[inline]
    pub fn drain_kernel(&mut self) -> Cycles {
        let now = self.now();
        self.core.kernel_window().map_or(Cycles::ZERO, |window| window.drain(now))
    }

    /// The state that the core's hardware threads share, if there is any.
    pub fn common(&self) -> Option<Box<Common>> {
        self.core.common()
    }

    /// Resumes the CPU beside the core's other hardware threads; it owns the shared state until [`Self::pause`].
    pub fn resume(&mut self, common: Box<Common>, siblings: Siblings) {
        self.core.resume(common, siblings);
    }

    /// Pauses the CPU and returns the shared state.
    pub fn pause(&mut self) -> Option<Box<Common>> {
        self.core.pause()
    }

    /// Passes the program's next access and the branches before it to the core model; `again` if the access is
    /// repeated after a fault.
    #[inline]
    pub fn begin_access(&mut self, access: &Access, branches: Branches, again: bool) {
        let stall = self.core.begin_access(
            IncomingAccess { access, again, has_dependencies: self.has_dependencies, branches },
            self.moment(),
        );
        self.stall(stall);
    }

    /// Makes accesses that hit where the previous access hit, with the branches before each (or none), and retires
    /// their instructions.
    #[inline(never)]
    pub fn make_hits(&mut self, accesses: &[Access], branches: &[Branches], hit: DataLocation) {
        let hits = [hit; ROW];
        for (number, accesses) in accesses.chunks(ROW).enumerate() {
            let branches = branches.get(number * ROW..).unwrap_or_default();
            self.make_all(accesses, branches, &hits[..accesses.len()]);
        }
    }

    /// [`Self::make_hits`] with a location for each access. None of the accesses missed the first-level TLB.
    #[inline(always)]
    pub fn make_all(&mut self, accesses: &[Access], branches: &[Branches], found: &[DataLocation]) {
        let row = Row { accesses, branches, found, has_dependencies: self.has_dependencies };
        let stall = self.core.make_all(&row, self.moment());
        self.stall(stall);
        self.retire(accesses.iter().map(|access| u64::from(access.gap)).sum());
    }

    /// [`Self::make_all`] for one access that missed the first-level TLB.
    #[inline(never)]
    pub fn make_translated(&mut self, access: &Access, branches: Branches, miss: L1TlbMiss, found: DataLocation) {
        let at = self.moment();
        let behind = |stall: Stall| CoreTime { now: at.now + stall.sum(), ..at };
        let mut stall = self.core.begin_access(
            IncomingAccess { access, again: false, has_dependencies: self.has_dependencies, branches },
            at,
        );
        stall += self.core.translation_stall(miss, behind(stall));
        let data = Data { latency: found.latency, line: found.line, traffic: None };
        stall += self.core.data_stall(data, behind(stall));
        self.stall(stall);
        self.retire(access.gap.into());
    }

    /// Makes an access whose data have this latency and this line number in physical memory.
    #[inline(always)]
    pub fn wait_for_data(&mut self, latency: Cycles, line: u64) {
        let stall = self.core.data_stall(Data { latency, line, traffic: None }, self.moment());
        self.stall(stall);
    }

    /// [`Self::wait_for_data`] if the caches have traffic; the access must be their last request.
    pub fn wait_for_traffic(&mut self, latency: Cycles, line: u64, traffic: &mut Traffic) {
        let stall = self.core.data_stall(Data { latency, line, traffic: Some(traffic) }, self.moment());
        self.stall(stall);
    }

    /// Accounts for a translation that missed the first-level TLB.
    #[inline(always)]
    pub fn wait_for_translation(&mut self, translating: L1TlbMiss) {
        let stall = self.core.translation_stall(translating, self.moment());
        self.stall(stall);
    }

    /// [`Self::wait_for_translation`] of an access that goes on with a guess of its page, `guessed` after the miss.
    /// Returns when the walk ends.
    pub fn wait_for_guess(&mut self, translating: L1TlbMiss, guessed: Cycles) -> Cycles {
        let (stall, verified) = self.core.guessed_translation_stall(translating, guessed, self.moment());
        self.stall(stall);
        verified
    }

    /// Makes an access that is not complete before `verified`. If the caches have traffic, it must be their last
    /// request.
    pub fn wait_for_verified_data(&mut self, found: DataLocation, traffic: Option<&mut Traffic>, verified: Cycles) {
        let data = Data { latency: found.latency, line: found.line, traffic };
        let stall = self.core.verified_data_stall(data, verified, self.moment());
        self.stall(stall);
    }

    /// Begins again behind an access that was translated after a wrong guess; see [`Timing::drop_younger`].
    pub fn drop_younger(&mut self, penalty: Cycles) {
        let stall = self.core.drop_younger(penalty, self.moment());
        self.stall(stall);
    }

    /// Accounts for a line of instructions that arrives after `latency`, beyond a hit.
    pub fn wait_for_instructions(&mut self, latency: Cycles) {
        let stall = self.core.fetch_stall(latency, self.moment());
        self.stall(stall);
    }

    /// Waits until the core has nothing outstanding.
    #[inline]
    pub fn drain(&mut self) {
        if self.core.models_dependencies() {
            let stall = self.core.drain(self.moment());
            self.stall(stall);
        }
    }

    #[inline(always)]
    fn stall(&mut self, stall: Stall) {
        self.add(Class::DataStall, stall.data);
        self.add(Class::Translation, stall.translation);
        self.add(Class::Fetch, stall.fetch);
        self.add(Class::Branch, stall.branch);
        self.add(Class::Sibling, stall.sibling);
    }

    #[inline(always)]
    fn add(&mut self, class: Class, cycles: Cycles) {
        debug_assert_ne!(class, Class::Base);
        self.spent[class as usize] += cycles;
        self.beyond_base += cycles;
    }

    /// Spends `cycles` that no core model can hide.
    #[inline]
    pub fn spend(&mut self, class: Class, cycles: Cycles) {
        self.drain();
        self.add(class, cycles);
    }

    /// Cycles that the core takes for this many kernel instructions. Fractions of cycles carry over between calls.
    #[inline]
    pub fn time(&mut self, instructions: u64) -> Cycles {
        if instructions == 0 {
            return Cycles::ZERO;
        }
        let before = self.core.base_cycles(self.timed);
        self.timed += instructions;
        self.core.base_cycles(self.timed) - before
    }

    /// Spends the cycles of kernel code, without its memory references.
    pub fn execute(&mut self, class: Class, cost: CodeCost) {
        let cycles = cost.cycles + self.time(cost.timed_by_core);
        self.spend(class, cycles);
    }

    /// Waits until `time`, if it is then in the future, after all that is outstanding. Returns the cycles waited.
    pub fn wait_until(&mut self, class: Class, time: Cycles) -> Cycles {
        self.drain();
        let waited = time.saturating_sub(self.now());
        self.add(class, waited);
        waited
    }

    /// Retired instructions of the program, without those of the kernel.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Cycles of a class since the start.
    pub fn spent(&self, class: Class) -> Cycles {
        if class == Class::Base { self.base() } else { self.spent[class as usize] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_model::CoreConfig;

    fn clock(config: &str) -> CpuClock {
        CpuClock::new(CoreModel::new(&serde_json::from_str::<CoreConfig>(config).unwrap(), Cycles(4)))
    }

    #[test]
    fn classes_sum_to_the_clock() {
        let mut clock = clock(r#"{"cycles_per_instruction":0.75,"l1_hit_hidden":true}"#);
        clock.retire(1000);
        for (n, &class) in Class::ALL.iter().enumerate().skip(1) {
            clock.spend(class, Cycles(n as u64));
        }
        clock.wait_until(Class::Idle, Cycles(500));
        clock.wait_until(Class::Idle, Cycles(1000));
        assert_eq!(clock.spent(Class::Base), Cycles(750));
        assert_eq!(clock.now(), Cycles(1000));
        assert_eq!(Class::ALL.iter().map(|&c| clock.spent(c)).sum::<Cycles>(), clock.now());
    }

    #[test]
    fn rounding_of_kernel_code_is_lost_once() {
        let mut clock = clock(r#"{"cycles_per_instruction":0.75,"l1_hit_hidden":true}"#);
        assert_eq!([1, 1, 0, 1, 1].map(|instructions| clock.time(instructions)), [0, 1, 0, 1, 1].map(Cycles));
        clock.execute(Class::Kernel, CodeCost { instructions: 9, timed_by_core: 4, cycles: Cycles(10) });
        assert_eq!((clock.spent(Class::Kernel), clock.instructions()), (Cycles(13), 0));
    }

    #[test]
    fn stalls_are_of_their_classes_and_foreseen() {
        let mut clock = clock(r#"{"cycles_per_instruction":0.75,"l1_hit_hidden":false}"#);
        clock.wait_for_translation(L1TlbMiss { look_up: Cycles(7), walk: Cycles::ZERO, page: None, fetches: false });
        clock.wait_for_data(Cycles(200), 0);
        let foreseen = clock.now_after(1000, 3);
        clock.retire(1000);
        clock.repeat(3);
        let classes = [Class::Base, Class::Translation, Class::DataStall].map(|class| clock.spent(class));
        assert_eq!(classes, [750, 7, 200 + 3 * 4].map(Cycles));
        assert_eq!(clock.now(), foreseen);
    }
}
