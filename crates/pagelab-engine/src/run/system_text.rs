//! The text of a system, `SYSTEM[@KERNEL][{KEY=VALUE,…}]`, and the label that distinguishes it from others of its run.

use std::path::Path;

use pagelab_base::error::EngineError;

/// The parts of a system's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemText<'t> {
    /// Name of a preset or path of a TOML file.
    pub system: &'t str,
    /// The kernel after `@`.
    pub kernel: Option<&'t str>,
    /// The `key=value` overrides in braces, for this system alone.
    pub set: Vec<&'t str>,
}

impl<'t> SystemText<'t> {
    /// Parses the text. The name of an existing file may itself contain `@` or braces.
    ///
    /// Errors: braces that do not end the text, a bracket or quotation mark that is not closed, a setting without `=`.
    pub fn parse(text: &'t str) -> Result<Self, EngineError> {
        let wrong = |what: String| EngineError::config("systems", format!("`{text}`: {what}"));
        let (name, inside) = match text.split_once('{') {
            Some((name, rest)) if !Path::new(text).exists() => match rest.trim_end().strip_suffix('}') {
                Some(inside) => (name.trim_end(), Some(inside)),
                None => return Err(wrong("write the settings last: SYSTEM@KERNEL{KEY=VALUE,…}".to_owned())),
            },
            _ => (text, None),
        };
        let set = inside.map_or(Ok(Vec::new()), |inside| {
            split(inside).ok_or_else(|| wrong("a bracket or quotation mark in its settings is not closed".to_owned()))
        })?;
        if let Some(setting) = set.iter().find(|setting| !setting.contains('=')) {
            return Err(wrong(format!("`{setting}` is not a setting; write SYSTEM{{KEY=VALUE,…}}")));
        }
        let (system, kernel) = match name.rsplit_once('@') {
            Some((system, kernel)) if !Path::new(name).exists() => (system, Some(kernel)),
            _ => (name, None),
        };
        Ok(Self { system, kernel, set })
    }
}

/// Splits at commas outside brackets and JSON strings; none if one of these is not closed.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut open, mut quoted, mut escaped) = (Vec::new(), false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' if open.pop() != Some(character) => return None,
            ',' if open.is_empty() => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    let parts = parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect();
    (open.is_empty() && !quoted).then_some(parts)
}

/// A label per system of a run: its name and its own settings. Settings are shortened to the last part of their keys,
/// unless two labels would then be equal; equal systems are numbered.
pub fn labels(systems: &[(&str, &[&str])]) -> Vec<String> {
    let write = |name: &str, settings: Vec<&str>| match settings[..] {
        [] => name.to_owned(),
        _ => format!("{name}{{{}}}", settings.join(",")),
    };
    let short: Vec<String> =
        systems.iter().map(|(name, set)| write(name, set.iter().copied().map(last_part).collect())).collect();
    let several = |labels: &[String], label: &String| labels.iter().filter(|other| *other == label).count() > 1;
    let labels: Vec<String> = (systems.iter().zip(&short))
        .map(|((name, set), label)| if several(&short, label) { write(name, set.to_vec()) } else { label.clone() })
        .collect();
    let number = |index: usize| labels[..=index].iter().filter(|other| **other == labels[index]).count();
    (labels.iter().enumerate())
        .map(
            |(index, label)| {
                if several(&labels, label) { format!("{label} #{}", number(index)) } else { label.clone() }
            },
        )
        .collect()
}

/// `table_bytes=1GiB` of `system.layers.native.page_table.table_bytes=1GiB`.
fn last_part(setting: &str) -> &str {
    let key = setting.find('=').unwrap_or(setting.len());
    setting[..key].rfind('.').map_or(setting, |dot| &setting[dot + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (&str, Option<&str>, Vec<&str>) {
        let SystemText { system, kernel, set } = SystemText::parse(text).unwrap();
        (system, kernel, set)
    }

    #[test]
    fn a_system_has_a_kernel_and_settings_of_its_own() {
        assert_eq!(parsed("radix"), ("radix", None, vec![]));
        assert_eq!(parsed("radix@linux-4.9"), ("radix", Some("linux-4.9"), vec![]));
        assert_eq!(parsed("radix{}"), ("radix", None, vec![]));
        assert_eq!(parsed("radix {a.b=1}"), ("radix", None, vec!["a.b=1"]));
        assert_eq!(parsed("radix@linux-4.9{a=1, b=x@y}"), ("radix", Some("linux-4.9"), vec!["a=1", "b=x@y"]));
    }

    #[test]
    fn commas_inside_json_do_not_separate() {
        let text = r#"radix{a={"x":[1,2],"y":"},{"},b=[3,4],c="\",",d=5}"#;
        assert_eq!(parsed(text).2, [r#"a={"x":[1,2],"y":"},{"}"#, "b=[3,4]", r#"c="\",""#, "d=5"]);
    }

    #[test]
    fn malformed_system_texts_are_refused() {
        for (text, why) in [
            ("radix{a=1}@linux-4.9", "write the settings last"),
            ("radix{a=1", "write the settings last"),
            ("radix{a={}", "is not closed"),
            ("radix{a=[1}", "is not closed"),
            ("radix{a=1}}", "is not closed"),
            (r#"radix{a="1}"#, "is not closed"),
            ("radix{fast}", "`fast` is not a setting"),
        ] {
            let error = SystemText::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("systems: `{text}`: ")) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn labels_distinguish_systems() {
        let labels_of = |systems: &[(&str, &[&str])]| labels(systems);
        assert_eq!(labels_of(&[("radix", &[]), ("radix", &["a.b=1"])]), ["radix", "radix{b=1}"]);
        assert_eq!(labels_of(&[("radix", &["a.b=1", "c=x.y"])]), ["radix{b=1,c=x.y}"]);
        assert_eq!(labels_of(&[("r", &["a.b=1"]), ("r", &["c.b=1"])]), ["r{a.b=1}", "r{c.b=1}"]);
        assert_eq!(labels_of(&[("r", &[]), ("s", &[]), ("r", &[])]), ["r #1", "s", "r #2"]);
    }
}
