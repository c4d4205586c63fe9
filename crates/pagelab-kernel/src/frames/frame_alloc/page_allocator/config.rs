//! Parameters of a [`super::PageAllocator`] and their validation.

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{FrameAllocError, MAX_MAX_ORDER};
use super::per_cpu_lists::PcpConfig;
use pagelab_base::addr::FRAME_BYTES;
use pagelab_base::ids::NodeId;

/// Distance of a node to itself, and of two nodes to each other if no table says otherwise (Linux
/// `LOCAL_DISTANCE`, `REMOTE_DISTANCE` in `include/linux/topology.h`).
const LOCAL_DISTANCE: u32 = 10;
const REMOTE_DISTANCE: u32 = 20;
/// Linux `CONFIG_NODES_SHIFT` is at most 10 on x86-64.
const MAX_NODES: usize = 1 << 10;

/// Parameters of [`super::PageAllocator`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PageAllocatorConfig {
    /// The largest order of a block: 10 is Linux's (4 MiB), 18 allows 1 GiB pages.
    pub max_order: u32,
    /// NUMA nodes in the order of their memory; empty for one node with all of it.
    pub nodes: Vec<NodeConfig>,
    /// The node of each CPU; empty to distribute the CPUs over the nodes in equal, contiguous parts.
    pub cpu_nodes: Vec<u32>,
    /// Physical memory below this address is the zone DMA32, memory from it on NORMAL: 4 GiB on x86-64
    /// (`MAX_DMA32_PFN`); 0 for no zone DMA32.
    pub dma32_end_bytes: Bytes,
    /// The per-CPU page lists of each zone.
    pub pcp: PcpConfig,
    /// The reserves of the zones.
    pub watermarks: WatermarkConfig,
}

impl Default for PageAllocatorConfig {
    fn default() -> Self {
        Self {
            max_order: 10,
            nodes: Vec::new(),
            cpu_nodes: Vec::new(),
            dma32_end_bytes: Bytes(4 << 30),
            pcp: PcpConfig::default(),
            watermarks: WatermarkConfig::default(),
        }
    }
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Memory of the node; the sum over all nodes must be the layer's memory.
    pub memory_bytes: Bytes,
    /// Distance to each node, including its own (10), as in the firmware's SLIT; empty for 20 to every other node.
    #[serde(default)]
    pub distances: Vec<u32>,
}

/// The reserves of the zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WatermarkConfig {
    /// Sum of the min watermarks (`vm.min_free_kbytes`). Default as in Linux `calculate_min_free_kbytes`: the square
    /// root of 16 times the memory, both in KiB, from 128 KiB to 256 MiB.
    pub min_free_bytes: Option<Bytes>,
    /// Distance between the watermarks in ten-thousandths of the zone (`vm.watermark_scale_factor`, default 10), but at
    /// least a quarter of min; 0 to use always that quarter.
    pub scale_factor: u32,
    /// DMA32 reserves the size of the node's NORMAL memory divided by this number against requests that NORMAL could
    /// serve (`vm.lowmem_reserve_ratio`, default 256); 0 to reserve nothing.
    pub lowmem_reserve_ratio: u32,
}

impl Default for WatermarkConfig {
    fn default() -> Self {
        Self { min_free_bytes: None, scale_factor: 10, lowmem_reserve_ratio: 256 }
    }
}

pub(super) fn error(key: impl Into<String>, what: impl Into<String>) -> FrameAllocError {
    FrameAllocError::Config { key: key.into(), what: what.into() }
}

/// A configuration with all defaults filled in.
pub(super) struct Topology {
    /// Frames of each node.
    pub(super) node_frames: Vec<u64>,
    pub(super) cpu_nodes: Vec<NodeId>,
    /// For each node, all nodes in order of distance.
    pub(super) nearest: Vec<Vec<NodeId>>,
}

impl PageAllocatorConfig {
    /// Checks the parameters against a memory of `frames` and a machine of `cpus`.
    pub(super) fn topology(&self, frames: u64, cpus: u32) -> Result<Topology, FrameAllocError> {
        if self.max_order > MAX_MAX_ORDER {
            return Err(FrameAllocError::MaxOrder { max_order: self.max_order });
        }
        if frames == 0 {
            return Err(FrameAllocError::NoFrames);
        }
        if !self.dma32_end_bytes.0.is_multiple_of(FRAME_BYTES) {
            let what = format!("{} is not a multiple of the 4 KiB frame", self.dma32_end_bytes);
            return Err(error("dma32_end_bytes", what));
        }
        if self.watermarks.scale_factor > 3000 {
            let what = format!("{} is too large; allowed are 0 to 3000 ten-thousandths", self.watermarks.scale_factor);
            return Err(error("watermarks.scale_factor", what));
        }
        self.pcp.check()?;
        let node_frames = self.node_frames(frames)?;
        let nodes = node_frames.len() as u32;
        Ok(Topology { cpu_nodes: self.cpu_map(cpus, nodes)?, nearest: self.nearest()?, node_frames })
    }

    fn node_frames(&self, frames: u64) -> Result<Vec<u64>, FrameAllocError> {
        if self.nodes.is_empty() {
            return Ok(vec![frames]);
        }
        if self.nodes.len() > MAX_NODES {
            return Err(error("nodes", format!("{} nodes are too many; at most {MAX_NODES}", self.nodes.len())));
        }
        let mut sum = 0_u64;
        for (n, node) in self.nodes.iter().enumerate() {
            let bytes = node.memory_bytes;
            if bytes.0 == 0 || !bytes.0.is_multiple_of(FRAME_BYTES) {
                let what = format!("{bytes} is not possible; a node has a positive multiple of the 4 KiB frame");
                return Err(error(format!("nodes.{n}.memory_bytes"), what));
            }
            sum = sum.saturating_add(bytes.0);
        }
        let memory = frames.saturating_mul(FRAME_BYTES);
        if sum != memory {
            let what =
                format!("the nodes have {} in total; they must add up to the memory's {}", Bytes(sum), Bytes(memory));
            return Err(error("nodes", what));
        }
        Ok(self.nodes.iter().map(|node| node.memory_bytes.0 / FRAME_BYTES).collect())
    }

    fn cpu_map(&self, cpus: u32, nodes: u32) -> Result<Vec<NodeId>, FrameAllocError> {
        if cpus == 0 {
            return Err(error("cpu_nodes", "a machine of 0 CPUs; at least one is needed"));
        }
        if self.cpu_nodes.is_empty() {
            let node = |cpu: u32| NodeId((u64::from(cpu) * u64::from(nodes) / u64::from(cpus)) as u32);
            return Ok((0..cpus).map(node).collect());
        }
        if self.cpu_nodes.len() != cpus as usize {
            let what = format!("{} entries for {cpus} CPUs; give a node for each CPU or none", self.cpu_nodes.len());
            return Err(error("cpu_nodes", what));
        }
        if let Some(cpu) = self.cpu_nodes.iter().position(|&node| node >= nodes) {
            let what = format!("there is no node {}; allowed are 0 to {}", self.cpu_nodes[cpu], nodes - 1);
            return Err(error(format!("cpu_nodes.{cpu}"), what));
        }
        Ok(self.cpu_nodes.iter().copied().map(NodeId).collect())
    }

    /// The order of Linux `find_next_best_node`: by distance; among equals, nodes with a higher number than this one
    /// come first.
    fn nearest(&self) -> Result<Vec<Vec<NodeId>>, FrameAllocError> {
        let count = self.nodes.len().max(1);
        (0..count)
            .map(|from| {
                let distances = self.nodes.get(from).map_or(&[][..], |node| &node.distances);
                check_distances(from, count, distances)?;
                let distance = |to: usize| match distances.get(to) {
                    Some(&distance) => distance,
                    None if to == from => LOCAL_DISTANCE,
                    None => REMOTE_DISTANCE,
                };
                let mut order: Vec<NodeId> = NodeId::all(count).collect();
                order.sort_by_key(|&to| (distance(to.index()), to.index() < from, to));
                Ok(order)
            })
            .collect()
    }
}

fn check_distances(from: usize, nodes: usize, distances: &[u32]) -> Result<(), FrameAllocError> {
    if distances.is_empty() {
        return Ok(());
    }
    let key = format!("nodes.{from}.distances");
    if distances.len() != nodes {
        return Err(error(
            key,
            format!("{} distances; give one to each of the {nodes} nodes or none", distances.len()),
        ));
    }
    for (to, &distance) in distances.iter().enumerate() {
        // Linux `slit_valid`.
        if (to == from) != (distance == LOCAL_DISTANCE) || !(LOCAL_DISTANCE..=254).contains(&distance) {
            let what = format!("{distance} to node {to}; {LOCAL_DISTANCE} to the node itself, 11 to 254 to others");
            return Err(error(key, what));
        }
    }
    Ok(())
}
