//! What the configuration says of khugepaged. It lies below the kernels, so this file imports nothing of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::error::{EngineError, between};

/// What khugepaged does (`/sys/kernel/mm/transparent_hugepage/khugepaged`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KhugepagedConfig {
    /// Cycles between two scans (`scan_sleep_millisecs`, 10 s in Linux).
    pub scan_sleep_cycles: u64,
    /// 4 KiB pages that it looks at each time (4096 in Linux).
    pub pages_to_scan: u32,
    /// Pages of 512 that may be missing (511 in Linux).
    pub max_ptes_none: u32,
}

impl KhugepagedConfig {
    /// Refuses impossible parameters; `key` is the part of the configuration that they are in.
    pub fn validate(&self, key: &str) -> Result<(), EngineError> {
        between(&format!("{key}.max_ptes_none"), self.max_ptes_none, 0, 511)?;
        between(&format!("{key}.pages_to_scan"), self.pages_to_scan, 1, u32::MAX)?;
        if self.scan_sleep_cycles == 0 {
            let what = "0 is not possible; allowed is 1 and more";
            return Err(EngineError::config(format!("{key}.scan_sleep_cycles"), what));
        }
        Ok(())
    }
}
