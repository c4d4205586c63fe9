"""The results in `docs/reproductions`: a complete run of each reproduction, and a page of all claims.

    python benches/reproductions.py              # performs the missing runs, writes the reports and the page
    python benches/reproductions.py --page       # only writes the page, from the existing results
    python benches/reproductions.py --check      # checks that the page matches the results

The runs are kept in `target/reproductions`, so an interrupted reproduction continues where it stopped.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pagelab_studies import REPRODUCTIONS
from pagelab_studies.report import VERDICTS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "reproductions"
PAGE = ROOT / "docs" / "claims.md"
RUNS = ROOT / "target" / "reproductions"
PROGRAMS = ROOT / "target" / "programs"
KEPT = ("REPORT.md", "results.json")


def run() -> None:
    for name, reproduction in REPRODUCTIONS.items():
        command = [sys.executable, "-m", "pagelab", "reproduce", name, "--scale", "1", "-o", str(RUNS / name)]
        if any(run.recording for run in reproduction.runs()):
            record()
            command += ["--programs", str(PROGRAMS)]
        subprocess.run(command, check=True)
        (RESULTS / name).mkdir(parents=True, exist_ok=True)
        for file in KEPT:
            shutil.copyfile(RUNS / name / file, RESULTS / name / file)


def record() -> None:
    """Records the programs that are not recorded yet."""
    recorder = ROOT / "examples" / "programs" / "record.py"
    # It prints what it could not record; the report names what is missing.
    subprocess.run([sys.executable, str(recorder), "-o", str(PROGRAMS), "--accesses"], check=False)


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# What holds"
    yield ""
    yield "This page lists the statements of papers that were measured again, each with its verdict and the evidence."
    yield "A statement holds, or does not hold, only if the whole interval of its figure says so. Otherwise it is"
    yield "not decided. *Bare* means on bare metal, *virtual* in a virtual machine, and names with * are workloads that"
    yield "stand for SPEC programs. `make reproductions` writes this page. [Reproductions](reproductions.md) explains"
    yield "the method and why figures differ. The [glossary](glossary.md) explains the terms."
    for name, reproduction in REPRODUCTIONS.items():
        results = RESULTS / name / "results.json"
        if not results.exists():
            yield from (
                "",
                f"## {reproduction.title}",
                "",
                f"{reproduction.paper}. No complete run is here yet: `pagelab",
            )
            yield f"reproduce {name}` makes one."
            continue
        document = json.loads(results.read_text(encoding="utf-8"))
        claims = document["claims"]
        count = {verdict: sum(claim["holds"] is verdict for claim in claims) for verdict in VERDICTS}
        yield ""
        yield f"## {reproduction.title}"
        yield ""
        yield f"{reproduction.paper}. {len(document['runs'])} runs at scale {document['scale']:g} on"
        yield f"`{document['machine']}`, by pagelab {document['version']}: [report](reproductions/{name}/REPORT.md),"
        yield f"[JSON](reproductions/{name}/results.json)."
        yield f"**{count[True]} statements hold, {count[False]} do not, {count[None]} are not decided.**"
        yield ""
        yield "| figure | the paper says | here | measured | what the verdict depends on |"
        yield "|---|---|---|---|---|"
        for claim in claims:
            cells = (claim["figure"], claim["text"], VERDICTS[claim["holds"]], claim["detail"], claim["rests_on"])
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--page", action="store_true", help="only write the page")
    what.add_argument("--check", action="store_true", help="compare the page with the results")
    arguments = parser.parse_args()
    if arguments.check:
        if PAGE.read_text(encoding="utf-8") != page():
            sys.exit(f"{PAGE} does not match the results in {RESULTS}: run benches/reproductions.py --page")
        return
    if not arguments.page:
        run()
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
