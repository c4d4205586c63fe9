//! Records a program: `record [-n MAX_ACCESSES] SOURCES CACHE OUTPUT.trace PROGRAM [ARGUMENTS…]`, with the tool's C
//! sources in SOURCES (`capture/valgrind`) and compiled tools kept in CACHE. If both are `-`, by single steps.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pagelab_trace::record::{Method, Recording, prepare_tool};

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut max_accesses = None;
    if arguments.first().is_some_and(|a| a == "-n") && arguments.len() > 1 {
        max_accesses = arguments[1].to_str().and_then(|n| n.parse().ok());
        arguments.drain(..2);
    }
    let [sources, cache, output, ..] = arguments.as_slice() else {
        eprintln!("usage: record [-n MAX_ACCESSES] SOURCES CACHE OUTPUT.trace PROGRAM [ARGUMENTS…]");
        return ExitCode::from(2);
    };
    let output = PathBuf::from(output);
    let method = if sources == "-" && cache == "-" {
        Ok(Method::SingleSteps)
    } else {
        prepare_tool(Path::new(sources), Path::new(cache)).map(|tool_dir| Method::Valgrind { tool_dir })
    };
    let result = method.and_then(|method| {
        let mut recording = Recording::by(method, arguments[3..].to_vec());
        recording.max_accesses = max_accesses;
        recording.run(&output)
    });
    match result {
        Ok((summary, trace)) => {
            eprintln!(
                "{} accesses, {} instructions, {} processes, {} threads, {:.2} bytes an access, {:.1} s, exit {}",
                summary.accesses,
                trace.accesses.instructions,
                summary.processes,
                summary.threads,
                trace.size_bytes as f64 / summary.accesses.max(1) as f64,
                summary.elapsed.as_secs_f64(),
                summary.exit_code,
            );
            for loss in &summary.losses {
                eprintln!("incomplete: {loss}");
            }
            for note in &summary.notes {
                eprintln!("note: {note}");
            }
            ExitCode::from(u8::try_from(summary.exit_code).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("record: {error}");
            ExitCode::FAILURE
        }
    }
}
