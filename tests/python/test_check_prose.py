"""`setup/check-prose`: each check fails on a bad file, and the tree passes."""

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT

SCRIPT = ROOT / "setup" / "check-prose"


def _module() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("check_prose", str(SCRIPT))
    specification = importlib.util.spec_from_loader("check_prose", loader)
    assert specification
    module = importlib.util.module_from_spec(specification)
    loader.exec_module(module)
    return module


def _checked(*paths: Path) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, SCRIPT, *paths], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_the_tree_passes() -> None:
    assert _checked() == (0, [])


@pytest.mark.parametrize(
    ("name", "text", "line", "instead"),
    [
        ("page.md", "# Title\n\nThe gain is foretold.\n", 3, "predict(ed)"),
        ("page.md", "Pages save three\ntenths of it.\n", 1, "percent"),
        ("code.h", "// The time, in\n// place of the rest.\n", 1, "instead of"),
        ("code.py", 'HELP = "Its input, from its begin."\n', 1, "from the start"),
        ("code.c", "/* Nobody knows\n * beforehand. */\n", 1, "is not known in advance"),
    ],
)
def test_words_to_avoid_are_found(tmp_path: Path, name: str, text: str, line: int, instead: str) -> None:
    (tmp_path / name).write_text(text)
    status, found = _checked(tmp_path / name)
    assert status == 1
    assert len(found) == 1
    assert found[0].startswith(f"{tmp_path / name}:{line}: ")
    assert found[0].endswith(f"write {instead}")


@pytest.mark.parametrize(
    "code",
    [
        "fn of() {}",
        "let of = 1;",
        "cpus.map(|of| 1)",
        "($of:expr) => {}",
        'format!("{of}")',
        'format!("{{{of:?}}}")',
        'r#"{of}"#',
        "if x == '\\'' && of {}",
    ],
)
def test_names_to_avoid_are_found(tmp_path: Path, code: str) -> None:
    (tmp_path / "code.rs").write_text(f"// A list of all.\n{code}\n")
    status, found = _checked(tmp_path / "code.rs")
    assert status == 1
    assert len(found) == 1
    assert found[0].startswith(f"{tmp_path / 'code.rs'}:2: the name `of`: write ")


def test_names_to_avoid_are_words_of_code(tmp_path: Path) -> None:
    code = """/* one of two */ // one of two
        let (size_of, of_kind) = ("one of \\"two\\" {{of}} {of_kind}", option::of(1)); // and {of}
    """
    (tmp_path / "code.rs").write_text(code)
    assert _checked(tmp_path / "code.rs") == (0, [])


def test_wide_lines_of_markdown_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    wide = "word " * 30
    page.write_text(f"{wide}\n| {wide} |\n\n```\n{wide}\n```\nA [link](https://example.org/{'x' * 120}).\n- {wide}\n")
    status, found = _checked(page)
    assert status == 1
    assert [line.removeprefix(f"{page}:").split(":")[0] for line in found] == ["1", "8"]


def test_wide_comments_of_c_are_found() -> None:
    module = _module()
    wide = "x" * 120
    code = f'/* {wide} */\nint a; /* short,\n   {wide} */\nchar *b = "{wide}";\n// {wide}\n'
    assert [found.line for found in module.wide_c_comments(code)] == [1, 3, 5]
    assert list(module.findings("capture/valgrind/a.c", code, [])) == list(module.wide_c_comments(code))
    assert list(module.findings("examples/programs/a.c", code, [])) == []


def test_wide_comments_of_rust_are_found() -> None:
    module = _module()
    code = f"fn main() {{}} // {'x' * 200}\n    /// {'word ' * 30}\n// short\n"
    assert [found.line for found in module.wide_rust_comments(code)] == [2]


def test_long_files_are_found(tmp_path: Path) -> None:
    module = _module()
    source = tmp_path / "long.py"
    source.write_text("pass\n" * module.FILE_LINES)
    assert _checked(source) == (0, [])
    source.write_text("pass\n" * (module.FILE_LINES + 1))
    status, found = _checked(source)
    assert status == 1
    assert f"{module.FILE_LINES + 1} lines" in found[0]


def test_exceptions_may_not_grow_and_go_when_they_are_not_needed() -> None:
    module = _module()
    for name, (lines, why) in module.LONGER_FILES.items():
        assert (ROOT / name).is_file()
        assert why
        assert not list(module.long_file(name, "\n" * lines))
        assert list(module.long_file(name, "\n" * (lines + 1)))
        assert "remove it" in next(module.long_file(name, "\n" * module.FILE_LINES)).what


def test_every_line_of_the_list_says_what_to_write() -> None:
    module = _module()
    assert module.banned_words("# a comment\n\nfoo bar → baz\n")[0].instead == "baz"
    with pytest.raises(SystemExit, match="not `PATTERN → WHAT TO WRITE`"):
        module.banned_words("foo\n")
