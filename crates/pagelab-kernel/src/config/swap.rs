//! Configuration of the swap area: its size and its device.

use std::borrow::Cow;

use pagelab_trace::quantity::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use pagelab_base::choice::{Part, add_required};
use pagelab_hardware::device::DeviceConfig;

/// A swap area and its device; the keys of the device are next to `size_bytes`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SwapConfig {
    /// Size of the swap area in bytes; a page takes 4 KiB.
    pub size_bytes: Bytes,
    /// The device of the area.
    #[serde(flatten)]
    pub device: DeviceConfig,
}

impl SwapConfig {
    /// An example of 8 GiB, in the syntax of `--set`.
    pub fn example() -> String {
        let device = DeviceConfig::samples().swap_remove(0);
        serde_json::to_string(&Self { size_bytes: Bytes(8 << 30), device }).expect("parameters serialise")
    }
}

impl<'de> Deserialize<'de> for SwapConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut part = Part::deserialize(from)?;
        let size_bytes = part.take("size_bytes").map_err(D::Error::custom)?;
        let size_bytes = size_bytes.ok_or_else(|| D::Error::missing_field("size_bytes"))?;
        let device = DeviceConfig::from_part(part).map_err(D::Error::custom)?;
        Ok(Self { size_bytes, device })
    }
}

impl JsonSchema for SwapConfig {
    fn schema_name() -> Cow<'static, str> {
        "SwapConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = DeviceConfig::json_schema(generator);
        add_required(&mut schema, "size_bytes", &generator.subschema_for::<Bytes>());
        schema.insert("description".to_owned(), "A swap area and the device that it is on.".into());
        schema
    }
}
