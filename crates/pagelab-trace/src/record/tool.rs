//! Builds the Valgrind tool and the folder from which Valgrind loads it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{program, valgrind_limits};
use crate::TraceError;

/// Name of the tool, as in `--tool=`.
pub(super) const NAME: &str = "pagelab";
const PLATFORM: &str = "amd64-linux";
const INSTALL_HINT: &str = "install Debian's valgrind package (apt-get install valgrind)";

/// Where Valgrind is installed, if not where its launcher is.
const PREFIXES: [&str; 2] = ["/usr", "/usr/local"];
/// Folders below a prefix: of the headers for tools, of the static libraries, and of the files that Valgrind needs at
/// run time.
const INCLUDE_FOLDERS: [&str; 1] = ["include/valgrind"];
const LIBRARY_FOLDERS: [&str; 3] = ["lib/x86_64-linux-gnu/valgrind", "lib64/valgrind", "lib/valgrind"];
const RUN_TIME_FOLDERS: [&str; 4] =
    ["libexec/valgrind", "lib/x86_64-linux-gnu/valgrind", "lib64/valgrind", "lib/valgrind"];

const COMPILE: [&str; 14] = [
    "-m64",
    "-O2",
    "-fno-stack-protector",
    "-fno-strict-aliasing",
    "-fno-builtin",
    "-fno-pie",
    "-no-pie",
    "-w",
    "-Werror=implicit-function-declaration",
    "-DVGA_amd64=1",
    "-DVGO_linux=1",
    "-DVGP_amd64_linux=1",
    "-DVGPV_amd64_linux_vanilla=1",
    "-static",
];
/// The tool is linked away from the addresses of programs, but below 2 GiB. Valgrind's own tools are at 0x5800_0000,
/// where SBCL wants its code.
const LINK: [&str; 5] =
    ["-nodefaultlibs", "-nostartfiles", "-Wl,-u,_start", "-Wl,-Ttext-segment=0x70000000", "-Wl,--build-id=none"];
/// Options for gcc among the sources: the functions of Valgrind's core that the tool replaces.
const REPLACED_FUNCTIONS: &str = "replaced.rsp";

/// An installed Valgrind with the files for building tools.
#[derive(Clone, Debug)]
pub(super) struct Valgrind {
    /// The launcher. Debian's `valgrind` is a script that sets `LD_LIBRARY_PATH` and other variables, which the
    /// recorded program would see; `valgrind.bin` next to it is the actual launcher.
    pub launcher: PathBuf,
    /// The version, such as `valgrind-3.19.0`.
    pub version: String,
}

impl Valgrind {
    pub(super) fn locate() -> Result<Self, TraceError> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(TraceError::usage("recording needs x86-64 Linux; traces can be replayed anywhere"));
        }
        let missing = || TraceError::usage(format!("valgrind is missing; {INSTALL_HINT}"));
        let script = program::in_path("valgrind".as_ref()).ok_or_else(missing)?;
        let launcher = Some(script.with_file_name("valgrind.bin")).filter(|file| file.exists()).unwrap_or(script);
        let output = Command::new(&launcher).arg("--version").output().map_err(|e| TraceError::io(&launcher, e))?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !version.starts_with("valgrind-") {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(TraceError::usage(format!("{} --version failed: {said}", launcher.display())));
        }
        Ok(Self { launcher, version })
    }
}

/// The files of an installed Valgrind that tools are made of.
struct Files {
    include: PathBuf,
    core: PathBuf,
    run_time: PathBuf,
}

impl Files {
    /// Those that belong to the launcher: `PREFIX/bin/valgrind`, `PREFIX/include/valgrind`, and so on.
    fn locate(launcher: &Path) -> Result<Self, TraceError> {
        let real = launcher.canonicalize().map_err(|e| TraceError::io(launcher, e))?;
        let own = real.ancestors().nth(2).map(Path::to_path_buf);
        let prefixes: Vec<PathBuf> = own.into_iter().chain(PREFIXES.map(PathBuf::from)).collect();
        let core = format!("libcoregrind-{PLATFORM}.a");
        Ok(Self {
            include: folder_with(&prefixes, &INCLUDE_FOLDERS, "pub_tool_tooliface.h", "headers")?,
            core: folder_with(&prefixes, &LIBRARY_FOLDERS, &core, "static libraries")?.join(core),
            run_time: folder_with(
                &prefixes,
                &RUN_TIME_FOLDERS,
                &format!("vgpreload_core-{PLATFORM}.so"),
                "run-time files",
            )?,
        })
    }

    /// Tells this library from others of the same version.
    fn identity(&self) -> Result<String, TraceError> {
        let about = fs::metadata(&self.core).map_err(|e| TraceError::io(&self.core, e))?;
        Ok(format!("{} {} {:?}", self.core.display(), about.len(), about.modified().ok()))
    }
}

/// The first folder that contains `file`, of `folders` below `prefixes`.
fn folder_with(prefixes: &[PathBuf], folders: &[&str], file: &str, what: &str) -> Result<PathBuf, TraceError> {
    let folders: Vec<PathBuf> =
        prefixes.iter().flat_map(|prefix| folders.iter().map(|folder| prefix.join(folder))).collect();
    folders.iter().find(|folder| folder.join(file).exists()).cloned().ok_or_else(|| {
        TraceError::usage(format!("Valgrind's {what} ({file}) are missing, looked in {folders:?}; {INSTALL_HINT}"))
    })
}

/// Returns the folder for `VALGRIND_LIB`, below `cache_dir`: the tool compiled from the C sources in `source_dir`, and
/// links to the installed Valgrind's own files. Compiles only if this source has not yet been compiled for this
/// Valgrind; several processes may do so concurrently.
///
/// # Errors
/// [`TraceError::Usage`] if Valgrind, its headers or libraries, or gcc are missing, or if compiling fails;
/// [`TraceError::Io`].
pub fn prepare_tool(source_dir: &Path, cache_dir: &Path) -> Result<PathBuf, TraceError> {
    let valgrind = Valgrind::locate()?;
    let files = Files::locate(&valgrind.launcher)?;

    let sources = sources(source_dir)?;
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for part in COMPILE.iter().chain(&LINK) {
        hash.update(part.as_bytes());
    }
    hash.update(files.identity()?.as_bytes());
    hash.update(&valgrind_limits::MORE_ENTRIES.to_le_bytes());
    for (name, content) in &sources {
        hash.update(name.as_encoded_bytes());
        hash.update(content);
    }
    let folder = cache_dir.join(format!("{}-{:016x}", valgrind.version, hash.digest()));
    let tool = format!("{NAME}-{PLATFORM}");
    if folder.join(&tool).exists() {
        return Ok(folder);
    }

    fs::create_dir_all(cache_dir).map_err(|e| TraceError::io(cache_dir, e))?;
    let scratch =
        tempfile::Builder::new().prefix(".build-").tempdir_in(cache_dir).map_err(|e| TraceError::io(cache_dir, e))?;
    compile(source_dir, &sources, &files, &scratch.path().join(&tool))?;
    for entry in fs::read_dir(&files.run_time).map_err(|e| TraceError::io(&files.run_time, e))? {
        let file = entry.map_err(|e| TraceError::io(&files.run_time, e))?.path();
        let link = scratch.path().join(file.file_name().unwrap_or_default());
        symlink(&file, &link).map_err(|e| TraceError::io(&link, e))?;
    }
    // Temporary folders are private; the cache gets the permissions of its parent.
    fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .map_err(|e| TraceError::io(scratch.path(), e))?;
    let built = scratch.keep();
    match fs::rename(&built, &folder) {
        Ok(()) => Ok(folder),
        // Another process was faster and built the same.
        Err(_) if folder.join(&tool).exists() => {
            let _ = fs::remove_dir_all(&built);
            Ok(folder)
        }
        Err(e) => Err(TraceError::io(folder, e)),
    }
}

/// Names and contents of the C files, headers and files of options, sorted by name.
fn sources(folder: &Path) -> Result<Vec<(std::ffi::OsString, Vec<u8>)>, TraceError> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| TraceError::io(folder, e))? {
        let path = entry.map_err(|e| TraceError::io(folder, e))?.path();
        if path.extension().is_some_and(|e| e == "c" || e == "h" || e == "rsp") {
            let content = fs::read(&path).map_err(|e| TraceError::io(&path, e))?;
            sources.push((path.file_name().unwrap_or_default().to_owned(), content));
        }
    }
    if sources.is_empty() {
        return Err(TraceError::usage(format!("{}: the sources of the Valgrind tool are not there", folder.display())));
    }
    sources.sort();
    Ok(sources)
}

fn compile(
    source_dir: &Path,
    sources: &[(std::ffi::OsString, Vec<u8>)],
    files: &Files,
    tool: &Path,
) -> Result<(), TraceError> {
    let scratch = tempfile::tempdir().map_err(|e| TraceError::io(std::env::temp_dir(), e))?;
    let raised = valgrind_limits::raise(&files.core, scratch.path())?;
    let mut gcc = program::compiler();
    gcc.args(COMPILE).args(LINK).arg(format!("@{}", source_dir.join(REPLACED_FUNCTIONS).display()));
    gcc.arg("-I").arg(&files.include).arg("-I").arg(files.include.join("vki")).arg("-o").arg(tool);
    gcc.args(sources.iter().map(|(name, _)| source_dir.join(name)).filter(|f| f.extension().is_some_and(|e| e == "c")));
    // Before the library, so that the linker does not take the library's own.
    if let Some(raised) = &raised {
        gcc.arg(format!("-DPL_SEGMENTS={}", raised.segments)).arg(&raised.object);
    }
    for library in ["libcoregrind", "libvex"] {
        gcc.arg(files.core.with_file_name(format!("{library}-{PLATFORM}.a")));
    }
    gcc.arg("-lgcc").arg(files.core.with_file_name(format!("libgcc-sup-{PLATFORM}.a")));
    let output = gcc.output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => TraceError::usage(
            "gcc is missing, and the recorder's Valgrind tool is not compiled yet; install it (apt-get install gcc)",
        ),
        _ => TraceError::usage(format!("gcc did not start: {e}")),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().filter(|line| line.contains("error") || line.contains("undefined")).collect();
    let said = if said.is_empty() { "it gave no reason".to_owned() } else { said[..said.len().min(5)].join("\n") };
    Err(TraceError::usage(format!("compiling the recorder's Valgrind tool failed:\n{said}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_sources_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = sources(folder.path()).unwrap_err().to_string();
        assert!(error.contains("sources of the Valgrind tool are not there"), "{error}");
    }

    #[test]
    fn missing_files_are_named() {
        let error = folder_with(&["/nowhere".into()], &["include"], "header.h", "headers").unwrap_err().to_string();
        assert!(error.contains("headers (header.h) are missing") && error.contains("apt-get"), "{error}");
    }
}
