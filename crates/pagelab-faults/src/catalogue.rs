//! What there is to choose from, as JSON.

use crate::{mfoe, process};

/// What [`list_json`] lists.
pub const KINDS: &[(&str, &str)] = &[
    ("fault-processes", "synthetic processes of page faults in time, with their parameters (pagelab model)"),
    ("fault-models", "models that run on the times of page faults, with their parameters (pagelab model)"),
];

/// Describes all of a kind of [`KINDS`]; none if it is no such kind.
pub fn list_json(kind: &str) -> Option<String> {
    match kind {
        "fault-processes" => serde_json::to_string(&process::list()).ok(),
        "fault-models" => {
            let model = serde_json::json!({
                "name": "mfoe",
                "description": "minor-fault offload engine: hardware serves faults from rings that the kernel refills",
                "parameters": mfoe::parameters::list(),
            });
            Some(serde_json::json!([model]).to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_listed_with_names() {
        for (kind, _) in KINDS {
            let json: serde_json::Value = serde_json::from_str(&list_json(kind).unwrap()).unwrap();
            assert!(json.as_array().unwrap().iter().all(|entry| entry["name"].is_string()), "{kind}");
        }
        assert_eq!(list_json("systems"), None);
    }
}
