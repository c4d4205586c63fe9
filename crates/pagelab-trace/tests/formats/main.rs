//! pagelab's trace format, whole and damaged, and the formats that are imported.

mod format_damage;
mod format_round_trip;
mod import;
mod import_layouts;
mod replace_advice;
mod support;
