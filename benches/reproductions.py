"""The results in `docs/reproductions`: a complete run of each reproduction, and a page of all claims.

    python benches/reproductions.py              # performs the missing runs, writes the reports and the page
    python benches/reproductions.py --evaluate   # evaluates the results again, without runs, and writes the page
    python benches/reproductions.py --page       # only writes the page, and the counts in docs/accuracy.md
    python benches/reproductions.py --check      # checks that both match the results

The runs are kept in `target/reproductions`, so an interrupted reproduction continues where it stopped.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from pagelab_studies import REPRODUCTIONS, claims_page, report, shipped

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "reproductions"
PAGE = ROOT / "docs" / "claims.md"
ACCURACY = ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- counts of verdicts: benches/reproductions.py writes them -->", "<!-- end of the counts -->"
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


def evaluate() -> None:
    """Writes reports and results again, with what the code says of the runs on file."""
    for name, study in claims_page.read(RESULTS).items():
        report_file = RESULTS / name / "REPORT.md"
        findings = shipped.evaluate(study.reproduction, study.document, report_file.read_text(encoding="utf-8"))
        scale = study.document["scale"]
        known = {(*run.key, run.seed) for run in study.reproduction.runs()}
        # Runs that the study no longer has are dropped.
        runs = [run for run in study.document["runs"] if shipped.key(run) in known]
        text = report.document(study.reproduction, scale, findings, runs)
        (RESULTS / name / "results.json").write_text(text, encoding="utf-8")
        report_file.write_text(report.markdown(study.reproduction, scale, findings), encoding="utf-8")


def page() -> str:
    """`docs/claims.md`."""
    return claims_page.page(claims_page.read(RESULTS))


def accuracy() -> str:
    """`docs/accuracy.md` with the counts of today."""
    text = ACCURACY.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(claims_page.table_of_counts(claims_page.read(RESULTS)))
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--evaluate", action="store_true", help="evaluate the results on file again, and write the page")
    what.add_argument("--page", action="store_true", help="only write the page and the counts")
    what.add_argument("--check", action="store_true", help="compare the page and the counts with the results")
    arguments = parser.parse_args()
    if arguments.check:
        for path, text in ((PAGE, page()), (ACCURACY, accuracy())):
            if path.read_text(encoding="utf-8") != text:
                sys.exit(f"{path} does not match the results in {RESULTS}: run benches/reproductions.py --page")
        return
    if arguments.evaluate:
        evaluate()
    elif not arguments.page:
        run()
    PAGE.write_text(page(), encoding="utf-8")
    ACCURACY.write_text(accuracy(), encoding="utf-8")


if __name__ == "__main__":
    main()
