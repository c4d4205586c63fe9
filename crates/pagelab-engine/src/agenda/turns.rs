//! Whose turn it is, and what a CPU does with its turn.
//!
//! The CPU with the smallest clock goes next, for as long as it stays within `sync_quantum_cycles` of the second. A CPU
//! goes on with the uppermost activity of its stack if it has one, else with its queue. With one CPU none of this is
//! left but the loop over its queue.

use crate::agenda::kthreads;
use crate::base::addr::Cycles;
use crate::base::error::EngineError;
use crate::base::ids::SpaceId;
use crate::cache::ReplacementPolicy;
use crate::config::Config;
use crate::kernel::home::Home;
use crate::kernel::os::Os;
use crate::machine::clock::Class;
use crate::machine::cpu::{Cpu, CpuState};
use crate::machine::pcids::{Generations, ShootdownCounters};
use crate::machine::simulation::{Placed, REFUSED_EXAMPLES, RefusedAccess, Simulation, Stack};
use crate::observe::statistics::Statistics;
use crate::programs::account::SharedCounts;
use crate::programs::input::{Dealt, Input, Item, LaneState, event_of};
use crate::programs::load::{Beside, Load};
use crate::programs::role::Role;
use crate::translate::hardware::Hardware;
use pagelab_trace::{ProcessIx, Source, ThreadIx};

impl Simulation {
    /// A machine that has booted, with nothing run yet. `sources` name CPUs below `machine.cores * threads_per_core`; only
    /// the cores used are simulated.
    pub fn new(config: &Config, sources: Vec<Placed>, max_accesses: Option<u64>) -> Result<Self, EngineError> {
        Self::with_load(config, sources, Beside::default(), max_accesses)
    }

    /// [`Self::new`] with what runs beside the sources.
    pub fn with_load(
        config: &Config,
        sources: Vec<Placed>,
        mut beside: Beside,
        max_accesses: Option<u64>,
    ) -> Result<Self, EngineError> {
        let machine = &config.machine;
        let mut used: Vec<usize> = sources.iter().flat_map(|s| s.cpus.iter().copied()).chain(beside.cpus()).collect();
        used.sort_unstable();
        used.dedup();
        let threads = machine.threads_per_core as usize;
        let mut cores: Vec<usize> = used.iter().map(|cpu| cpu / threads).collect();
        cores.dedup();
        let mut os = Os::boot(config)?;
        let total = machine.cores as usize * threads;
        let kthread_cpu = (!os.kthreads.is_empty()).then(|| kthreads::choose_cpu(&used, &cores, threads, total));
        let mut kthreads_apart = false;
        if let Some(cpu) = kthread_cpu
            && let Err(at) = used.binary_search(&cpu)
        {
            used.insert(at, cpu);
            kthreads_apart = true;
            cores = used.iter().map(|cpu| cpu / threads).collect();
            cores.dedup();
        }
        let kthread_cpu = kthread_cpu.and_then(|cpu| used.binary_search(&cpu).ok());
        let core_of = |cpu: usize| cores.iter().position(|&core| core == cpu / threads).expect("its core is in use");
        let mut cpus: Vec<Cpu> = used
            .iter()
            .map(|&cpu| Cpu::new(core_of(cpu), machine.core.cycles_per_instruction, config.kernel.pcids))
            .collect();
        let tops = os.tops().to_vec();
        let dense = |cpus: &[usize]| -> Vec<usize> {
            let place = |cpu| used.iter().position(|u| u == cpu).expect("the list was made of these");
            cpus.iter().map(place).collect()
        };
        let (mains, window) = (sources.len(), config.engine.input_window_accesses);
        let many = !beside.is_empty();
        let mut inputs = Vec::new();
        let mut homes = (0..).map(|index: usize| tops[index % tops.len()]);
        let mut home = |name: String, limit| os.home(homes.next().expect("there is no end of them"), &name, limit);
        let mut begin = |inputs: &mut Vec<Input>, source: Box<dyn Source>, role, on: &[usize], home| {
            let on = dense(on);
            on.iter().for_each(|&cpu| cpus[cpu].add_lane(inputs.len()));
            inputs.push(Input::new(source, role, home, on, max_accesses, window));
        };
        for (number, of) in sources.into_iter().enumerate() {
            let home = Home { measured: true, ..home(format!("source.{number}"), of.memory_limit)? };
            begin(&mut inputs, of.source, Role::Main, &of.cpus, home);
        }
        for (number, of) in beside.co_runners.iter_mut().enumerate() {
            let home = home(format!("co_runner.{number}"), of.memory_limit)?;
            begin(&mut inputs, (of.open)()?, Role::CoRunner(number), &of.cpus, home);
        }
        let streams = beside.arrivals.iter().enumerate();
        let streams = streams.map(|(number, of)| home(format!("arrivals.{number}"), of.memory_limit));
        let streams = streams.collect::<Result<Vec<_>, _>>()?;
        let l1 = Cycles::from(machine.cache.l1.latency_cycles);
        let hidden = machine.core.l1_hit_hidden;
        Ok(Self {
            hw: Hardware::new(config, cores.len())?,
            os,
            woke: false,
            load: Load::new(config, mains, beside, streams, dense),
            counted: SharedCounts::default(),
            kthread_cpu,
            kthreads_apart,
            many: many || kthread_cpu.is_some() || cpus.len() > 1 || cpus.iter().any(|cpu| cpu.lanes.len() > 1),
            cpus,
            inputs,
            refused: Vec::new(),
            marks: Vec::new(),
            noted: Vec::new(),
            shootdowns: ShootdownCounters::default(),
            generations: Generations::default(),
            l1_visible: if hidden { 0 } else { l1 },
            l1_hidden: if hidden { l1 } else { 0 },
            filter_hits_only: machine.cache.l1.policy == ReplacementPolicy::Srrip,
            lookahead: config.engine.lookahead.0,
            quantum: config.engine.sync_quantum_cycles,
            slice: config.kernel.quantum_cycles,
            max_accesses,
            window,
        })
    }

    /// Replays all sources to their end. `progress` gets the number of accesses dealt out so far, every now and then; false
    /// interrupts the run.
    pub fn run(&mut self, progress: &mut dyn FnMut(u64) -> bool) -> Result<(), EngineError> {
        if self.many {
            while !self.load.is_over() {
                match (self.next_turn(), self.load.next_arrival()) {
                    (Some((cpu, limit)), arrival) if arrival.is_none_or(|(at, _)| self.cpus[cpu].clock.now() < at) => {
                        let limit = arrival.map_or(limit, |(at, _)| limit.min(at));
                        self.begin_account();
                        self.turn::<true>(cpu, limit, progress)?;
                        self.settle_account(cpu);
                    }
                    (_, Some((at, stream))) => self.arrive(at, stream)?,
                    (_, None) => panic!("CPUs wait for each other and none can go on"),
                }
            }
        } else if !self.cpus.is_empty() {
            self.turn::<false>(0, Cycles::MAX, progress)?;
            assert_eq!(self.cpus[0].state, CpuState::Finished, "the only CPU waits for another");
        }
        assert!(self.load.has_co_runners() || !self.os.locks.any_held(), "a lock is held after the end");
        self.hw.end_check()?;
        (0..self.cpus.len()).for_each(|cpu| self.settle_account(cpu));
        let end = self.elapsed();
        for cpu in &mut self.cpus {
            cpu.clock.wait_until(Class::Idle, end);
        }
        Ok(())
    }

    /// Cycles from the start to the end of the last CPU.
    pub fn elapsed(&self) -> Cycles {
        self.program_cpus().map(|cpu| cpu.clock.now()).max().unwrap_or(0)
    }

    /// The CPUs but for one that kernel threads have to themselves.
    pub fn program_cpus(&self) -> impl Iterator<Item = &Cpu> {
        let (cpus, apart) = (self.cpus.iter().enumerate(), self.kthread_cpu.filter(|_| self.kthreads_apart));
        cpus.filter(move |(index, _)| Some(*index) != apart).map(|(_, cpu)| cpu)
    }

    /// The CPU that goes on with the smallest clock (the first of equals) and how far it may go.
    fn next_turn(&mut self) -> Option<(usize, Cycles)> {
        let mut first: Option<(usize, Cycles)> = None;
        let mut second = Cycles::MAX;
        let mut ready = false;
        for (index, cpu) in self.cpus.iter().enumerate() {
            let now = match cpu.state {
                CpuState::Ready => cpu.clock.now(),
                _ => match self.kthread_alarm(index) {
                    Some(alarm) => alarm.max(cpu.clock.now()),
                    None => continue,
                },
            };
            ready |= cpu.state == CpuState::Ready;
            match first {
                Some((_, least)) if now >= least => second = second.min(now),
                _ => {
                    second = first.map_or(second, |(_, least)| least);
                    first = Some((index, now));
                }
            }
        }
        // Nobody waits for a kernel thread, so an alarm alone helps nobody on.
        let (cpu, now) = first.filter(|_| ready)?;
        self.rouse_for_kthread(cpu, now);
        let limit = second.saturating_add(self.quantum);
        let alarm = self.os.kthreads.next_alarm().filter(|_| self.kthread_cpu == Some(cpu));
        Some((cpu, alarm.map_or(limit, |alarm| limit.min(alarm.max(now)))))
    }

    /// Lets a CPU run until its clock passes `limit`, it gets stuck or it has finished.
    fn turn<const MANY: bool>(
        &mut self,
        cpu: usize,
        limit: Cycles,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), EngineError> {
        self.woke = false;
        if MANY {
            // Others may have taken a line or an entry away since.
            self.cpus[cpu].filter.forget_data();
        }
        loop {
            if self.run_stack::<MANY>(cpu, limit)? == Stack::Yields {
                return Ok(());
            }
            if MANY && self.turn_is_over(cpu, limit) {
                return Ok(());
            }
            if MANY && self.begin_kthread(cpu) || self.begin_exit_scan(cpu) {
                continue;
            }
            if !self.choose_lane::<MANY>(cpu)? {
                return Ok(());
            }
            let of = &mut self.cpus[cpu];
            let lane = &of.lanes[of.lane];
            let input = lane.input;
            match lane.queue.front().expect("a chosen lane has work").clone() {
                Item::Run { batch, at, end, thread } => {
                    self.switch_to(cpu, input, thread)?;
                    let limit =
                        if self.cpus[cpu].lanes.len() > 1 { limit.min(self.cpus[cpu].slice_end) } else { limit };
                    let done = self.replay::<MANY>(cpu, &batch.accesses[at..end], limit)?;
                    self.hw.end_check()?;
                    let of = &mut self.cpus[cpu];
                    let queue = &mut of.lanes[of.lane].queue;
                    if at + done == end {
                        drop(batch);
                        queue.pop_front();
                        self.note_marks();
                        if !progress(self.dealt()) {
                            return Err(EngineError::Interrupted);
                        }
                    } else if let Some(Item::Run { at, .. }) = queue.front_mut() {
                        *at += done;
                    }
                }
                Item::Event { batch, segment } => {
                    let event = event_of(&batch, segment);
                    if let Some(space) = self.inputs[input].space_of(event.process)
                        && !self.may_carry_out(cpu, space, &event.kind)
                    {
                        return Ok(());
                    }
                    self.cpus[cpu].pop_item();
                    self.carry_out(cpu, input, event)?;
                }
                Item::Barrier { barrier } => self.reach(cpu, input, barrier)?,
            }
            if MANY {
                self.wake_starved(cpu, input);
            }
        }
    }

    /// Notes what has been counted at a mark.
    #[inline]
    fn note_marks(&mut self) {
        while self.marks.last().is_some_and(|&accesses| self.dealt() >= accesses) {
            self.marks.pop();
            self.noted.push(Statistics::collect(self));
        }
    }

    /// Whether a CPU has come to the end of its turn.
    #[inline]
    pub(crate) fn turn_is_over(&self, cpu: usize, limit: Cycles) -> bool {
        self.woke || self.cpus[cpu].clock.now() > limit
    }

    /// Accesses of the main sources dealt out so far; of the arrivals under way if there is none.
    pub fn dealt(&self) -> u64 {
        let mains = if self.load.mains > 0 { self.load.mains } else { self.inputs.len() };
        self.inputs[..mains].iter().map(|input| input.dealt).sum()
    }

    /// Makes a lane with work the current one; false if there is none, and the CPU's state then says why.
    fn choose_lane<const MANY: bool>(&mut self, cpu: usize) -> Result<bool, EngineError> {
        let chosen = loop {
            let chosen = self.look_for_lane(cpu)?;
            // What follows an end may be that a source begins anew.
            if !self.end_inputs(cpu)? || chosen {
                break chosen;
            }
        };
        let of = &mut self.cpus[cpu];
        if chosen {
            let input = of.lanes[of.lane].input;
            if MANY {
                self.own(cpu, input);
            }
            return Ok(true);
        }
        let finished = of.lanes.iter().all(|lane| lane.state == LaneState::Finished);
        // The kernel threads' CPU waits for their work.
        of.state = if finished && self.kthread_cpu != Some(cpu) { CpuState::Finished } else { CpuState::Waiting };
        self.disown(cpu);
        self.enter_idle(cpu);
        Ok(false)
    }

    /// Makes the next lane with work the current one, if there is one.
    fn look_for_lane(&mut self, cpu: usize) -> Result<bool, EngineError> {
        let lanes = self.cpus[cpu].lanes.len();
        let of = &self.cpus[cpu];
        // An access that a fault interrupted is made again first: how the fault ended is known to this CPU only.
        let within = of.outcome.is_some() || of.split.lines > 0;
        let over = lanes > 1 && !within && of.clock.now() >= of.slice_end;
        let first = self.cpus[cpu].lane + usize::from(over);
        for lane in (first..first + lanes).map(|lane| lane % lanes) {
            self.refill(cpu, lane)?;
            let of = &mut self.cpus[cpu];
            if of.lanes[lane].state == LaneState::Ready {
                if lane != of.lane || over {
                    of.lane = lane;
                    of.slice_end = of.clock.now() + self.slice;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Fills a lane's queue from its input, if it is empty and that can be done.
    fn refill(&mut self, cpu: usize, lane: usize) -> Result<(), EngineError> {
        let of = &mut self.cpus[cpu].lanes[lane];
        if of.state != LaneState::Ready || !of.queue.is_empty() {
            return Ok(());
        }
        let input = of.input;
        while self.cpus[cpu].lanes[lane].queue.is_empty() {
            let cpus = &mut self.cpus;
            let dealt = self.inputs[input].deal(&mut |to, item| {
                let lane = cpus[to].lanes.iter_mut().find(|lane| lane.input == input).expect("the input runs there");
                lane.queue.push_back(item);
            })?;
            let lane = &mut self.cpus[cpu].lanes[lane];
            match dealt {
                Dealt::Some => {}
                Dealt::Full => {
                    lane.state = LaneState::Starved;
                    return Ok(());
                }
                Dealt::End => {
                    lane.state = LaneState::Finished;
                    self.lane_ended(input);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// After progress of an input: lanes that starved may try again.
    fn wake_starved(&mut self, by: usize, input: usize) {
        let now = self.cpus[by].clock.now();
        for n in 0..self.inputs[input].cpus.len() {
            let cpu = self.inputs[input].cpus[n];
            let lane = self.cpus[cpu].lanes.iter_mut().find(|lane| lane.input == input).expect("the input runs there");
            if lane.state == LaneState::Starved {
                lane.state = LaneState::Ready;
                self.resume(cpu, input, Class::Idle, now);
            }
        }
    }

    /// A CPU arrives at a barrier; the last one to arrive lets all go on, after the owner has carried the event out,
    /// or itself if the owner is busy.
    fn reach(&mut self, cpu: usize, input: usize, barrier: u64) -> Result<(), EngineError> {
        let at = self.inputs[input].barriers.get_mut(&barrier).expect("it is there until all have reached it");
        at.arrived += 1;
        if at.arrived < at.members.len() {
            let of = &mut self.cpus[cpu];
            of.lanes[of.lane].state = LaneState::AtBarrier;
            return Ok(());
        }
        let at = self.inputs[input].barriers.remove(&barrier).expect("looked up just now");
        let time = self.cpus[cpu].clock.now();
        for &member in &at.members {
            let of = &mut self.cpus[member];
            let lane = of.lanes.iter_mut().find(|lane| lane.input == input).expect("the input runs there");
            lane.state = LaneState::Ready;
            lane.queue.pop_front();
            self.resume(member, input, Class::Blocked, time);
        }
        // The owner may be in the middle of another source's activity, whose locks what follows from the event could wait for.
        let by = if self.cpus[at.owner].stack.is_empty() { at.owner } else { cpu };
        self.carry_out(by, input, at.event())
    }

    /// Lets a CPU that waits for others go on at `time` at the earliest, on account of an input.
    fn resume(&mut self, cpu: usize, input: usize, class: Class, time: Cycles) {
        if self.cpus[cpu].resume(class, time) {
            self.cpus[cpu].owner = Some(input);
            self.woke = true;
            self.leave_idle(cpu);
        }
    }

    /// Wakes the CPUs that wait for keys that `by` has just released.
    #[inline]
    pub(crate) fn wake_released(&mut self, by: usize) {
        if self.os.locks.any_released() {
            self.wake_waiting(by);
        }
    }

    fn wake_waiting(&mut self, by: usize) {
        let now = self.cpus[by].clock.now();
        let (cpus, woke) = (&mut self.cpus, &mut self.woke);
        self.os.locks.take_released(|key| {
            for cpu in cpus.iter_mut().filter(|cpu| cpu.state == CpuState::Blocked(key)) {
                cpu.state = CpuState::Ready;
                *woke = true;
                cpu.clock.wait_until(Class::LockWait, now);
            }
        });
    }

    /// Makes a thread of an input the one that runs on a CPU.
    fn switch_to(&mut self, cpu: usize, input: usize, thread: ThreadIx) -> Result<(), EngineError> {
        if self.cpus[cpu].thread == Some((input, thread)) {
            return Ok(());
        }
        let space = self.space_of(input, self.inputs[input].process_of(thread))?;
        let of = &mut self.cpus[cpu];
        if of.thread.is_some() {
            of.counters.context_switches += 1;
            of.clock.spend(Class::Kernel, self.os.costs.context_switch_cycles.into());
        }
        of.thread = Some((input, thread));
        self.load_space(cpu, space);
        Ok(())
    }

    /// The space of a process, made if need be.
    pub(crate) fn space_of(&mut self, input: usize, process: ProcessIx) -> Result<SpaceId, EngineError> {
        if let Some(space) = self.inputs[input].space_of(process) {
            return Ok(space);
        }
        let space = self.os.add_space(self.inputs[input].home)?;
        self.inputs[input].set_space(process, Some(space));
        Ok(space)
    }

    /// Keeps an example of an access that a kernel refused.
    pub(crate) fn note_refused(&mut self, access: RefusedAccess) {
        if self.refused.len() < REFUSED_EXAMPLES {
            self.refused.push(access);
        }
    }
}
