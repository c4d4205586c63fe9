//! The available fault processes and models, as JSON.

use crate::{mfoe, process};

/// The kinds that [`list_json`] can list.
pub const KINDS: &[(&str, &str)] = &[
    ("fault-processes", "synthetic processes of page faults in time, with their parameters (pagelab model)"),
    ("fault-models", "models that run on the times of page faults, with their parameters (pagelab model)"),
];

/// Describes everything of one of the [`KINDS`]; `None` for another kind.
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
