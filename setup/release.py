"""Makes a release, all but publishing it: checks, lints, tests, builds, tries what was built, and tags.

    make release            everything; the tag is the last step
    make release DRY_RUN=1  the checks of the tree, and those of distributions that are in dist already

RELEASING.md says what to do before and after.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class RefusedError(Exception):
    """Why there is no release: a reason per line."""


def main() -> int:
    """The command. Its exit status is 1 where it refuses, or where a step fails."""
    parser = argparse.ArgumentParser(description="Make a release, all but publishing it.")
    parser.add_argument("--dry-run", action="store_true", help="check only: build nothing, run no tests, make no tag")
    dry_run = parser.parse_args().dry_run
    try:
        version = _version()
        _refuse([*_tree(version), *_versions_that_differ(version), *_changelog(version)])
        print(f"release {version}: the tree is clean, the version is new, and the changelog has it")
        if dry_run:
            _dry(version)
        else:
            _release(version)
    except RefusedError as error:
        print(*(f"release: {line}" for line in str(error).splitlines()), sep="\n", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        command = error.cmd if isinstance(error.cmd, str) else " ".join(map(str, error.cmd))
        print(f"release: `{command}` failed; there is no tag", file=sys.stderr)
        return 1
    return 0


def _release(version: str) -> None:
    _make("lint")
    _make("test")
    for old in _distributions(version):
        old.unlink()
    _make("wheel")
    _refuse(_missing(version))
    _try_out(version, from_source=True)
    # Tests and builds may have written files that are kept.
    _refuse(_tree(version))
    _git("tag", "--annotate", f"v{version}", "--message", f"pagelab {version}\n\n{_section(version).strip()}")
    print(f"release {version}: tag v{version} is made, here only. To publish it, by hand:")
    print(_by_hand(version))


def _dry(version: str) -> None:
    print("dry run: no lint, no tests, no build, no tag")
    if missing := list(_missing(version)):
        print(*(f"dry run: {line}, so it is not tried out" for line in missing), sep="\n")
        return
    _try_out(version, from_source=False)
    print("dry run: nothing stands in the way of the release")


def _version() -> str:
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    return str(cargo["workspace"]["package"]["version"])


def versions() -> dict[str, str]:
    """Each place that names the version of pagelab, and the version that it names."""
    by_place = {"Cargo.toml": _version()}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    ours = (crate for crate in lock["package"] if "source" not in crate and crate["name"].startswith("pagelab"))
    by_place |= {f"Cargo.lock, {crate['name']}": crate["version"] for crate in ours}
    for path in sorted((ROOT / "packages").glob("*/pyproject.toml")):
        name, project = path.relative_to(ROOT), tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        by_place[str(name)] = project["version"]
        pinned = (entry.removeprefix("pagelab==") for entry in project["dependencies"] if entry.startswith("pagelab=="))
        by_place |= {f"{name}, dependency": version for version in pinned}
    for place, pattern in {
        "CITATION.cff": r"^version: (\S+)$",
        "examples/continuous-integration/github-workflow.yml": r"pagelab==(\S+)",
        "setup/wheel/data/share/man/man1/pagelab.1": r'^\.TH "pagelab" "1" "" "([^"]+)"',
    }.items():
        match = re.search(pattern, (ROOT / place).read_text(encoding="utf-8"), re.MULTILINE)
        by_place[place] = match[1] if match else "none"
    return by_place


def _versions_that_differ(version: str) -> Iterator[str]:
    for place, named in versions().items():
        if named != version:
            yield f"{place} names version {named}, Cargo.toml {version}: make them agree"


def _tree(version: str) -> Iterator[str]:
    if changed := _git("status", "--porcelain"):
        first = changed.splitlines()[0][3:]
        yield f"the tree is not clean: {first}, {len(changed.splitlines())} in all: commit or remove what has changed"
    if _git("tag", "--list", f"v{version}"):
        yield f"version {version} is tagged already: raise it in Cargo.toml and what else names it"


def _changelog(version: str) -> Iterator[str]:
    section = _section(version)
    if not section.strip():
        yield f"CHANGELOG.md has no section `## {version} — YYYY-MM-DD` with text: write what users notice"
        return
    if left := [line for line in _section("Unreleased").splitlines() if line.strip() and not line.startswith("#")]:
        yield f"CHANGELOG.md has {len(left)} lines under Unreleased: move them to {version}"
    released = _DATE.search(_heading(version))
    citation = re.search(r"^date-released: ['\"]?(\S+?)['\"]?$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    if released is None:
        yield f"CHANGELOG.md: the heading of {version} has no date: write `## {version} — YYYY-MM-DD`"
    elif citation is None or citation[1] != released[0]:
        cited = citation[1] if citation else "missing"
        yield f"CITATION.cff: date-released is {cited}, the changelog has {released[0]}"


def _heading(version: str) -> str:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.split()[:2] == ["##", version]), "")


def _section(version: str) -> str:
    """What stands under a heading of the changelog, up to the next of its level."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = _heading(version)
    if not heading:
        return ""
    return re.split(r"^## ", text.split(f"{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def _names() -> list[str]:
    """Distributions, as their files spell them."""
    paths = [ROOT / "pyproject.toml", *sorted((ROOT / "packages").glob("*/pyproject.toml"))]
    projects = (tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in paths)
    return [str(project["name"]).replace("-", "_") for project in projects]


def _distributions(version: str) -> list[Path]:
    patterns = [f"{name}-{version}{ending}" for name in _names() for ending in ("-*.whl", ".tar.gz")]
    return sorted(path for pattern in patterns for path in DIST.glob(pattern))


def _missing(version: str) -> Iterator[str]:
    for name in _names():
        for what, pattern in (("wheel", f"{name}-{version}-*.whl"), ("source", f"{name}-{version}.tar.gz")):
            distributions = list(DIST.glob(pattern))
            if len(distributions) != 1:
                yield f"dist holds {len(distributions)} of {pattern}, expected one {what} distribution"


def _try_out(version: str, *, from_source: bool) -> None:
    """Installs the wheels in an environment of their own and runs them; source distributions are built."""
    with tempfile.TemporaryDirectory(prefix="pagelab-release-") as folder:
        environment = Path(folder) / "venv"
        _run([sys.executable, "-m", "venv", environment])
        python, command = environment / "bin" / "python", environment / "bin" / "pagelab"
        files = _distributions(version)
        _run([python, "-m", "pip", "install", "--quiet", *(path for path in files if path.suffix == ".whl")])
        version_line = _run([command, "--version"], cwd=folder).strip()
        if version_line.split()[-1:] != [version]:
            raise RefusedError(f"the installed command says {version_line!r}, expected version {version}")
        _run([command, "run", "gups:size=16MiB,updates=20K", "-s", "radix", "--json", "r.json.gz"], cwd=folder)
        _run([command, "show", "r.json.gz"], cwd=folder)
        # Commands of the other wheels.
        _run([command, "reproduce"], cwd=folder)
        _run([command, "linux", "--help"], cwd=folder)
        if shutil.which("valgrind") and shutil.which("gcc"):
            _run([command, "record", "--quiet", "-o", "true.trace", "--", "true"], cwd=folder)
            _run([command, "run", "--quiet", "true.trace"], cwd=folder)
        else:
            print("release: valgrind or gcc is missing, so the installed recorder was not tried")
        if from_source:
            for path in files:
                if path.suffix == ".gz":
                    _run([python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, path])
    print(f"release {version}: the wheels install and run")


def _by_hand(version: str) -> str:
    files = "\n".join(f"     {path.relative_to(ROOT)}" for path in _distributions(version))
    return f"""\
  1. git push origin HEAD v{version}
  2. Upload these files to the package index, and attach them to the release of the tag:
{files}
  3. Publish the site that `make docs` builds, and the image of `make image`.
  4. The text of the release is the tag's message: git tag --list --format='%(contents)' v{version}
  To take the release back before step 1: git tag --delete v{version}"""


def _refuse(reasons: Iterator[str] | Sequence[str]) -> None:
    if lines := list(reasons):
        raise RefusedError("\n".join(lines))


def _make(target: str) -> None:
    print(f"release: make {target}", flush=True)
    subprocess.run(["make", target], cwd=ROOT, check=True)


def _git(*arguments: str) -> str:
    return _run(["git", *arguments], cwd=ROOT).rstrip("\n")


def _run(command: Sequence[str | Path], cwd: Path | str | None = None) -> str:
    # What is tried is what was installed, not this tree.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
