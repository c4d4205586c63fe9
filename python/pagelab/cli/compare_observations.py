"""`pagelab compare BEFORE.json AFTER.json` of two observations of `pagelab observe`."""

import csv
import io
import json as json_format
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagelab import UsageError
from pagelab.cli.terminal import print_table, warn
from pagelab.comparison.words import Table
from pagelab.output import write_atomically


def observations(sources: Sequence[str]) -> list[dict[str, Any]]:
    """The observations that the sources are; none if they are something else.

    Raises:
        UsageError: one is an observation, and the other is not.
    """
    # It takes numpy, which other comparisons do not need yet.
    if not any(source.endswith(".json") for source in sources):
        return []
    from pagelab.observe.difference import read

    documents = [read(Path(source)) for source in sources]
    known = [document for document in documents if document is not None]
    if known and (len(known) < len(documents) or len(known) != 2):
        others = [source for source, document in zip(sources, documents, strict=True) if document is None]
        which = f": {', '.join(others)} is not one" if others else ""
        raise UsageError(
            f"an observation of `pagelab observe --json` is compared with another one, and with nothing else{which}"
        )
    return known


def compare(
    names: Sequence[str], documents: Sequence[dict[str, Any]], outputs: Mapping[str, str | None], refused: Sequence[str]
) -> None:
    """Compares two observations and writes the result.

    Args:
        names: The files.
        documents: The observations in them.
        outputs: Files by option, `-` for standard output.
        refused: Options of other comparisons that were given.
    """
    from pagelab.observe import difference

    if refused:
        raise UsageError(f"{refused[0]} is for results and programs, and not for observations")
    before, after = documents
    changes = difference.differences(before, after, names)
    notes = difference.remarks(before, after)
    changed = sum(one.changed for one in changes)
    note = f"* changed: the interval has no 0 in it. {changed} of {len(changes)} figures changed."
    table = Table(f"{names[0]} and {names[1]}", difference.HEADINGS, difference.rows(changes), note)
    document = json_format.dumps(difference.document(changes, notes), indent=2) + "\n"
    texts = {"--markdown": table.to_markdown(), "--json": document, "--csv": _csv(table)}
    piped = None
    for name, file in outputs.items():
        if file == "-":
            piped = name
        elif file is not None:
            write_atomically(Path(file), texts[name])
    if piped:
        print(texts[piped], end="", flush=True)
    else:
        print_table(table.to_rich())
    for line in notes:
        warn(line)


def _csv(table: Table) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.headings, *table.rows])
    return text.getvalue()
