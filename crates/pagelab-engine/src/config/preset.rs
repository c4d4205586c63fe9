//! Presets: the TOML files of the repository's `presets/` folder, built into the library.

/// What a preset describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresetKind {
    /// Cores, TLBs, MMU caches, data caches and memory.
    Machine,
    /// Layers with their page tables and placement policies.
    System,
    /// What the paths of a kernel cost, and what it does when memory runs short.
    Kernel,
    /// A device for swap and files.
    Drive,
    /// A core that overlaps accesses.
    Window,
}

impl PresetKind {
    /// As keys of a configuration have it: `machine`, `system`, `kernel`, `drive` or `window`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::System => "system",
            Self::Kernel => "kernel",
            Self::Drive => "drive",
            Self::Window => "window",
        }
    }
}

/// A built-in preset.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// What it describes.
    pub kind: PresetKind,
    /// The name that the command line takes, also that of its file without `.toml`.
    pub name: &'static str,
    /// Contents of its file.
    pub toml: &'static str,
}

macro_rules! presets {
    ($($kind:ident $folder:literal: $($name:literal),* $(,)?;)*) => {
        const PRESETS: &[Preset] = &[$($(Preset {
            kind: PresetKind::$kind,
            name: $name,
            toml: include_str!(concat!("../../../../presets/", $folder, "/", $name, ".toml")),
        },)*)*];
    };
}

presets! {
    Machine "machines": "kabylake-7700hq", "sandybridge-e5-2420", "xeon-e-2136", "broadwell-e5-2640v3",
        "xeon-silver-4114", "gem5-timing";
    System "systems": "radix", "radix-no-mmu-cache", "radix-perfect-mmu-cache", "radix-page-walk-cache", "radix-2m",
        "radix-thp", "radix-thp-madvise", "radix-1g", "radix-5level", "nested-radix", "nested-radix-no-mmu-cache", "nested-radix-perfect-mmu-cache",
        "nested-radix-2m", "radix-unified-translation-cache", "nested-radix-unified-translation-cache",
        "nested-radix-shared-page-walk-cache", "radix-coalesced-mmu-cache", "nested-radix-linear-host",
        "nested-radix-shadow", "hashed-chained", "hashed-open", "hashed-clustered", "hashed-compact",
        "nested-hashed-compact", "elastic-cuckoo", "nested-elastic-cuckoo",
        "flattened", "nested-flattened", "hashed-power", "direct-segment", "nested-vmm-direct", "nested-guest-direct",
        "nested-dual-direct", "nested-radix-speculative", "radix-ptemagnet", "nested-radix-ptemagnet", "radix-mthp32k",
        "nested-radix-mthp32k", "nested-radix-thp", "nested-radix-two-vms", "radix-eager", "nested-radix-eager",
        "radix-ca-paging", "nested-radix-ca-paging", "radix-ptemagnet-traced", "nested-radix-ptemagnet-traced",
        "mfoe", "mfoe-software", "mfoe-software-traced", "mfoe-thp", "nested-mfoe", "osdp", "hwdp";
    Kernel "kernels": "linux-6.12", "linux-4.19", "linux-4.9", "linux-4.19-stc", "linux-4.19-stc-as-published",
        "linux-6.12-traced";
    Drive "drives": "z-ssd-sz985", "cxl-memory", "tlc-flash", "disk";
    Window "windows": "skylake", "haswell", "sandy-bridge", "zen-4";
}

/// All presets of a kind, in the order of the table above: the first is the default.
pub fn presets(kind: PresetKind) -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().filter(move |preset| preset.kind == kind)
}
