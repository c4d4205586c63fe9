"""docs/tutorial.md comes to the same conclusions when its steps are made again."""

import random
import shutil
from pathlib import Path

import pytest

import pagelab
from pagelab.capture.recorder import record

PROGRAM = "{ seen[$1]++ } END { print length(seen) }"


@pytest.mark.slow
@pytest.mark.skipif(Path(shutil.which("awk") or "awk").resolve().name != "mawk", reason="the tutorial's awk is mawk")
def test_large_pages_help_if_the_heap_grows_in_large_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = list(range(400_000))
    random.Random(1).shuffle(keys)
    (tmp_path / "keys.txt").write_text("".join(f"{key}\n" for key in keys))
    command = ["awk", PROGRAM, str(tmp_path / "keys.txt")]

    record(command, tmp_path / "count.trace")
    plain = pagelab.run([tmp_path / "count.trace"], systems=["radix", "radix-2m"])
    assert plain["radix-2m"].stats["layer.native.pages.2M"] == 0
    assert plain["radix-2m"].stats["walk.count"] == plain["radix"].stats["walk.count"]

    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.top_pad=67108864")
    record(command, tmp_path / "count-padded.trace")
    padded = pagelab.run([tmp_path / "count-padded.trace"], systems=["radix", "radix-2m", "radix-eager"])
    small, large, adjacent = (padded[name].stats for name in ("radix", "radix-2m", "radix-eager"))
    assert large["walk.count"] < small["walk.count"] / 1000
    assert small["cycles.translation"] > 0.05 * small["cycles"] > 5 * large["cycles.translation"]
    # Walks or not: adjacent frames are what L3 dislikes.
    assert adjacent["walk.count"] == pytest.approx(small["walk.count"], rel=0.01)
    for stats in (large, adjacent):
        assert stats["l3.misses.data"] > 1.05 * small["l3.misses.data"]
