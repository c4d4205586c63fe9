"""The options of a run: one list, and every place that names them agrees with it."""

import inspect
import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.testing

import pagelab as package
from pagelab import _engine
from pagelab.cli.application import application
from pagelab.comparison.sides import ReplayOptions
from pagelab.replay.simulation import Settings, request
from pagelab.results.request import Request
from pagelab.run_options import OPTIONS, Kind, Run, RunOption, Sweep
from pagelab.sweep.specification import Run as SweepRun
from pagelab.sweep.specification import Sweep as SweepPlan
from pagelab.sweep.specification import parse

# What `pagelab run` has beside the options of a run: what is shown, where to, and how a live run records.
_OF_THE_COMMAND = {
    *("--full", "--json", "--report", "--quiet"),
    *("--live", "--cpus", "--skip", "--windows", "--start-at", "--stop-at", "--start-on-signal", "--follow"),
}
# What results keep of a live run's recording.
_OF_LIVE_RUNS = {"command", "cpus", "max_threads", "follow", "stretches"}


def _names(options: Iterable[RunOption]) -> set[str]:
    return {option.name for option in options}


def _typed(schema: dict[str, Any]) -> tuple[set[str], bool]:
    """The types of JSON that a property takes, and whether a number may be 0."""
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return set(types) - {"null"}, schema.get("minimum", 0) == 0


def test_every_option_is_declared_once() -> None:
    assert len(_names(OPTIONS)) == len(OPTIONS)
    assert len({option.key for option in OPTIONS}) == len(OPTIONS)


def test_the_engine_takes_these_options_and_no_others() -> None:
    properties = json.loads(_engine.request_schema_json())["properties"]
    assert set(properties) == {option.key for option in OPTIONS}
    types = {
        Kind.SOURCES: "array",
        Kind.SYSTEMS: "array",
        Kind.OVERRIDES: "array",
        Kind.PRESET: "string",
        Kind.SAMPLE: "string",
        Kind.COUNT: "integer",
        Kind.POSITIVE: "integer",
        Kind.SWITCH: "boolean",
        # Whether there is one; the file itself is written by the bindings.
        Kind.OUTPUT: "boolean",
    }
    for option in OPTIONS:
        assert _typed(properties[option.key]) == ({types[option.kind]}, True), option.name


def test_functions_take_these_options_and_no_others() -> None:
    assert set(inspect.signature(package.run).parameters) == _names(OPTIONS) | {"progress"}
    live = _names(option for option in OPTIONS if option.runs is Run.ALL)
    assert set(Settings.__annotations__) | {"systems"} == live
    assert "systems" in inspect.signature(package.run_live).parameters


def test_every_option_is_described() -> None:
    described = inspect.getdoc(package.run) or ""
    for option in OPTIONS:
        assert f"\n    {option.name}: " in described, option.name


def test_requests_hold_these_options() -> None:
    asked = request({"systems": "radix", "with_": "seq", "sample": True, "max_accesses": "2K"})
    assert set(asked) == {option.key for option in OPTIONS if option.is_asked}
    assert (asked["with"], asked["sample"], asked["max_accesses"]) == (["seq"], "auto", 2000)
    live = request({"systems": "radix"}, live=True)
    assert set(live) == {option.key for option in OPTIONS if option.runs is Run.ALL} | {"sources"}


def test_results_keep_what_decides_them() -> None:
    kept = _names(option for option in OPTIONS if option.is_kept)
    assert {field.name for field in fields(Request)} == kept | _OF_LIVE_RUNS


def test_the_command_has_these_options_and_no_others() -> None:
    group = typer.main.get_command(application())
    run = group.commands["run"]  # type: ignore[attr-defined]
    options = {parameter.name: set(parameter.opts) for parameter in run.params if parameter.opts[0].startswith("-")}
    named = {option.command for option in OPTIONS if option.command}
    offered = set().union(*options.values())
    assert named <= offered
    of_options = {name for name, words in options.items() if words & named}
    others = {word for name, words in options.items() if name not in of_options for word in words if word[:2] == "--"}
    assert others - {"--help"} == _OF_THE_COMMAND


def _command(options: Iterable[RunOption]) -> list[str]:
    """A command that gives each of these options another value than its default."""
    values: dict[Kind, Any] = {
        Kind.SOURCES: ["seq"],
        Kind.SYSTEMS: ["nested-radix"],
        Kind.OVERRIDES: ["kernel.pcids=4"],
        Kind.PRESET: "preset",
        Kind.SAMPLE: "auto",
        Kind.COUNT: 7,
        Kind.POSITIVE: 7,
        Kind.SWITCH: True,
    }
    return Request.from_document({option.key: values[option.kind] for option in options}).again().split()


_SHOWN = [option for option in OPTIONS if option.is_kept and option.command is not None]


def test_a_request_becomes_a_command_that_has_every_option() -> None:
    words = _command(_SHOWN)
    for option in _SHOWN:
        if option.command:
            assert option.command in words, option.name


def test_the_command_passes_every_option_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def run(sources: list[str], systems: list[str], **options: Any) -> None:
        given.update(options, sources=sources, systems=systems)
        raise package.UsageError("this is far enough")

    monkeypatch.setattr(package, "run", run, raising=False)
    others = ["--threads", "7", "--faults", str(tmp_path / "a.faults")]
    typer.testing.CliRunner().invoke(application(), [*_command(_SHOWN)[1:], *others])
    for option in OPTIONS:
        if option.command is not None:
            assert given[option.name] not in (None, [], False), option.name


def test_a_sweep_has_the_options_that_the_list_gives_it() -> None:
    of_runs = _names(option for option in OPTIONS if option.sweep is Sweep.GRID)
    assert {field.name for field in fields(SweepRun)} == {"sources", "system", "machine", "kernel", "set", "seed"}
    assert of_runs == {"sources", "systems", "with_", "arrivals", "machine", "kernel", "seed"}
    whole = _names(option for option in OPTIONS if option.sweep is Sweep.WHOLE)
    assert whole <= {field.name for field in fields(SweepPlan)}
    (run,) = parse({"grid": {"sources": "seq"}}).runs
    # Each process of a sweep simulates one system.
    assert set(SweepPlan((run,)).request(run)) == of_runs | whole | {"threads"}


@pytest.mark.parametrize("option", [option.name for option in OPTIONS if option.sweep is Sweep.ABSENT])
def test_a_sweep_refuses_other_options(option: str) -> None:
    with pytest.raises(package.UsageError, match=f"{option}: unknown key"):
        parse({"grid": {"sources": "seq"}, option: 1})


def test_a_comparison_has_no_options_of_its_own() -> None:
    assert {field.name for field in fields(ReplayOptions)} <= _names(OPTIONS) | {"seeds"}
