"""Groups of options in `--help`: the first list has the options that most users need, and none that needs another."""

_PARTS = "Parts of a long program"
_OUTPUT = "Output"
_SIMULATION = "How it is simulated"
_SOURCES = "Programs beside the main ones"

_EVERYWHERE = {
    **dict.fromkeys(("skip", "windows", "start_at", "stop_at", "start_on_signal", "follow"), _PARTS),
    **dict.fromkeys(("output", "json", "json_", "report", "picture", "full", "faults", "profile", "quiet"), _OUTPUT),
    **dict.fromkeys(("seed", "threads", "check", "interleavings", "sample", "max_accesses", "warm_up"), _SIMULATION),
    **dict.fromkeys(("with_", "arrivals"), _SOURCES),
}
"""Groups by the option's name, in all commands unless the next table says otherwise"""

_BY_COMMAND: dict[str, dict[str, str | None]] = {
    "run": {
        **dict.fromkeys(("cpus", "skip", "windows", "start_at", "stop_at", "start_on_signal", "follow"), "With --live")
    },
    "record": {
        **dict.fromkeys(("max_accesses", "max_bytes", "max_seconds"), "What ends it early"),
        **dict.fromkeys(("max_threads", "dependencies", "anonymous", "stacks"), "What is recorded"),
        "force": _OUTPUT,
        "faults": None,
    },
    "anonymize": {"output": None},
    "advise": {
        "repeat": "With --check",
        "whole": _SIMULATION,
        **dict.fromkeys(("keep", "stdout", "max_accesses"), "Of a program to record"),
    },
    "calibrate": dict.fromkeys(("on", "size", "faults", "runs", "cpu", "memory", "footprint"), "With --major-faults"),
    "measure": {
        **dict.fromkeys(("machine", "nested", "traces", "trace", "windows", "whole"), "With --replay or --trace")
    },
    "mrc": {"sample": None, "seed": None, "max_accesses": None},
    "sample": {"sample": None, "seed": None, "output": None},
    "import": {"output": None},
    "export": {"output": None},
    "observe": {"keep": "With --rotate"},
    "report": {"output": None},
    "stacks": {"output": None, "sources": "With --annotate", "rows": "Of tables", "depth": "Of tables"},
    "sweep": {"output": None},
    "reproduce": {"output": None, "with_": None},
}


def group_of(command: str, option: str) -> str | None:
    """The group of a command's option; none for the main list."""
    own = _BY_COMMAND.get(command, {})
    return own[option] if option in own else _EVERYWHERE.get(option)
