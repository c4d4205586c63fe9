//! The memory behind the caches: its NUMA nodes, their distance from each core, and their bandwidth.
//!
//! Models: every address belongs to a node. An access takes that node's local or remote latency, and occupies the
//! node's channel for as long as the transfer of a line takes. If the channel is busy, the line waits. Reads,
//! prefetches and write-backs share the channel; only bulk writes wait for write-backs (`streams.rs`). Requests are
//! served in the order of simulation. Cores that overlap accesses simulate requests out of time order, so a request may
//! use an earlier time slot that a previously simulated request left free.
//! Source: queueing at a server with a fixed service time, which bounds the bytes per cycle.
//! Parameters: `machine.memory`.
//! Stats: `memory.*`.
//! Deviations: no banks, no rows, no bus turnaround. Bulk writes fetch nothing. A device's writes use
//! bandwidth only where bulk operations do, and once they are complete; its reads use none.

use std::collections::VecDeque;

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CacheConfigError;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, LINE_BYTES, LINE_SHIFT, LineAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CoreId, MachineCore, NodeId};

/// Number of lines for which time slots of a channel are kept.
const TURNS: u64 = 1 << 16;
/// The duration of a line's transfer is kept in units of 1/256 cycle.
const TIME_SHIFT: u32 = 8;
/// Largest number of nodes of a machine.
const MAX_NODES: usize = 64;

/// Assignment of addresses to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPlacement {
    /// Each node has a contiguous part of the addresses, and the kernel gives a CPU frames of its own node as long as
    /// there are free ones.
    #[default]
    FirstTouch,
    /// Consecutive frames belong to the nodes in turn, whichever CPU uses them.
    Interleaved,
}

/// Memory parameters in addition to its size and latency (`machine.cache.dram_latency_cycles`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// Bytes that each node transfers per cycle. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_cycle: Option<f64>,
    /// NUMA nodes in address order. Default: one node with all of the memory. The machine's cores are divided among
    /// them in equal, contiguous parts.
    pub nodes: Vec<MemoryNodeConfig>,
    /// Assignment of addresses to nodes.
    pub placement: MemoryPlacement,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryNodeConfig {
    /// Memory of the node, a multiple of the frame size.
    pub size_bytes: Bytes,
    /// Cycles of an access from the node's own cores. Default: `machine.cache.dram_latency_cycles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_cycles: Option<u32>,
    /// Cycles of an access from other nodes' cores.
    pub remote_latency_cycles: u32,
    /// Bytes that it transfers per cycle. Default: `machine.memory.bytes_per_cycle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_cycle: Option<f64>,
}

impl MemoryConfig {
    /// Whether memory has nothing but a latency.
    pub fn is_plain(&self) -> bool {
        self.bytes_per_cycle.is_none() && self.nodes.is_empty()
    }

    /// Sizes of the nodes, for a kernel that allocates from near nodes; empty if the kernel does not know the nodes.
    pub fn sizes_for_kernel(&self) -> Vec<Bytes> {
        match self.placement {
            MemoryPlacement::FirstTouch => self.nodes.iter().map(|node| node.size_bytes).collect(),
            MemoryPlacement::Interleaved => Vec::new(),
        }
    }

    /// The node of a core, one of `cores`.
    pub fn node_of_core(&self, core: MachineCore, cores: usize) -> NodeId {
        NodeId::from(core.index() * self.nodes.len().max(1) / cores)
    }

    /// Refuses an impossible memory of `size` bytes for a machine with `cores` cores whose last cache has a latency of
    /// `nearest`. Keys are relative to `machine.memory`.
    pub fn validate(&self, size: Bytes, cores: u32, nearest: u32) -> Result<(), CacheConfigError> {
        let error = |key: String, what: String| Err(CacheConfigError::new(key, what));
        let possible = |rate: Option<f64>| rate.is_none_or(|rate| (1.0 / 64.0..=4096.0).contains(&rate));
        if let Some(rate) = self.bytes_per_cycle.filter(|_| !possible(self.bytes_per_cycle)) {
            let what = format!("{rate} is out of range; allowed are 1/64 to 4096 bytes");
            return error("bytes_per_cycle".into(), what);
        }
        if self.nodes.len() > MAX_NODES.min(cores as usize) {
            let what = format!("{} nodes are too many for {cores} cores; each needs one", self.nodes.len());
            return error("nodes".into(), what);
        }
        for (n, node) in self.nodes.iter().enumerate() {
            if node.size_bytes.0 == 0 || !node.size_bytes.0.is_multiple_of(FRAME_BYTES) {
                let what = format!("{} is not possible; allowed are multiples of 4096 from 4096 on", node.size_bytes);
                return error(format!("nodes.{n}.size_bytes"), what);
            }
            let latencies = [("latency_cycles", node.latency_cycles)].into_iter();
            for (key, latency) in latencies.chain([("remote_latency_cycles", Some(node.remote_latency_cycles))]) {
                if let Some(latency) = latency.filter(|&latency| latency <= nearest) {
                    let what = format!("{latency} must be more than that of the last cache, which is {nearest}");
                    return error(format!("nodes.{n}.{key}"), what);
                }
            }
            if let Some(rate) = node.bytes_per_cycle.filter(|_| !possible(node.bytes_per_cycle)) {
                let what = format!("{rate} is out of range; allowed are 1/64 to 4096 bytes");
                return error(format!("nodes.{n}.bytes_per_cycle"), what);
            }
        }
        let sum = Bytes(self.nodes.iter().fold(0_u64, |sum, node| sum.saturating_add(node.size_bytes.0)));
        if !self.nodes.is_empty() && sum != size {
            let what =
                format!("the nodes have {sum} in total; they must add up to machine.memory_bytes, which is {size}");
            return error("nodes".into(), what);
        }
        Ok(())
    }
}

/// Busy times of a channel. Time is divided into slots of one line transfer each.
#[derive(Clone, Debug)]
struct Channel {
    /// Duration of a slot, in units of 1 / 2^[`TIME_SHIFT`] cycles.
    turn: u64,
    /// Number of the first word of `taken`; each word is a bitmap of 64 slots.
    first: u64,
    taken: VecDeque<u64>,
}

impl Channel {
    fn new(bytes_per_cycle: f64) -> Self {
        let turn = (LINE_BYTES as f64 * f64::from(1 << TIME_SHIFT) / bytes_per_cycle).round().max(1.0) as u64;
        Self { turn, first: 0, taken: vec![0; (TURNS / 64) as usize].into() }
    }

    /// Takes the first free slot from `at` on; returns its start.
    fn take(&mut self, at: Cycles) -> Cycles {
        let earliest = ((at.0 << TIME_SHIFT) / self.turn).max(self.first * 64);
        let (mut word, mut mask) = (earliest / 64, !0 << (earliest % 64));
        loop {
            self.reach(word);
            let taken = &mut self.taken[(word - self.first) as usize];
            let free = !*taken & mask;
            if free != 0 {
                *taken |= free & free.wrapping_neg();
                let turn = word * 64 + u64::from(free.trailing_zeros());
                // A slot that has already begun can be taken, so an idle channel adds no wait.
                return at.max(Cycles((turn * self.turn).div_ceil(1 << TIME_SHIFT)));
            }
            (word, mask) = (word + 1, !0);
        }
    }

    /// Duration of a line's transfer.
    fn line_cycles(&self) -> Cycles {
        Cycles(self.turn.div_ceil(1 << TIME_SHIFT))
    }

    /// Drops the oldest slots until there is room for a word.
    fn reach(&mut self, word: u64) {
        let length = self.taken.len() as u64;
        if word >= self.first + 2 * length {
            self.taken.iter_mut().for_each(|taken| *taken = 0);
            self.first = word + 1 - length;
        }
        while word >= self.first + length {
            self.taken.rotate_left(1);
            self.taken[(length - 1) as usize] = 0;
            self.first += 1;
        }
    }
}

pagelab_base::counters! {
    /// Statistics of a node.
    pub struct MemoryCounts {
        reads: u64 as timed_count("reads", "Lines of this node of memory that programs, walks and kernels read");
        remote: u64 as timed_count("remote", "Those among them that cores of other nodes read");
        prefetches: u64 as timed_count("prefetches", "Lines of this node that prefetchers read");
        writes: u64 as timed_count("writes", "Lines that were written back to this node");
        queued: u64 as timed_count("queued", "Reads of this node that waited until its channel was free");
        queue_cycles: Cycles as cycles(
            "queue_cycles",
            "Cycles that reads of this node waited until its channel was free; within the latencies that they had"
        );
    }
}

#[derive(Clone, Debug)]
struct Node {
    /// One more than its last line, if each node has a contiguous part of the addresses.
    end: u64,
    local: Cycles,
    remote: Cycles,
    channel: Option<Channel>,
    counts: MemoryCounts,
}

/// Reason of a memory request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Read,
    Prefetch,
}

/// The memory of a machine.
#[derive(Clone, Debug)]
pub(super) struct MainMemory {
    nodes: Vec<Node>,
    placement: MemoryPlacement,
    /// The node of each core in use.
    of_core: Vec<NodeId>,
    /// Latency of memory without nodes.
    plain: Cycles,
}

impl MainMemory {
    /// `of_core` is the node of each core in use; `plain` is the latency for nodes without one.
    pub fn new(config: &MemoryConfig, of_core: Vec<NodeId>, plain: Cycles) -> Self {
        let mut end = 0;
        let channel = |own: Option<f64>| own.or(config.bytes_per_cycle).map(Channel::new);
        let node = |node_config: &MemoryNodeConfig| {
            end += node_config.size_bytes.0 >> LINE_SHIFT;
            let (local, remote) =
                (node_config.latency_cycles.map_or(plain, Cycles::from), node_config.remote_latency_cycles.into());
            Node { end, local, remote, channel: channel(node_config.bytes_per_cycle), counts: MemoryCounts::default() }
        };
        let mut nodes: Vec<Node> = config.nodes.iter().map(node).collect();
        if nodes.is_empty() {
            let counts = MemoryCounts::default();
            nodes.push(Node { end: u64::MAX, local: plain, remote: plain, channel: channel(None), counts });
        }
        Self { nodes, placement: config.placement, of_core, plain }
    }

    fn node_of(&self, line: LineAddr) -> NodeId {
        let number = match self.placement {
            MemoryPlacement::FirstTouch => {
                self.nodes.iter().position(|node| line.0 < node.end).unwrap_or(self.nodes.len() - 1)
            }
            MemoryPlacement::Interleaved => ((line.0 >> (FRAME_SHIFT - LINE_SHIFT)) % self.nodes.len() as u64) as usize,
        };
        NodeId::from(number)
    }

    /// Cycles by which a request of a core at time `at` takes longer (or shorter) than a plain memory's latency.
    pub fn transfer(&mut self, core: CoreId, line: LineAddr, want: RequestKind, at: Cycles) -> i64 {
        let number = self.node_of(line);
        let is_remote = self.of_core[core] != number;
        let node = &mut self.nodes[number];
        let wait = node.channel.as_mut().map_or(Cycles::ZERO, |channel| channel.take(at) - at);
        let counts = &mut node.counts;
        match want {
            RequestKind::Read => {
                counts.reads += 1;
                counts.remote += u64::from(is_remote);
                counts.queued += u64::from(wait > Cycles::ZERO);
                counts.queue_cycles += wait;
            }
            RequestKind::Prefetch => counts.prefetches += 1,
        }
        let latency = if is_remote { node.remote } else { node.local };
        (latency + wait).0 as i64 - self.plain.0 as i64
    }

    /// Writes a line at time `at`, or later if the channel is busy. Returns when memory has taken it.
    pub fn write(&mut self, line: LineAddr, at: Cycles) -> Cycles {
        let number = self.node_of(line);
        let node = &mut self.nodes[number];
        node.counts.writes += 1;
        node.channel.as_mut().map_or(at, |channel| channel.take(at) + channel.line_cycles())
    }

    /// Statistics of each node.
    pub fn counts(&self) -> Vec<MemoryCounts> {
        self.nodes.iter().map(|node| node.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_take_turns_and_an_idle_channel_serves_at_once() {
        // 6.4 cycles per line.
        let mut channel = Channel::new(10.0);
        assert_eq!((0..5).map(|_| channel.take(Cycles(100)).0).collect::<Vec<_>>(), [100, 103, 109, 116, 122]);
        assert_eq!(channel.take(Cycles(1003)), Cycles(1003));
        assert_eq!(channel.take(Cycles(50)), Cycles(50), "a turn that others left free");
        let many: Vec<u64> = (0..1001).map(|_| channel.take(Cycles(10_000)).0).collect();
        assert!((6391..=6400).contains(&(many[1000] - many[0])), "a thousand lines at their rate: {many:?}");
        assert!(many.is_sorted());
    }

    #[test]
    fn old_turns_are_forgotten() {
        let mut channel = Channel::new(64.0);
        let first: Vec<u64> = (0..3 * TURNS).map(|_| channel.take(Cycles(7)).0).collect();
        assert!(first.iter().zip(7..).all(|(&found, expected)| found == expected), "one a cycle");
        assert_eq!(channel.take(Cycles(1 << 50)), Cycles(1 << 50));
        assert!(channel.take(Cycles(0)) > Cycles(TURNS), "what is before them is over");
    }

    #[test]
    fn nodes_have_their_addresses_and_latencies() {
        let node = |latency_cycles, remote_latency_cycles| MemoryNodeConfig {
            size_bytes: Bytes(1 << 20),
            latency_cycles,
            remote_latency_cycles,
            bytes_per_cycle: None,
        };
        let nodes = vec![node(None, 160), node(Some(90), 170)];
        let mut config = MemoryConfig { nodes, ..MemoryConfig::default() };
        config.validate(Bytes(2 << 20), 4, 30).unwrap();
        assert_eq!(
            MachineCore::all(4).map(|core| config.node_of_core(core, 4)).collect::<Vec<_>>(),
            [0, 0, 1, 1].map(NodeId)
        );
        let longer = |config: &MemoryConfig, core, line| {
            let mut memory = MainMemory::new(config, vec![NodeId(0), NodeId(1)], Cycles(100));
            memory.transfer(CoreId(core), LineAddr(line), RequestKind::Read, Cycles(7))
        };
        let last = (1 << 14) - 1;
        assert_eq!([longer(&config, 0, last), longer(&config, 0, last + 1)], [0, 70]);
        assert_eq!([longer(&config, 1, last), longer(&config, 1, last + 1)], [60, -10]);
        config.placement = MemoryPlacement::Interleaved;
        assert_eq!([longer(&config, 0, 63), longer(&config, 0, 64), longer(&config, 0, 128)], [0, 70, 0]);
    }
}
