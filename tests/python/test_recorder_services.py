"""Large programs that are recorded to their end: a database server, a key-value store under load, a browser."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import Pagelab, needs_recorder
from test_recorder_programs import losses

pytestmark = [needs_recorder, pytest.mark.slow]

# The user who has no files. PostgreSQL refuses root, and Chromium has a sandbox for other users only.
NOBODY = 65534

# The server's files, a table, and a query, in the mode of one process.
DATABASE = """
set -e
export PATH="$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH"
initdb --no-sync --username=tester --pgdata=data >/dev/null
printf '%s\\n' 'create table t as select g from generate_series(1, 2000) g' 'select sum(g) from t' |
    postgres --single -D data postgres
"""

# A server, a load with 20 clients, a snapshot in a child, and the end of the server.
STORE = """
set -e
redis-server --port 0 --unixsocket "$PWD/s" --save '' --logfile log --dir "$PWD" &
until [ -S s ]; do sleep 0.1; done
redis-benchmark -s s -c 20 -n 2000 -t set,get -q >load
redis-cli -s s set answer 42
redis-cli -s s save
redis-cli -s s get answer
redis-cli -s s shutdown nosave
wait
ls dump.rdb
"""

PAGE = "<html><body><p id=p>before</p><script>document.getElementById('p').textContent = 6 * 7</script></body></html>"

CHROMIUM = """
exec chromium --headless --disable-gpu --no-first-run --disable-background-networking --disable-component-update \
    --disable-sync --user-data-dir="$PWD/profile" $1 --dump-dom "file://$PWD/page.html"
"""


def in_folder(folder: Path, text: str, *arguments: str, nobody: bool) -> Sequence[str]:
    """A command that runs a script there, as root or as a user without files."""
    folder.mkdir()
    (folder / "page.html").write_text(PAGE, encoding="utf-8")
    command = ["env", f"HOME={folder}", "sh", "-c", f"cd '{folder}'; {text}", "sh", *arguments]
    if not nobody or os.geteuid():
        return command
    for path in (folder, *folder.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    # pytest's folders are their user's alone: that of the test, of the run, and of the user.
    for parent in folder.parents[:3]:
        parent.chmod(0o711)
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]


def recorded_as_natively(tmp_path: Path, text: str, *arguments: str, nobody: bool = False) -> str:
    """What the script prints. It prints the same when it is recorded into t.trace, which takes half an hour at most."""
    native = in_folder(tmp_path / "native", text, *arguments, nobody=nobody)
    expected = subprocess.run(native, capture_output=True, text=True, timeout=300, check=False)
    assert expected.returncode == 0, expected.stderr
    command = in_folder(tmp_path / "recorded", text, *arguments, nobody=nobody)
    recorder = [sys.executable, "-m", "pagelab", "record", "--quiet", "-o", str(tmp_path / "t.trace"), "--", *command]
    recorded = subprocess.run(recorder, capture_output=True, text=True, timeout=1800, check=False)
    assert (recorded.returncode, recorded.stdout) == (0, expected.stdout), recorded.stderr
    return expected.stdout


@pytest.mark.skipif(not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")), reason="needs PostgreSQL's server")
def test_a_database_is_made_and_asked_by_its_own_user(pagelab: Pagelab, tmp_path: Path) -> None:
    printed = recorded_as_natively(tmp_path, DATABASE, nobody=True)
    assert "2001000" in printed
    assert not losses(pagelab)


@pytest.mark.skipif(not shutil.which("redis-benchmark"), reason="needs redis-server and redis-tools")
def test_a_store_serves_clients_and_saves_in_a_child(pagelab: Pagelab, tmp_path: Path) -> None:
    printed = recorded_as_natively(tmp_path, STORE)
    assert printed.split() == ["OK", "OK", "42", "dump.rdb"]
    assert not losses(pagelab)


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
@pytest.mark.parametrize("sandbox", [True, False])
def test_a_browser_shows_a_page(pagelab: Pagelab, tmp_path: Path, sandbox: bool) -> None:
    arguments = () if sandbox else ("--no-sandbox",)
    printed = recorded_as_natively(tmp_path, CHROMIUM, *arguments, nobody=sandbox)
    assert '<p id="p">42</p>' in printed
    assert not losses(pagelab)
