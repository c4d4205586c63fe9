"""The documentation as a site: it builds without a warning, is complete in itself, and says what the code says."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import ROOT

import pagelab

NOTEBOOK = ROOT / "examples" / "page-walks.ipynb"


def _python(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a program that may import what is in the folder site."""
    path = os.pathsep.join([str(ROOT / "site"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": path, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, apart from the one that `make docs` builds."""
    folder = tmp_path_factory.mktemp("site") / "docs"
    built = _python("import sys, pathlib, build; build.build(pathlib.Path(sys.argv[1]))", folder)
    assert built.returncode == 0, built.stderr
    return folder


class _Links(HTMLParser):
    """What a page loads by itself when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.loaded.append(values.get("src") or "")
        if tag == "link" and values.get("rel") in ("stylesheet", "preconnect", "preload", "icon", "modulepreload"):
            self.loaded.append(values.get("href") or "")


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = sorted((site / "site").rglob("*.html"))
    assert len(pages) > 35
    for page in pages:
        links = _Links()
        links.feed(page.read_text())
        assert len(links.loaded) > 2, page
        assert not [link for link in links.loaded if "//" in link], page
    for style in (site / "site").rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text()), style


def test_the_reference_has_all_that_there_is(site: Path) -> None:
    text = {path.stem: path.read_text() for path in (site / "pages" / "reference").glob("*.md")}
    pages = {"systems": "presets", "machines": "presets", "page-tables": "mechanisms", "workloads": "workloads"}
    for kind, page in pages.items():
        for entry in pagelab.available(kind):
            assert f"`{entry['name']}`" in text[page]
    for key in ("`l2_latency_cycles`", '`system.layers[].page_table { kind = "two-level" }`', "`load_factor`"):
        assert key in text["keys"]
    # Of every system and of runs with co-runners; names of layers are letters.
    for name in (
        "walk.layer.LAYER.levelN.refs.dram",
        "layer.LAYER.fault_engine.hits",
        "ACCOUNT.walk.count",
        "stc.hits.pmd",
    ):
        assert f"| `{name}` |" in text["statistics"]
    assert "layer.native" not in text["statistics"]
    for command in ("pagelab record", "pagelab trace head", "pagelab linux trace"):
        assert f"`{command}`" in text["commands"]


def test_numbers_of_presets_have_their_origins(site: Path) -> None:
    lines = (site / "pages" / "reference" / "presets.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("    | `")]
    assert len(rows) > 300
    assert not [row for row in rows if row.rstrip(" |").count(" | ") < 2]


def test_pages_and_navigation_are_the_same(site: Path, tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, build\n"
        "build.pages = lambda: dict.fromkeys(sys.argv[2:], '# x')\n"
        "build.build(pathlib.Path(sys.argv[1]))"
    )
    names = sorted(str(path.relative_to(site / "pages")) for path in (site / "pages").rglob("*.md"))
    more = _python(program, tmp_path / "docs", *names, "new.md")
    assert "not in the navigation of site/zensical.toml: new.md" in more.stderr
    fewer = _python(program, tmp_path / "docs", *(name for name in names if name != "mfoe.md"))
    assert "but no page: mfoe.md" in fewer.stderr


def test_the_notebook_runs_and_is_clean() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    ran = _python("\n".join("".join(cell["source"]) for cell in cells))
    assert ran.returncode == 0, ran.stderr
    assert "radix-no-mmu-cache 4.0\nnested-radix-no-mmu-cache 24.0\n" in ran.stdout


@dataclass(frozen=True)
class Guide:
    """A page that goes through a design step by step: its file, and what stands in the registry at its line."""

    page: str
    folder: str
    file: str
    line: str
    before: str
    named: str


GUIDES = [
    Guide(
        "own-page-table.md",
        folder="crates/pagelab-tables/src/page_table",
        file="two_level.rs",
        line="mod mine ",
        before="    mod two_level",
        named=r"two[-_]level|TwoLevel",
    ),
    Guide(
        "own-translation-unit.md",
        folder="crates/pagelab-translate/src/translation_unit",
        file="victim.rs",
        line="mine::Mine ",
        before="            victim::",
        named=r"VictimTlb|stages\.victim\b",
    ),
]
of_each_guide = pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.page)


@of_each_guide
def test_a_guide_quotes_the_code(guide: Guide) -> None:
    quoted = re.findall(r"```rust\n(.*?)```", (ROOT / "docs" / guide.page).read_text(), re.DOTALL)
    code = " ".join((ROOT / guide.folder / guide.file).read_text().split())
    strange = [piece for piece in quoted if " ".join(piece.split()) not in code]
    assert len(quoted) > 6
    assert len(strange) == 1
    assert strange[0].startswith(guide.line)


@pytest.mark.slow
@of_each_guide
def test_a_guide_works_as_written(guide: Guide, tmp_path: Path) -> None:
    """In a copy of the sources: a design of its own passes the tests of all designs, and its bug does not."""
    for part in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / part, tmp_path / part)
    for part in ("crates", "presets"):
        shutil.copytree(ROOT / part, tmp_path / part)
    folder = tmp_path / guide.folder
    text = (ROOT / "docs" / guide.page).read_text()
    copied, broken = re.findall(r"^\$ (sed .*)$", text, re.MULTILINE)
    (line,) = re.findall(rf"^{guide.line}.*$", text, re.MULTILINE)
    (tests,) = set(re.findall(r"^\$ (cargo test .*)$", text, re.MULTILINE))

    def passes() -> bool:
        # Packages from elsewhere are those of this tree's own tests.
        environment = os.environ | {"CARGO_TARGET_DIR": str(ROOT / "target"), "PAGELAB_CASES_FACTOR": "1"}
        done = subprocess.run(
            shlex.split(tests), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert "test result:" in done.stdout, done.stderr
        return done.returncode == 0

    subprocess.run(copied, shell=True, cwd=folder, check=True)
    registry = folder / "mod.rs"
    registry.write_text(registry.read_text().replace(guide.before, f"{line}\n{guide.before}", 1))
    assert passes()
    subprocess.run(broken, shell=True, cwd=folder, check=True)
    assert not passes()


@of_each_guide
def test_a_design_is_one_file_and_one_line(guide: Guide) -> None:
    own = ROOT / guide.folder / guide.file
    sources = [path for path in (ROOT / "crates").glob("*/src/**/*.rs") if path != own]
    named = re.compile(rf"{guide.file.removesuffix('.rs')}::|{guide.named}")
    lines = [line for path in sources for line in path.read_text().splitlines() if named.search(line)]
    assert len(lines) == 1, lines
