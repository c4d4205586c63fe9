//! Presets: the TOML files of the repository's `presets/` folder, built into the library.

/// Kind of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresetKind {
    /// Cores, TLBs, MMU caches, data caches and memory.
    Machine,
    /// Layers with their page tables and placement policies.
    System,
    /// Costs of a kernel's code paths, and its behaviour under memory pressure.
    Kernel,
    /// A device for swap and files.
    Drive,
    /// A core that overlaps accesses.
    Window,
}

impl PresetKind {
    /// Its name in configuration keys: `machine`, `system`, `kernel`, `drive` or `window`.
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
    /// Its kind.
    pub kind: PresetKind,
    /// Its name on the command line: the name of its file without `.toml`, plus `-cold` for a [cold form](Self::warm).
    pub name: &'static str,
    /// The preset of which this is the cold form: the same virtual machine, just booted.
    pub warm: Option<&'static str>,
    /// Contents of its file.
    toml: &'static str,
}

impl Preset {
    /// The text of its TOML file; for a cold form, the text that such a file would have.
    pub fn text(&self) -> String {
        if self.warm.is_none() { self.toml.to_owned() } else { self.table().to_string() }
    }

    /// Its keys. A cold form has the keys of its file, but its host allocates all guest memory on demand.
    pub fn table(&self) -> toml::Table {
        let mut table: toml::Table = self.toml.parse().expect("built-in presets are valid TOML");
        if self.warm.is_some() {
            make_cold(&mut table, self.name);
        }
        table
    }
}

/// Turns a system with warmed-up guests into one whose guests have just booted.
fn make_cold(table: &mut toml::Table, name: &str) {
    table["name"] = name.into();
    let described = table["description"].as_str().expect("presets are described");
    table["description"] = format!("{described}; just booted, so first touches fault in the host, too").into();
    for layer in table["layers"].as_array_mut().expect("systems have layers") {
        let layer = layer.as_table_mut().expect("a layer is a table");
        layer.remove("backing");
    }
}

macro_rules! presets {
    (
        $($kind:ident $folder:literal: $($name:literal),* $(,)?;)*
        @guests: $($guest:literal),* $(,)?;
    ) => {
        const PRESETS: &[Preset] = &[
            $($(Preset {
                kind: PresetKind::$kind,
                name: $name,
                warm: None,
                toml: include_str!(concat!("../../../../presets/", $folder, "/", $name, ".toml")),
            },)*)*
            $(Preset {
                kind: PresetKind::System,
                name: $guest,
                warm: None,
                toml: include_str!(concat!("../../../../presets/", "systems", "/", $guest, ".toml")),
            },
            Preset {
                kind: PresetKind::System,
                name: concat!($guest, "-cold"),
                warm: Some($guest),
                toml: include_str!(concat!("../../../../presets/", "systems", "/", $guest, ".toml")),
            },)*
        ];
    };
}

// Systems with guests are listed separately: each defines two presets, NAME and NAME-cold.
presets! {
    Machine "machines": "kabylake-7700hq", "sandybridge-e5-2420", "xeon-e-2136", "broadwell-e5-2640v3",
        "xeon-silver-4114", "gem5-timing", "epyc-7763", "epyc-9654", "ryzen-9950x", "xeon-platinum-8480",
        "core-ultra-258v";
    System "systems": "radix", "radix-no-mmu-cache", "radix-perfect-mmu-cache", "radix-page-walk-cache", "radix-2m",
        "radix-thp", "radix-thp-madvise", "radix-1g", "radix-5level", "radix-unified-translation-cache",
        "radix-split-page-table-cache", "radix-translation-path-cache", "radix-coalesced-mmu-cache", "hashed-chained", "hashed-open", "hashed-clustered", "hashed-compact",
        "hashed-open-2m", "hashed-compact-thp", "hashed-chained-thp", "hashed-chained-software", "elastic-cuckoo", "elastic-cuckoo-thp", "flattened", "radix-compact", "hashed-power", "hashed-power-segments", "hashed-power-2m", "hashed-power-thp", "direct-segment", "do-it-yourself", "radix-ptemagnet", "radix-mthp32k",
        "radix-eager", "radix-ca-paging", "radix-ptemagnet-traced", "mfoe", "mfoe-software", "mfoe-software-traced",
        "mfoe-call", "mfoe-thp", "osdp", "hwdp",
        "radix-colt-sa", "radix-16k-entries", "radix-large-tlb", "radix-victim-tlb",
        "radix-pom-tlb", "radix-victima", "radix-next-page", "radix-stp",
        "radix-distance", "radix-h2p", "radix-asp", "radix-masp",
        "radix-recency", "radix-sbfp", "radix-atp", "radix-morrigan",
        "radix-tempo", "radix-keep-tables", "radix-revelator", "radix-spec-tlb",
        "radix-spot";
    Kernel "kernels": "linux-6.12", "linux-4.19", "linux-4.9", "linux-4.19-stc", "linux-4.19-stc-as-published",
        "linux-6.12-traced";
    Drive "drives": "z-ssd-sz985", "cxl-memory", "tlc-flash", "disk";
    Window "windows": "skylake", "haswell", "sandy-bridge", "zen-4", "zen-3", "zen-5", "golden-cove", "lion-cove";
    @guests: "nested-radix", "nested-radix-no-mmu-cache", "nested-radix-perfect-mmu-cache", "nested-radix-2m",
        "nested-radix-unified-translation-cache", "nested-radix-split-page-table-cache",
        "nested-radix-translation-path-cache", "nested-radix-shared-page-walk-cache", "nested-radix-linear-host",
        "nested-radix-shadow", "nested-hashed-compact", "nested-hashed-compact-thp", "nested-elastic-cuckoo",
        "nested-elastic-cuckoo-thp", "nested-flattened", "nested-radix-compact",
        "nested-vmm-direct", "nested-guest-direct", "nested-dual-direct", "nested-do-it-yourself", "nested-radix-speculative", "nested-radix-inverted-shadow",
        "nested-radix-ptemagnet", "nested-radix-mthp32k", "nested-radix-thp", "nested-radix-thp-madvise",
        "nested-radix-two-vms", "nested-radix-four-vms", "nested-radix-eager", "nested-radix-ca-paging", "nested-radix-ptemagnet-traced", "nested-mfoe", "nested-radix-large-tlb", "nested-radix-pom-tlb",
        "nested-radix-victima";
}

/// All presets of a kind, in the order of `presets!` above: the first is the default.
pub fn presets(kind: PresetKind) -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().filter(move |preset| preset.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_form_differs_from_its_preset_only_in_the_backing_of_its_guests() {
        let find = |name: &str| presets(PresetKind::System).find(|preset| preset.name == name).unwrap();
        let cold: Vec<_> = presets(PresetKind::System).filter(|preset| preset.warm.is_some()).collect();
        for cold in &cold {
            let (mut cold, mut warm) = (cold.table(), find(cold.warm.unwrap()).table());
            assert_ne!(cold["description"], warm["description"]);
            cold.remove("description");
            warm.remove("description");
            assert_eq!(cold["name"].as_str().unwrap(), format!("{}-cold", warm["name"].as_str().unwrap()));
            warm.insert("name".into(), cold["name"].clone());
            for layer in warm["layers"].as_array_mut().unwrap() {
                let layer = layer.as_table_mut().unwrap();
                let backing = layer.remove("backing");
                assert_eq!(backing.is_some(), layer.contains_key("host"), "only guests are warm");
                assert!(backing.is_none_or(|backing| backing.as_str() == Some("present")));
            }
            assert_eq!(cold, warm);
        }
        // Every system with guests has both forms.
        for preset in presets(PresetKind::System).filter(|preset| preset.warm.is_none()) {
            let table = preset.table();
            // One that extends another may leave its layers to that.
            let layers = table.get("layers").and_then(toml::Value::as_array);
            let hosted = layers.is_some_and(|layers| layers.iter().any(|layer| layer.get("host").is_some()));
            assert_eq!(hosted, cold.iter().any(|cold| cold.warm == Some(preset.name)), "{}", preset.name);
        }
    }
}
