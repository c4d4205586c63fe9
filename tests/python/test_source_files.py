"""Every source file belongs to something: a file that nothing declares is not compiled, and nothing complains."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from conftest import ROOT

from pagelab.cli.application import application

CRATES = sorted((ROOT / "crates").glob("pagelab-*"))
_ROOTS = ("mod.rs", "lib.rs", "main.rs")
_COMMENT = re.compile(r"//.*")


def _declaring(source: Path) -> tuple[str, Path | None]:
    """The name of a file's module, and the file that should declare it."""
    module = source.parent if source.name == "mod.rs" else source
    beside = [module.parent / name for name in _ROOTS] + [module.parent.with_suffix(".rs")]
    return module.stem, next((path for path in beside if path.exists() and path != source), None)


def _is_declared(source: Path) -> bool:
    name, parent = _declaring(source)
    if parent is None:
        return False
    text = _COMMENT.sub("", parent.read_text())
    # `mod NAME`, or the line of a registry, from which a macro makes the declaration.
    if re.search(rf"\bmod {name}\b|^\s*{name}::\w+", text, re.MULTILINE):
        return True
    attribute = f'#[path = "{source.name}"]'
    return any(attribute in other.read_text() for other in source.parent.glob("*.rs"))


def undeclared(crate: Path) -> Iterator[Path]:
    """Files in `src`, and in the folders of the test binaries, that no other file declares."""
    # These are found by Cargo or shared by `#[path]`.
    known = {crate / "src" / name for name in _ROOTS} | set((crate / "tests").glob("*/main.rs"))
    known |= {crate / "tests/common/mod.rs", *(crate / "tests").glob("*.rs"), *(crate / "src/bin").glob("*.rs")}
    for folder in ("src", "tests"):
        for source in sorted((crate / folder).rglob("*.rs")):
            if source not in known and not _is_declared(source):
                yield source


@pytest.mark.parametrize("crate", CRATES, ids=lambda crate: crate.name)
def test_every_rust_file_is_declared(crate: Path) -> None:
    assert (crate / "src").is_dir()
    assert list(undeclared(crate)) == []


def test_a_file_that_nothing_declares_is_found(tmp_path: Path) -> None:
    placement = tmp_path / "src" / "placement"
    placement.mkdir(parents=True)
    (tmp_path / "src/lib.rs").write_text("mod placement;\n")
    (placement / "mod.rs").write_text("policies! {\n    eager::Eager,\n    // coloring::Coloring,\n}\nmod order;\n")
    (placement / "eager.rs").write_text('#[path = "eager_tests.rs"]\nmod tests;\n')
    for name in ("order", "eager_tests"):
        (placement / f"{name}.rs").touch()
    assert list(undeclared(tmp_path)) == []
    (placement / "coloring.rs").touch()
    assert list(undeclared(tmp_path)) == [placement / "coloring.rs"]


def test_every_fault_engine_has_a_line_in_the_registry() -> None:
    # Their modules are public, so the compiler does not miss a line.
    folder = ROOT / "crates/pagelab-kernel/src/fault_engine"
    engines = {path.parent.name for path in folder.glob("*/parameters.rs")}
    registered = set(re.findall(r"^\s*(\w+)::\w+ = ", (folder / "mod.rs").read_text(), re.MULTILINE))
    assert engines == registered
    assert len(engines) > 1


def test_every_preset_is_built_in() -> None:
    registry = (ROOT / "crates/pagelab-engine/src/config/preset.rs").read_text()
    files = list((ROOT / "presets").rglob("*.toml"))
    assert len(files) > 60
    assert [path.name for path in files if f'"{path.stem}"' not in registry] == []


def _modules(group: typer.Typer) -> Iterator[str]:
    """Modules of the functions of all commands."""
    for command in group.registered_commands:
        assert command.callback is not None
        yield command.callback.__module__
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from _modules(inner.typer_instance)


def _defining(folder: str, pattern: str) -> set[str]:
    files = (ROOT / folder).glob("*.py")
    return {path.stem for path in files if re.search(pattern, path.read_text(), re.MULTILINE)}


def test_every_command_stands_in_the_command_line() -> None:
    defining = _defining("python/pagelab/cli", r"^def command\(")
    assert len(defining) > 10
    assert defining <= {name.rpartition(".")[2] for name in _modules(application())}


def test_every_reproduction_stands_in_the_catalogue() -> None:
    known = (ROOT / "packages/studies/pagelab_studies/__init__.py").read_text()
    defining = _defining("packages/studies/pagelab_studies", r"^REPRODUCTION = ")
    assert len(defining) > 4
    assert [name for name in defining if not re.search(rf"^        {name},", known, re.MULTILINE)] == []
