//! What can be named in requests: presets, designs and workloads as lists, and the schemas of requests and
//! configurations.

use pagelab_trace::{suggestion::nearest, workload};
use serde::Serialize;

use crate::config::{PresetKind, presets};
use crate::run::request::Request;
use pagelab_base::error::EngineError;
use pagelab_kernel::placement::PlacementConfig;
use pagelab_run::config::Config;
use pagelab_translate::translation_unit::TlbPrefetchConfig;

/// One row of a list of presets or designs.
#[derive(Serialize)]
struct Row {
    name: String,
    description: String,
    /// The other preset, if this is its cold form.
    #[serde(skip_serializing_if = "Option::is_none")]
    cold_form_of: Option<&'static str>,
    /// Of machines: what the machine was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    /// Of machines: the year in which the processor was launched, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    year: Option<i64>,
}

impl Row {
    fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), cold_form_of: None, class: None, year: None }
    }
}

/// What [`list_json`] lists.
const KINDS: &[(&str, &str)] = &[
    ("workloads", "synthetic programs, with their parameters"),
    ("systems", "presets of page tables, MMU caches and page sizes, native and in virtual machines (-s)"),
    ("machines", "presets of cores, TLBs, caches and memory (-m)"),
    ("kernels", "presets of the work and cost of a kernel's page faults (-k, or SYSTEM@KERNEL)"),
    ("windows", "presets of cores that overlap accesses (machine.core=NAME)"),
    ("drives", "presets of devices for swap and files (kernel.storage=NAME, or a key `drive` of kernel.swap)"),
    ("page-tables", "designs of page tables (system.layers.NAME.page_table)"),
    ("mmu-caches", "designs of MMU caches (system.layers.NAME.mmu_cache)"),
    ("fault-engines", "hardware that handles page faults without the kernel (system.layers.NAME.fault_engine)"),
    ("placements", "ways of choosing frames (system.layers.NAME.placement)"),
    ("cores", "core models: cost of instructions and stalls for latencies (machine.core.model)"),
    ("prefetchers", "prefetchers of the data caches (machine.prefetch.l1.NAME, likewise l2 and l3) and of the TLBs"),
    ("tlb-organisations", "what an entry of a TLB array covers (machine.tlb.LEVEL.N.organisation)"),
    ("speculations", "how frames are guessed before walks (machine.tlb.speculation)"),
    ("translation-units", "hardware that caches translations in addition to the TLBs (machine.tlb)"),
    ("devices", "designs of devices for swap and files (kernel.swap.model, kernel.storage.model)"),
    ("kernel-threads", "kernel threads that run in the background (kernel.threads.NAME)"),
];

/// Describes all entries of one of the `KINDS`, as JSON. The kind `kinds` lists the kinds themselves, plus `others`,
/// which the caller can list.
pub fn list_json(kind: &str, others: &[(&str, &str)]) -> Result<String, EngineError> {
    let presets_of = |kind: PresetKind| {
        presets(kind)
            .map(|preset| {
                let table = preset.table();
                let description = table["description"].as_str().expect("presets are described").to_owned();
                Row {
                    name: preset.name.to_owned(),
                    description,
                    cold_form_of: preset.warm,
                    class: table.get("class").and_then(|class| Some(class.as_str()?.to_owned())),
                    year: table.get("year").and_then(toml::Value::as_integer),
                }
            })
            .collect::<Vec<_>>()
    };
    let rows =
        |rows: &[(&str, &str)]| rows.iter().map(|&(name, description)| Row::new(name, description)).collect::<Vec<_>>();
    let list = match kind {
        "kinds" => rows(&[KINDS, others].concat()),
        "workloads" => return Ok(serde_json::to_string(&workload::list()).expect("documentation serialises")),
        "machines" => presets_of(PresetKind::Machine),
        "systems" => presets_of(PresetKind::System),
        "kernels" => presets_of(PresetKind::Kernel),
        "drives" => presets_of(PresetKind::Drive),
        "windows" => presets_of(PresetKind::Window),
        "page-tables" => rows(pagelab_tables::page_table::DESIGNS),
        "mmu-caches" => rows(pagelab_tables::mmu_cache::DESIGNS),
        "cores" => rows(pagelab_hardware::core_model::DESIGNS),
        "prefetchers" => rows(&[pagelab_hardware::cache::prefetch::DESIGNS, TlbPrefetchConfig::DESIGNS].concat()),
        "tlb-organisations" => rows(pagelab_translate::tlb_organisation::DESIGNS),
        "speculations" => rows(pagelab_translate::speculation::DESIGNS),
        "translation-units" => rows(pagelab_translate::translation_unit::DESIGNS),
        "devices" => rows(pagelab_hardware::device::DESIGNS),
        "kernel-threads" => rows(pagelab_kernel::threads::config::THREADS),
        "fault-engines" => rows(pagelab_kernel::fault_engine::config::DESIGNS),
        "placements" => {
            let designs = PlacementConfig::designs().into_iter();
            designs.map(|(name, about)| Row::new(name, about)).collect()
        }
        _ => {
            let known: Vec<&str> = KINDS.iter().chain(others).map(|(name, _)| *name).collect();
            let meant =
                nearest(kind, known.iter().copied()).map_or(String::new(), |near| format!("did you mean {near}? "));
            let what = format!("`{kind}` cannot be listed; {meant}there are {}", known.join(", "));
            return Err(EngineError::config("list", what));
        }
    };
    Ok(serde_json::to_string(&list).expect("rows serialise"))
}

/// JSON schema of a [`Request`].
pub fn request_schema_json() -> String {
    serde_json::to_string(&schemars::schema_for!(Request)).expect("a schema serialises")
}

/// JSON schema of the configuration.
pub fn schema_json() -> String {
    serde_json::to_string(&schemars::schema_for!(Config)).expect("a schema serialises")
}
