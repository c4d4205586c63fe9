//! Call stacks of a trace: the contexts in which a program's code was executed, as a tree, and the names of code that
//! is in no file.

use std::sync::Arc;

/// A call in the context of another call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Number of the context in which the call was made; none for the root, context 0.
    pub parent: Option<u32>,
    /// The process that first made the call.
    pub process: u32,
    /// The file that contains the call instruction; none for generated code.
    pub file: Option<Arc<str>>,
    /// The last byte of the call instruction: its offset in the file, or its address without a file.
    pub offset: u64,
}

/// Code that a program generated and named in `/tmp/perf-PID.map`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedCode {
    /// The process.
    pub process: u32,
    /// The first byte.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The program's name for it.
    pub name: Arc<str>,
}

/// All contexts of a trace, and the names of generated code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallStacks {
    /// By number; parents come before their children.
    pub contexts: Vec<Context>,
    /// Sorted by process and address.
    pub generated: Vec<GeneratedCode>,
}

impl CallStacks {
    /// The name of the generated code at an address.
    pub fn name_of(&self, process: u32, address: u64) -> Option<&Arc<str>> {
        let behind = self.generated.partition_point(|code| (code.process, code.start) <= (process, address));
        let code = &self.generated[behind.checked_sub(1)?];
        (code.process == process && address - code.start < code.len).then_some(&code.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_code_is_found_by_process_and_address() {
        let code = |process, start, len, name: &str| GeneratedCode { process, start, len, name: name.into() };
        let generated = vec![code(0, 100, 10, "a"), code(0, 110, 5, "b"), code(2, 50, 10, "c")];
        let stacks = CallStacks { contexts: Vec::new(), generated };
        let name = |process, address| stacks.name_of(process, address).map(|name| &**name);
        assert_eq!((name(0, 99), name(0, 100), name(0, 109)), (None, Some("a"), Some("a")));
        assert_eq!((name(0, 110), name(0, 115), name(1, 100)), (Some("b"), None, None));
        assert_eq!((name(2, 49), name(2, 59), name(2, 60)), (None, Some("c"), None));
    }
}
