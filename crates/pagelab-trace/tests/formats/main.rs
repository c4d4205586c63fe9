//! pagelab's trace format, whole and damaged, and the formats that are imported.

mod format_damage;
mod format_round_trip;
mod import;
mod import_archives;
mod import_layouts;
mod import_perf_data;
mod replace_advice;
mod support;
