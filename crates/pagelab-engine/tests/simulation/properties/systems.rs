//! The systems that random programs run on.

/// A system and its overrides.
pub type System = (&'static str, &'static [&'static str]);

pub const SWAP: &str =
    r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;

const PTEMAGNET: &str = r#"system.layers.native.placement={"kind":"ptemagnet"}"#;

const EAGER: &str = r#"system.layers.native.placement={"kind":"eager"}"#;

const CA_PAGING: &str = r#"system.layers.native.placement={"kind":"ca-paging"}"#;

const STORAGE: &str = r#"kernel.storage={"read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;

/// Few frames, refilled often.
const MFOE: &[&str] =
    &["system.layers.native.fault_engine.entries=5", "system.layers.native.fault_engine.period_cycles=20000"];

/// Arrays for mappings of four pages and more.
const SMALL_REGIONS: &str = r#"system.layers.native.page_table={"kind":"do-it-yourself","levels":4,"regions":3,"least_bytes":"16KiB","region_bytes":"2MiB"}"#;

const SMALL_GUEST_REGIONS: &str = r#"system.layers.guest.page_table={"kind":"do-it-yourself","levels":4,"regions":3,"least_bytes":"16KiB","region_bytes":"2MiB"}"#;

const KHUGEPAGED: &str =
    r#"kernel.threads.khugepaged={"scan_sleep_cycles":20000,"pages_to_scan":4096,"max_ptes_none":511}"#;

/// The same for pages of 2 MiB.
const MFOE_THP: &[&str] = &[
    "system.layers.native.fault_engine.huge_entries=2",
    "system.layers.native.fault_engine.entries=5",
    "system.layers.native.fault_engine.period_cycles=20000",
];

/// Few free pages, a drive that sometimes fails, and a kpted that runs often.
const SMU: &[&str] = &[
    "system.layers.native.fault_engine.free_pages=8",
    "system.layers.native.fault_engine.kpted_cycles=50000",
    "system.layers.native.fault_engine.kpoold_cycles=40000",
    "system.layers.native.fault_engine.sync_refill=3",
    "kernel.storage.errors_per_million=50000",
];

const MIGRATION: &str = r#"kernel.threads.migration={"start_cycles":20000,"page_cycles":0,"rounds":6,"stop_pages":0}"#;

/// Begins when much of the program's memory has been touched.
const LATE_MIGRATION: &str =
    r#"kernel.threads.migration={"start_cycles":2000000,"page_cycles":0,"rounds":4,"stop_pages":4}"#;

/// Mappings from 64 KiB on become segments.
const LATE_SEGMENTS: &str =
    r#"kernel.threads.late_segments={"bytes":"1MiB","least_bytes":"64KiB","sleep_cycles":20000}"#;

/// The same, and reclaim takes them back early, since their memory is most of the machine's.
const DISSOLVED_SEGMENTS: &str = r#"kernel.threads.late_segments={"bytes":"1MiB","least_bytes":"64KiB","sleep_cycles":20000,"dissolve":"low-watermark"}"#;

/// The same as a last resort.
const LAST_SEGMENTS: &str = r#"kernel.threads.late_segments={"bytes":"1MiB","least_bytes":"64KiB","sleep_cycles":20000,"dissolve":"last-resort"}"#;

/// Batches that take long enough for others to wait for their locks.
const HELD: &str = r#"kernel.held_locks={"zone_page":{"instructions":40},"lru_page":{"instructions":60,"cycles":900}}"#;

/// Calls that take long enough for faults to wait for them.
const CALLS: &str = r#"kernel.mapping_calls={"call":{"instructions":500,"cycles":9000},"unmap_page":{"instructions":200,"cycles":900},"change_page":{"instructions":50},"downgrade":"on"}"#;

/// The same, as writers to the end.
const WRITING_CALLS: &str = r#"kernel.mapping_calls={"call":{"instructions":500,"cycles":9000},"unmap_page":{"instructions":200,"cycles":900},"change_page":{"instructions":50},"downgrade":"off"}"#;

pub const SYSTEMS: &[System] = &[
    ("radix", &[CALLS, SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    ("radix-2m", &[WRITING_CALLS, KHUGEPAGED, "kernel.fault_lock=mm"]),
    (
        "nested-radix-cold",
        &[WRITING_CALLS, SWAP, "system.layers.host.memory_bytes=3MiB", "system.layers.guest.memory_bytes=48MiB"],
    ),
    ("hashed-chained", &[CALLS, "kernel.fault_lock=mm"]),
    ("radix", &[CALLS, SWAP, "kernel.cgroup_limit_bytes=1MiB", "kernel.vma_fallbacks=linux-6.4"]),
    ("radix-2m", &[WRITING_CALLS, KHUGEPAGED, "kernel.vma_fallbacks=linux-6.10"]),
    ("radix", &[CALLS, STORAGE, "kernel.page_cache=cold", "kernel.vma_fallbacks=linux-6.7"]),
    (
        "radix",
        &[SWAP, STORAGE, "kernel.page_cache=cold", "kernel.cgroup_limit_bytes=1MiB", "kernel.vma_fallbacks=linux-6.10"],
    ),
    ("nested-radix-cold", &[WRITING_CALLS, "kernel.vma_fallbacks=linux-6.6"]),
    ("mfoe", &[MFOE[0], MFOE[1], "kernel.vma_fallbacks=linux-6.4"]),
    ("mfoe-software", &[MFOE[0], MFOE[1], "kernel.vma_fallbacks=linux-6.10"]),
    ("hwdp", &[SMU[0], SMU[1], SMU[2], SMU[3], SMU[4], "kernel.vma_fallbacks=linux-6.10"]),
    ("radix", &[PTEMAGNET, CALLS, "kernel.vma_fallbacks=linux-6.10"]),
    ("radix", &[HELD, SWAP, "kernel.cgroup_limit_bytes=1MiB", "kernel.spin_locks=queued"]),
    ("nested-radix-cold", &[HELD, CALLS]),
    ("radix", &[HELD, PTEMAGNET, "kernel.lru_batch=1"]),
    ("mfoe", &[HELD, MFOE[0], MFOE[1], "kernel.spin_locks=queued"]),
    ("radix", &[HELD, CALLS, SWAP, "kernel.cgroup_limit_bytes=1MiB", "kernel.spin_locks=queued"]),
    ("radix-2m", &[HELD, WRITING_CALLS, KHUGEPAGED, "kernel.spin_locks=queued"]),
    ("elastic-cuckoo", &[HELD, CALLS, SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    ("hashed-open", &[HELD, CALLS, SWAP, "kernel.cgroup_limit_bytes=1MiB", "kernel.spin_locks=queued"]),
    ("radix", &[LATE_SEGMENTS]),
    ("radix", &[DISSOLVED_SEGMENTS, SWAP, "machine.memory_bytes=3MiB"]),
    ("hashed-open", &[LAST_SEGMENTS, SWAP, "machine.memory_bytes=4MiB", "kernel.threads.kswapd=off"]),
    ("radix-2m", &[LATE_SEGMENTS, SWAP, "kernel.cgroup_limit_bytes=8MiB"]),
    ("nested-radix-cold", &[LATE_SEGMENTS]),
    ("radix", &[r#"kernel.translation_cache={"form":"full-prefix"}"#]),
    (
        "radix",
        &[
            r#"kernel.translation_cache={"form":"full-prefix","per":"mm","entries":4,"ways":2}"#,
            SWAP,
            "kernel.cgroup_limit_bytes=1MiB",
        ],
    ),
    ("radix-5level", &[r#"kernel.translation_cache={"form":"full-prefix","per":"cpu","entries":4}"#]),
    ("radix-2m", &[r#"kernel.translation_cache={"form":"full-prefix","entries":4}"#]),
    ("radix-2m", &[r#"kernel.translation_cache={"form":"mmu-assisted"}"#]),
    (
        "radix-1g",
        &[r#"kernel.translation_cache={"form":"pud-index","per":"mm","entries":4}"#, "machine.memory_bytes=3GiB"],
    ),
    ("radix-5level", &[r#"kernel.translation_cache={"form":"mmu-assisted"}"#, SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    ("nested-radix-cold", &[r#"kernel.translation_cache={"form":"full-prefix","per":"mm","entries":512}"#]),
    ("nested-radix-cold", &[r#"kernel.translation_cache={"form":"as-published","per":"mm","entries":4,"ways":4}"#]),
    ("nested-radix-2m-cold", &[r#"kernel.translation_cache={"form":"mmu-assisted"}"#]),
    ("nested-radix-shadow-cold", &[r#"kernel.translation_cache={"form":"pud-index"}"#]),
    ("radix", &[]),
    ("radix-5level", &[]),
    ("mfoe", MFOE),
    (
        "mfoe",
        &[
            MFOE[0],
            MFOE[1],
            "system.layers.native.fault_engine.limit_percent=40",
            SWAP,
            "kernel.cgroup_limit_bytes=1MiB",
        ],
    ),
    ("mfoe-thp", MFOE_THP),
    ("mfoe-thp", &[MFOE_THP[0], MFOE_THP[1], MFOE_THP[2], SWAP, "kernel.cgroup_limit_bytes=8MiB", KHUGEPAGED]),
    ("mfoe-thp", &[MFOE_THP[0], MFOE_THP[1], MFOE_THP[2], "system.layers.native.fault_engine.form=software"]),
    ("mfoe-software", &[MFOE[0], MFOE[1], SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    (
        "nested-mfoe-cold",
        &[
            "system.layers.guest.fault_engine.period_cycles=20000",
            "system.layers.host.fault_engine.period_cycles=20000",
        ],
    ),
    ("hwdp", SMU),
    ("hwdp", &[SMU[0], SMU[1], SMU[2], SMU[3], SMU[4], SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    (
        "hwdp",
        &[
            SMU[0],
            SMU[1],
            SMU[2],
            SMU[3],
            SMU[4],
            "kernel.storage.drives=3",
            "kernel.storage.chunk_blocks=2",
            "system.layers.native.fault_engine.sockets=2",
            "system.layers.native.fault_engine.pmshr=1",
            "kernel.cgroup_limit_bytes=1MiB",
        ],
    ),
    ("osdp", &[SWAP, "kernel.block_io.completion_by=polling", "kernel.cgroup_limit_bytes=1MiB"]),
    ("radix", &[SWAP, "kernel.cgroup_limit_bytes=1MiB", "kernel.spin_locks=queued"]),
    ("nested-radix-cold", &[SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    (
        "nested-radix-cold",
        &[SWAP, "system.layers.host.memory_bytes=2MiB", "system.layers.guest.memory_bytes=48MiB", "kernel.pcids=1"],
    ),
    (
        "nested-radix-shadow-cold",
        &[SWAP, "system.layers.host.memory_bytes=3MiB", "system.layers.guest.memory_bytes=48MiB"],
    ),
    ("radix", &[SWAP, STORAGE, "kernel.page_cache=cold", "kernel.cgroup_limit_bytes=1MiB"]),
    (
        "radix",
        &[
            r#"system.layers.native.file_folios=["16KiB","64KiB"]"#,
            SWAP,
            STORAGE,
            "kernel.page_cache=cold",
            "kernel.cgroup_limit_bytes=1MiB",
        ],
    ),
    ("radix", &[PTEMAGNET]),
    ("radix", &[PTEMAGNET, SWAP, "kernel.cgroup_limit_bytes=1MiB", "kernel.spin_locks=queued"]),
    ("radix-2m", &[r#"system.layers.native.placement={"kind":"ptemagnet","group_pages":4,"release_above_percent":1}"#]),
    (
        "nested-radix-cold",
        &[
            r#"system.layers.guest.placement={"kind":"ptemagnet"}"#,
            r#"system.layers.host.placement={"kind":"ptemagnet"}"#,
        ],
    ),
    ("radix", &[CA_PAGING]),
    ("radix", &[CA_PAGING, SWAP, "kernel.cgroup_limit_bytes=2MiB"]),
    (
        "radix",
        &[
            r#"system.layers.native.placement={"kind":"ca-paging","max_offsets":2}"#,
            r#"system.layers.native.frame_allocator={"kind":"buddy"}"#,
            "machine.memory_bytes=64MiB",
        ],
    ),
    ("radix-2m", &[CA_PAGING]),
    ("nested-radix-ca-paging-cold", &[]),
    ("hashed-compact", &[CA_PAGING, "system.layers.native.page_table.table_bytes=512KiB"]),
    ("radix", &[EAGER]),
    ("radix", &[EAGER, SWAP, "kernel.cgroup_limit_bytes=2MiB"]),
    ("radix-2m", &[r#"system.layers.native.placement={"kind":"eager","largest_block":"32KiB"}"#]),
    (
        "radix",
        &[r#"system.layers.native.placement={"kind":"eager","stop_above_percent":5}"#, "machine.memory_bytes=32MiB"],
    ),
    ("nested-radix-eager-cold", &[]),
    ("hashed-compact", &[EAGER, "system.layers.native.page_table.table_bytes=1MiB"]),
    ("elastic-cuckoo", &[EAGER]),
    ("radix-2m", &[SWAP, "kernel.cgroup_limit_bytes=4MiB"]),
    ("radix-2m", &[]),
    ("radix", &[r#"system.layers.native.folios=["16KiB","64KiB"]"#, SWAP, "kernel.cgroup_limit_bytes=2MiB"]),
    ("radix-1g", &["machine.memory_bytes=3GiB"]),
    ("radix-page-walk-cache", &[]),
    ("radix-unified-translation-cache", &[]),
    (
        "nested-radix-unified-translation-cache-cold",
        &["machine.mmu_cache.unified.ways=4", "machine.mmu_cache.unified.level2_insertion=2"],
    ),
    ("radix-split-page-table-cache", &[]),
    ("radix-compact", &[SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    ("nested-radix-compact-cold", &["system.layers.guest.page_table.line_entries=9"]),
    ("nested-radix-translation-path-cache-cold", &["machine.mmu_cache.translation_path.entries=2"]),
    ("nested-radix-shared-page-walk-cache-cold", &[]),
    ("radix-coalesced-mmu-cache", &[]),
    (
        "radix-coalesced-mmu-cache",
        &["machine.mmu_cache.coalesced.group_entries=64", "system.layers.native.contiguous_tables=4"],
    ),
    ("radix-2m", &["system.layers.native.contiguous_tables=64", KHUGEPAGED, "machine.memory_bytes=32MiB"]),
    ("nested-radix-cold", &["system.layers.guest.contiguous_tables=2", "system.layers.host.contiguous_tables=8"]),
    ("radix", &["system.layers.native.contiguous_tables=16", SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    ("nested-radix-linear-host-cold", &[]),
    ("nested-radix-shadow-cold", &[]),
    ("nested-radix-inverted-shadow-cold", &["system.layers.host.inverted_shadow_bytes=8KiB"]),
    ("nested-radix-inverted-shadow-cold", &[SWAP, "kernel.cgroup_limit_bytes=1MiB", "kernel.pcids=1"]),
    ("nested-radix-inverted-shadow-cold", &["system.layers.guest.page_size=2M", "system.layers.host.page_size=2M"]),
    ("nested-radix-shadow-cold", &[SWAP, "kernel.cgroup_limit_bytes=1MiB", "kernel.pcids=1"]),
    ("nested-radix-shadow-cold", &["system.layers.guest.page_size=2M", "system.layers.host.page_size=2M"]),
    (
        "two-guests",
        &[
            "system.layers.left.host_mode=shadow",
            "system.layers.left.memory_bytes=256MiB",
            "system.layers.right.memory_bytes=256MiB",
        ],
    ),
    ("two-guests", &["system.layers.host.page_table={\"kind\":\"linear\"}", "system.layers.left.memory_bytes=256MiB"]),
    ("direct-segment", &["system.layers.native.direct_segment_bytes=1MiB"]),
    (
        "direct-segment",
        &["system.layers.native.direct_segment_bytes=128KiB", SWAP, "kernel.cgroup_limit_bytes=1MiB", "kernel.pcids=1"],
    ),
    ("radix-2m", &["system.layers.native.direct_segment_bytes=3MiB"]),
    ("hashed-compact", &["system.layers.native.direct_segment_bytes=256KiB"]),
    (
        "nested-vmm-direct-cold",
        &["system.layers.guest.memory_bytes=512MiB", "system.layers.host.direct_segment_bytes=512MiB"],
    ),
    (
        "nested-guest-direct-cold",
        &["system.layers.guest.memory_bytes=512MiB", "system.layers.guest.direct_segment_bytes=1MiB"],
    ),
    (
        "nested-dual-direct-cold",
        &[
            "system.layers.guest.memory_bytes=512MiB",
            "system.layers.guest.direct_segment_bytes=300KiB",
            // Part of the guest's memory is paged.
            "system.layers.host.direct_segment_bytes=10MiB",
            r#"machine.tlb.nested={"entries":16,"ways":4,"latency_cycles":1}"#,
        ],
    ),
    // Guests that migrate: with a segment, of which a part of their memory is paged, or with pages alone.
    (
        "nested-vmm-direct-cold",
        &["system.layers.guest.memory_bytes=256MiB", "system.layers.host.direct_segment_bytes=2MiB", MIGRATION],
    ),
    (
        "nested-vmm-direct-cold",
        &[
            "system.layers.guest.memory_bytes=256MiB",
            "system.layers.host.direct_segment_bytes=3MiB",
            r#"system.layers.host.page_table={"kind":"hashed-compact","table_bytes":"16MiB"}"#,
            "system.layers.host.mmu_cache=none",
            LATE_MIGRATION,
        ],
    ),
    (
        "nested-dual-direct-cold",
        &[
            "system.layers.guest.memory_bytes=256MiB",
            "system.layers.guest.direct_segment_bytes=300KiB",
            "system.layers.host.direct_segment_bytes=10MiB",
            MIGRATION,
        ],
    ),
    (
        "nested-vmm-direct-cold",
        &[
            "system.layers.guest.memory_bytes=256MiB",
            "system.layers.host.direct_segment_bytes=6MiB",
            "system.layers.host.page_size=2M",
            KHUGEPAGED,
            MIGRATION,
        ],
    ),
    ("nested-radix-2m-cold", &["system.layers.guest.memory_bytes=256MiB", LATE_MIGRATION]),
    ("nested-radix-cold", &[SWAP, "kernel.cgroup_limit_bytes=1MiB", LATE_MIGRATION]),
    (
        "nested-radix-speculative-cold",
        &[r#"system.layers.host.speculative_table={"table_bytes":"64KiB","flush_cycles":20}"#],
    ),
    (
        "two-guests",
        &[
            r#"system.layers.host.speculative_table={"table_bytes":"4KiB","flush_cycles":20}"#,
            "kernel.pcids=2",
            SWAP,
            "kernel.cgroup_limit_bytes=4MiB",
        ],
    ),
    ("do-it-yourself", &[SMALL_REGIONS]),
    ("do-it-yourself", &[SMALL_REGIONS, SWAP, "kernel.cgroup_limit_bytes=1MiB", "kernel.pcids=1"]),
    ("nested-do-it-yourself-cold", &[SMALL_GUEST_REGIONS]),
    ("nested-do-it-yourself", &[SMALL_GUEST_REGIONS, SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    ("nested-do-it-yourself-cold", &[SMALL_GUEST_REGIONS, SWAP, "system.layers.host.page_size=2M", "kernel.pcids=2"]),
    ("nested-radix-cold", &[SMALL_GUEST_REGIONS]),
    ("nested-3", &["system.layers.0.direct_segment_bytes=1MiB", "system.layers.2.direct_segment_bytes=64MiB"]),
    (
        "two-guests",
        &["system.layers.host.direct_segment_bytes=300MiB", "system.layers.right.direct_segment_bytes=2MiB"],
    ),
    ("nested-radix-cold", &[r#"machine.mmu_cache.shared_by_cores={"extra_latency_cycles":4}"#]),
    ("nested-radix-cold", &[]),
    ("nested-radix", &[]),
    ("nested-radix", &[SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    ("nested-radix-shadow", &[SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    ("nested-radix-2m-cold", &[]),
    ("nested-radix-2m", &[]),
    ("nested-mfoe", &["system.layers.host.fault_engine.period_cycles=20000"]),
    ("nested-radix-cold", &[r#"machine.tlb.nested={"entries":16,"ways":4,"latency_cycles":1}"#]),
    (
        "nested-radix-2m-cold",
        &[r#"machine.tlb.nested={"entries":16,"ways":4,"latency_cycles":1}"#, "system.layers.host.page_size=4K"],
    ),
    (
        "nested-radix-2m-cold",
        &[
            r#"machine.tlb.guest={"entries":4,"ways":2,"latency_cycles":1}"#,
            "machine.mmu_cache.of_hosts=false",
            "system.layers.host.page_size=4K",
        ],
    ),
    (
        "nested-radix-thp-cold",
        &[r#"machine.tlb.guest={"entries":16,"ways":4,"latency_cycles":1}"#, SWAP, "kernel.cgroup_limit_bytes=8MiB"],
    ),
    ("nested-3", &[r#"machine.tlb.guest={"entries":16,"ways":4,"latency_cycles":1}"#]),
    ("nested-3", &["kernel.spin_locks=queued"]),
    ("radix", &["kernel.pcids=2", "kernel.idle_tlb=leave"]),
    ("radix-page-walk-cache", &["kernel.pcids=0", "kernel.idle_tlb=interrupt"]),
    ("nested-radix-cold", &["kernel.pcids=1", SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    (
        "hashed-chained",
        &["system.layers.native.page_table.table_bytes=512KiB", "system.layers.native.page_table.exits_per_scan=1"],
    ),
    (
        "hashed-open",
        &[
            "system.layers.native.page_table.table_bytes=512KiB",
            "system.layers.native.page_table.exits_per_scan=1",
            SWAP,
            "kernel.cgroup_limit_bytes=1MiB",
        ],
    ),
    (
        "hashed-clustered",
        &[
            "system.layers.native.page_table.table_bytes=512KiB",
            "system.layers.native.page_table.exits_per_scan=1",
            "kernel.pcids=2",
        ],
    ),
    (
        "hashed-compact",
        &["system.layers.native.page_table.table_bytes=512KiB", "system.layers.native.page_table.exits_per_scan=1"],
    ),
    (
        "hashed-compact",
        &[
            r#"system.layers.native.page_table={"kind":"hashed-compact","seed":3,"table_bytes":"1MiB","exits_per_scan":3}"#,
            SWAP,
            STORAGE,
            "kernel.page_cache=cold",
            "kernel.cgroup_limit_bytes=1MiB",
        ],
    ),
    (
        "nested-hashed-compact-cold",
        &[
            "system.layers.guest.page_table.table_bytes=4MiB",
            "system.layers.host.page_table.table_bytes=2MiB",
            "system.layers.guest.page_table.exits_per_scan=2",
        ],
    ),
    (
        "nested-radix-cold",
        &[
            r#"system.layers.host={"name":"host","page_table":{"kind":"hashed-open"},"mmu_cache":"none","page_size":"4K"}"#,
        ],
    ),
    (
        "hashed-power",
        &[
            "system.layers.native.page_table.table_bytes=512KiB",
            "system.layers.native.page_table.exits_per_scan=1",
            SWAP,
            "kernel.cgroup_limit_bytes=1MiB",
        ],
    ),
    (
        "nested-hashed-compact-cold",
        &[
            r#"system.layers.guest.page_table={"kind":"hashed-power","table_bytes":"4MiB","exits_per_scan":2}"#,
            r#"system.layers.host.page_table={"kind":"hashed-power"}"#,
        ],
    ),
    ("flattened", &["kernel.spin_locks=queued"]),
    ("flattened", &["system.layers.native.page_table.merge=l3l2", SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    ("flattened", &["machine.memory_bytes=128MiB", "system.layers.native.mmu_cache=unified"]),
    ("nested-flattened-cold", &["system.layers.guest.page_table.merge=l2l1"]),
    ("elastic-cuckoo", &["system.layers.native.page_table.way_entries=64", "kernel.spin_locks=queued"]),
    (
        "elastic-cuckoo",
        &[
            r#"system.layers.native.page_table={"kind":"elastic-cuckoo","way_entries":64,"max_load":0.3,"min_load":0.1,"seed":5}"#,
            SWAP,
            STORAGE,
            "kernel.page_cache=cold",
            "kernel.cgroup_limit_bytes=1MiB",
        ],
    ),
    ("nested-elastic-cuckoo-cold", &["system.layers.guest.page_table.way_entries=64"]),
    (
        "hashed-open-2m",
        &["system.layers.native.page_table.table_bytes=1MiB", "system.layers.native.page_table.exits_per_scan=1"],
    ),
    (
        "hashed-compact-thp",
        &["system.layers.native.page_table.table_bytes=1MiB", SWAP, "kernel.cgroup_limit_bytes=8MiB"],
    ),
    (
        "hashed-power",
        &[
            r#"system.layers.native.page_table={"kind":"hashed-power","table_bytes":"32KiB","full_groups":"evict","exits_per_scan":1}"#,
            SWAP,
            "kernel.cgroup_limit_bytes=1MiB",
        ],
    ),
    (
        "hashed-power-segments",
        &[
            "system.layers.native.page_table.table_bytes=512KiB",
            "system.layers.native.page_table.exits_per_scan=1",
            "machine.mmu_cache.segment_lookaside={\"entries\":3,\"fixed\":1}",
            SWAP,
            "kernel.cgroup_limit_bytes=1MiB",
        ],
    ),
    (
        "hashed-power-2m",
        &["system.layers.native.page_table.table_bytes=4MiB", "system.layers.native.page_table.exits_per_scan=1"],
    ),
    (
        "hashed-power-thp",
        &[
            r#"system.layers.native.page_table={"kind":"hashed-power","table_bytes":"64KiB","full_groups":"evict","exits_per_scan":1,"segments":{"bytes":"1TiB"},"sizes":{"order":["2M","4K"]}}"#,
            SWAP,
            "kernel.cgroup_limit_bytes=8MiB",
        ],
    ),
    (
        "nested-hashed-compact-cold",
        &[
            r#"system.layers.guest={"name":"guest","host":"host","page_table":{"kind":"hashed-power","table_bytes":"4MiB","exits_per_scan":2,"segments":{}},"mmu_cache":"segment-lookaside-buffer","page_size":"4K"}"#,
            r#"system.layers.host={"name":"host","page_table":{"kind":"hashed-power","segments":{},"sizes":{"order":["4K","2M"]}},"mmu_cache":"segment-lookaside-buffer","page_size":"2M"}"#,
        ],
    ),
    (
        "hashed-chained-software",
        &["system.layers.native.page_table.table_bytes=64KiB", SWAP, "kernel.cgroup_limit_bytes=1MiB"],
    ),
    ("hashed-power-segments", &["system.layers.native.page_table.segments.shared=true"]),
    (
        "hashed-power-segments",
        &[
            "system.layers.native.page_table.segments.shared=true",
            SWAP,
            STORAGE,
            "kernel.page_cache=cold",
            "kernel.cgroup_limit_bytes=1MiB",
        ],
    ),
    ("hashed-chained", &["system.layers.native.page_table.pinned={}", SWAP, "kernel.cgroup_limit_bytes=1MiB"]),
    (
        "nested-hashed-compact-cold",
        &[
            "system.layers.guest.page_table.pinned={}",
            r#"system.layers.host.page_table.pinned={"entries":1,"entry_bytes":"1MiB","miss_cycles":50}"#,
        ],
    ),
    ("hashed-chained-thp", &["system.layers.native.page_table.table_bytes=1MiB", SWAP, STORAGE]),
    ("elastic-cuckoo-thp", &["system.layers.native.page_table.way_entries=64", SWAP, "kernel.cgroup_limit_bytes=8MiB"]),
    ("nested-hashed-compact-thp-cold", &["system.layers.guest.page_table.exits_per_scan=2"]),
    ("nested-elastic-cuckoo-thp-cold", &["system.layers.guest.page_table.way_entries=64"]),
    (
        "nested-radix-shadow-cold",
        &[
            r#"system.layers.guest={"name":"guest","host":"host","host_mode":"shadow","page_table":{"kind":"elastic-cuckoo"},"mmu_cache":"none","page_size":"4K"}"#,
        ],
    ),
    ("two-guests", &["system.layers.left.memory_bytes=256MiB", "system.layers.right.memory_bytes=256MiB"]),
];
