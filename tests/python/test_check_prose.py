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
    status, findings = _checked(tmp_path / name)
    assert status == 1
    assert len(findings) == 1
    assert findings[0].startswith(f"{tmp_path / name}:{line}: ")
    assert findings[0].endswith(f"write {instead}")


@pytest.mark.parametrize(
    ("language", "name", "code"),
    [
        ("rs", "of", "fn of() {}"),
        ("rs", "of", "let of = 1;"),
        ("rs", "of", "cpus.map(|of| 1)"),
        ("rs", "of", "($of:expr) => {}"),
        ("rs", "of", 'format!("{of}")'),
        ("rs", "of", 'format!("{{{of:?}}}")'),
        ("rs", "of", 'r#"{of}"#'),
        ("rs", "of", "if x == '\\'' && of {}"),
        ("c", "of", "static int of(void);"),
        ("c", "of", "thread->of = 1;"),
        ("h", "of", "#define SIZE(of) 1"),
        ("c", "of", "char a = '\\'', of;"),
        ("c", "told", "static int told;"),
        ("py", "of", "def of(): pass"),
        ("py", "of", "class A: of: int"),
        ("py", "of", "a = lambda of: 1"),
        ("py", "of", "def a(*, of): pass"),
        ("py", "of", "a = [1 for of in b]"),
        ("py", "of", "a.of = 1"),
        ("py", "of", "import os as of"),
        ("py", "of", "with a as of: pass"),
        ("py", "of", "a = (of := 1)"),
        ("py", "of", "a = f'{(of := 1)}'"),
        ("py", "found", "found, b = a"),
        ("py", "Found", "class Found: pass"),
        ("py", "settle", "async def settle(): pass"),
    ],
)
def test_names_to_avoid_are_found(tmp_path: Path, language: str, name: str, code: str) -> None:
    source = tmp_path / f"code.{language}"
    source.write_text(f"{'# A' if language == 'py' else '// A'} list of all.\n{code}\n")
    status, findings = _checked(source)
    assert status == 1
    assert len(findings) == 1
    assert findings[0].startswith(f"{source}:2: the name `{name}`: write ")


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("rs", "/* one of two */ // one of two"),
        ("rs", 'let (size_of, of_kind) = ("one of \\"two\\" {{of}} {of_kind}", option::of(1)); // and {of}'),
        ("c", '/* one of\n   two */ char *size_of = "one of \\"two\\""; // those'),
        ("py", '"""One of two."""\nsize_of = f"one of {{of}} {a.found}"  # of those\nb(of=size_of[\'of\'])'),
    ],
)
def test_names_to_avoid_are_words_of_code(tmp_path: Path, language: str, code: str) -> None:
    source = tmp_path / f"code.{language}"
    source.write_text(f"{code}\n")
    assert _checked(source) == (0, [])


def test_names_of_a_kernels_code_stay() -> None:
    module = _module()
    for folder in module.OTHERS_NAMES:
        assert (ROOT / folder).is_dir()
        assert not list(module.findings(f"{folder}a.c", "int of;\n", []))


def test_a_file_that_is_no_python_is_named(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("a = 1\ndef\n")
    assert _checked(tmp_path / "code.py") == (1, [f"{tmp_path / 'code.py'}:2: no Python: invalid syntax"])


def test_wide_lines_of_markdown_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    wide = "word " * 30
    page.write_text(f"{wide}\n| {wide} |\n\n```\n{wide}\n```\nA [link](https://example.org/{'x' * 120}).\n- {wide}\n")
    status, findings = _checked(page)
    assert status == 1
    assert [line.removeprefix(f"{page}:").split(":")[0] for line in findings] == ["1", "8"]


def test_wide_comments_of_c_are_found() -> None:
    module = _module()
    wide = "x" * 120
    code = f'/* {wide} */\nint a; /* short,\n   {wide} */\nchar *b = "{wide}";\n// {wide}\n'
    assert [finding.line for finding in module.wide_c_comments(code)] == [1, 3, 5]
    assert list(module.findings("capture/valgrind/a.c", code, [])) == list(module.wide_c_comments(code))
    assert list(module.findings("examples/programs/a.c", code, [])) == []


def test_wide_comments_of_rust_are_found() -> None:
    module = _module()
    code = f"fn main() {{}} // {'x' * 200}\n    /// {'word ' * 30}\n// short\n"
    assert [finding.line for finding in module.wide_rust_comments(code)] == [2]


def test_long_files_are_found(tmp_path: Path) -> None:
    module = _module()
    source = tmp_path / "long.py"
    source.write_text("pass\n" * module.FILE_LINES)
    assert _checked(source) == (0, [])
    source.write_text("pass\n" * (module.FILE_LINES + 1))
    status, findings = _checked(source)
    assert status == 1
    assert f"{module.FILE_LINES + 1} lines" in findings[0]


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
