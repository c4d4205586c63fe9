"""The Python packages build on each other in one direction: `ARCHITECTURE.md` gives each one a rank."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from conftest import ROOT

from pagelab.cli.application import _COMMANDS

HEADING = "## Ranks of the Python packages"
ROW = re.compile(r"\| (\d+) \| ([^|]*) \|")
TREES = [ROOT / "python", ROOT / "packages/studies", ROOT / "packages/linux"]


def ranks(architecture: str) -> dict[str, int]:
    """The table in `ARCHITECTURE.md`: what each package or loose module has for a rank."""
    section = architecture.split(f"{HEADING}\n")[1].split("\n## ")[0]
    pairs = [(name, int(row[1])) for row in ROW.finditer(section) for name in re.findall(r"`([\w.]+)`", row[2])]
    assert len(pairs) == len(dict(pairs)), "a package stands in two rows"
    return dict(pairs)


def modules(trees: Iterable[Path]) -> dict[str, Path]:
    """All modules by their full name."""
    by_name = {}
    for tree in trees:
        for path in sorted(tree.rglob("*.py")):
            parts = path.relative_to(tree).with_suffix("").parts
            by_name[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return by_name


def package_of(module: str) -> str:
    """What has a rank: `results` for `pagelab.results.table`, `pagelab` for the package that users import."""
    parts = module.split(".")
    return parts[1] if parts[0] == "pagelab" and parts[1:] else parts[0]


def imports(module: str, source: str, known: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Modules of this repository that a module imports anywhere, in functions too, and in which line."""
    families = {name.split(".")[0] for name in known}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative imports hide what is imported"
            names = [node.module or ""]
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            if any(name in known for name in inner) or node.module == "pagelab":
                # `from pagelab import UsageError` imports what users import, `from pagelab import _engine` a module.
                names = [
                    name if name in known or package_of(name) == "_engine" else node.module or "" for name in inner
                ]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in dict.fromkeys(names):
            if name.split(".")[0] in families and name != module:
                yield name, node.lineno


def upward(modules: Mapping[str, Path], rank: Mapping[str, int]) -> list[str]:
    """Imports of packages that do not have a lower rank."""
    wrong = []
    for module, path in modules.items():
        own = package_of(module)
        for name, line in imports(module, path.read_text(), modules):
            other = package_of(name)
            if other != own and rank[other] >= rank[own]:
                wrong.append(f"{module}, line {line}: {own} (rank {rank[own]}) imports {other} (rank {rank[other]})")
    return wrong


def circles(modules: Mapping[str, Path]) -> list[list[str]]:
    """Groups of modules each of which imports itself through the others."""
    graph = {
        module: {name for name, _ in imports(module, path.read_text(), modules)} & modules.keys()
        for module, path in modules.items()
    }
    reached: dict[str, set[str]] = {}
    for module in graph:
        seen: set[str] = set()
        left = list(graph[module])
        while left:
            if (name := left.pop()) not in seen:
                seen.add(name)
                left += graph[name]
        reached[module] = seen
    groups = {
        tuple(sorted(other for other in seen if module in reached[other]))
        for module, seen in reached.items()
        if module in seen
    }
    return sorted(map(list, groups))


def files_of(path: str, known: Iterable[str]) -> list[str]:
    """Files of the repository that `ARCHITECTURE.md` may mean: `kernel/os.rs` is `crates/pagelab-kernel/src/os.rs`."""
    crate, _, rest = path.partition("/")
    whole = f"crates/pagelab-{crate}/src/{rest}"
    return [file for file in known if file == whole or f"/{file}".endswith(f"/{path}")]


def written(path: Path) -> list[str]:
    """Calls in a source that write a file at once, so that it is partial if they fail."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    names = (call.func.attr for call in calls if isinstance(call.func, ast.Attribute))
    return [f"{path.name}: {name}" for name in names if name in ("write_text", "write_bytes")]


def undeclared(crate: Path) -> list[str]:
    """Sources of a crate that no other one declares as a module, so that nothing compiles them."""
    loose = []
    for path in sorted(crate.rglob("*.rs")):
        is_folder = path.name == "mod.rs"
        name, folder = (path.parent.name, path.parent.parent) if is_folder else (path.stem, path.parent)
        # A registry's macro declares a design by `mod NAME { … }` or `NAME::Type`, and tests have a path.
        declares = re.compile(rf"\bmod {name}\b|\b{name}::|\"{name}\.rs\"")
        others = [file for file in (*folder.glob("*.rs"), folder.with_suffix(".rs")) if file != path and file.is_file()]
        if path != crate / "lib.rs" and not any(declares.search(file.read_text()) for file in others):
            loose.append(str(path.relative_to(crate)))
    return loose


def unreported(sources: Iterable[str]) -> list[str]:
    """Fields of counters that are counted and never read, as far as no other field has the name."""
    whole = "\n".join(sources)
    structs = re.findall(r"pub struct (\w+Count(?:er)?s) \{\n(.*?)\n\}", whole, re.DOTALL)
    fields = [(name, field) for name, body in structs for field in re.findall(r"^    pub (\w+):", body, re.MULTILINE)]
    # Sums of counters read all fields.
    read = set(re.findall(r"(?<!\bother)\.(\w+)\b(?!\s*[+-]=)", whole))
    return [f"{name}.{field}" for name, field in fields if field not in read]


RANKS = ranks((ROOT / "ARCHITECTURE.md").read_text())


def test_every_package_has_a_rank() -> None:
    assert {package_of(module) for module in modules(TREES)} | {"_engine"} == RANKS.keys()


def test_no_package_imports_one_of_its_rank_or_above() -> None:
    assert upward(modules(TREES), RANKS) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(modules(TREES)) == []


@pytest.mark.parametrize(
    "line",
    [
        "from pagelab.cli import terminal",
        "from pagelab.cli.terminal import warn",
        "import pagelab.cli.terminal",
        "import pagelab",
        "from pagelab import UsageError",
        "def function():\n    from pagelab.replay.simulation import run",
        "if TYPE_CHECKING:\n    from pagelab.capture import traces",
    ],
)
def test_an_import_upwards_is_found_wherever_it_stands(line: str, tmp_path: Path) -> None:
    package = tmp_path / "pagelab" / "results"
    package.mkdir(parents=True)
    (package / "table.py").write_text(line)
    (wrong,) = upward(modules([tmp_path]), RANKS)
    assert wrong.startswith("pagelab.results.table, line ")
    (package / "table.py").write_text(
        "from pagelab import _engine\nfrom pagelab.confidence.students_t import students_t\n"
    )
    assert upward(modules([tmp_path]), RANKS) == []


def test_a_circle_is_found_through_functions_and_packages(tmp_path: Path) -> None:
    package = tmp_path / "pagelab" / "results"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from pagelab.results import table\n")
    (package / "table.py").write_text("from pagelab.results.summary import summary\n")
    (package / "summary.py").write_text("")
    assert circles(modules([tmp_path])) == []
    (package / "summary.py").write_text("def rows():\n    from pagelab.results import table\n")
    assert circles(modules([tmp_path])) == [["pagelab.results.summary", "pagelab.results.table"]]
    (package / "summary.py").write_text("import pagelab.results\n")
    (circle,) = circles(modules([tmp_path]))
    assert len(circle) == 3


def test_the_architecture_names_files_and_traits_that_there_are() -> None:
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    trees = ("benches", "capture", "crates", "fuzz", "packages", "python", "site", "tests")
    known = [str(path.relative_to(ROOT)) for tree in trees for path in (ROOT / tree).rglob("*.[rpc]*")]
    named = set(re.findall(r"`([\w/.-]+\.(?:rs|py|c))`", architecture))
    assert len(named) > 100
    assert [path for path in sorted(named) if not files_of(path, known)] == []
    traits = re.findall(r"`([\w/.-]+\.rs)`, `trait (\w+)`", architecture)
    assert len(traits) > 8
    for path, name in traits:
        texts = [(ROOT / file).read_text() for file in files_of(path, known)]
        assert any(re.search(rf"\btrait {name}\b", text) for text in texts), f"{path} has no trait {name}"


def test_commands_write_files_atomically() -> None:
    folders = ("python/pagelab/cli", "packages/linux/pagelab_linux/cli", "packages/studies/pagelab_studies")
    sources = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(sources) > 40
    assert [call for path in sources for call in written(path)] == [], "use pagelab.output.write_atomically"


def test_every_module_of_the_command_line_is_used() -> None:
    by_name = modules(TREES)
    used = {name for module, path in by_name.items() for name, _ in imports(module, path.read_text(), by_name)}
    used |= {f"pagelab.cli.{source.module}" for source in _COMMANDS.values() if source is not None}
    unused = [name for name in by_name if name.startswith("pagelab.cli.") and name not in used]
    assert unused == [], "a command needs a line of _COMMANDS in application.py"


@pytest.mark.parametrize(
    "crate", sorted(path.parent for path in ROOT.glob("crates/*/src/lib.rs")), ids=lambda crate: crate.parent.name
)
def test_every_rust_source_is_compiled(crate: Path) -> None:
    assert undeclared(crate) == [], "a design needs its line in mod.rs"


def test_no_counter_is_counted_in_vain() -> None:
    sources = [path.read_text() for path in ROOT.glob("crates/*/src/**/*.rs")]
    counts = "pub struct QueueCounts {\n    pub joined: u64,\n    pub left: u64,\n}\n"
    assert unreported([counts, "queue.left += 1; self.left += other.left; queue.joined + 1"]) == ["QueueCounts.left"]
    assert unreported(sources) == [], "a counter in a plain struct needs a line in collect/"
