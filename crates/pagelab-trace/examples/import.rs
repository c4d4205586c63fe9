//! Imports a trace of another tool, without Python, for profilers: `import INPUT OUTPUT.trace`.

use std::ops::ControlFlow;
use std::process::ExitCode;

use pagelab_trace::import::{ImportFormat, ImportOptions, import};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [input, output] = arguments.as_slice() else {
        eprintln!("usage: import INPUT OUTPUT.trace");
        return ExitCode::from(2);
    };
    let progress = &mut |_| ControlFlow::Continue(());
    match import(input, output, ImportFormat::Auto, &ImportOptions::default(), progress) {
        Ok(summary) => {
            println!("{} records, {} accesses, {} bytes", summary.records, summary.accesses, summary.size_bytes);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("import: {error}");
            ExitCode::FAILURE
        }
    }
}
