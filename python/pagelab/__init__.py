"""A laboratory for paging.

Record a program once, replay it under many virtual-memory systems, and see what page tables, page walks and page
faults cost it:

    import pagelab

    results = pagelab.run("gups:size=1GiB,updates=1M", systems=["radix", "nested-radix"])
    print(results.table())
    frame = results.to_polars()
"""

TYPE_CHECKING = False
"""As in `typing`, whose import would take longer than the command may take before it can handle Ctrl-C"""

if TYPE_CHECKING:
    from pagelab import sweep
    from pagelab._engine import (
        CheckError,
        ConfigError,
        InternalError,
        OutOfMemoryError,
        PagelabError,
        TraceError,
        UsageError,
        __version__,
    )
    from pagelab.capture.recorder import Program, Recording, record
    from pagelab.capture.stretches import Stretches
    from pagelab.capture.traces import (
        Export,
        Import,
        SavedSample,
        anonymize_trace,
        export_trace,
        import_trace,
        save_sample,
        trace_head,
        trace_info,
    )
    from pagelab.catalogue import available, schema
    from pagelab.comparison.compare import compare
    from pagelab.comparison.compared import Comparison, NotComparableError
    from pagelab.faults.models import FaultStudy, fault_trace_head, fault_trace_info, mfoe
    from pagelab.faults.recorder import FaultRecording, record_faults
    from pagelab.mrc.curves import MissRatioCurves, miss_ratio_curves
    from pagelab.replay.live import LiveRun, run_live
    from pagelab.replay.simulation import run
    from pagelab.results.results import Results, SystemResult

__all__ = [
    "CheckError",
    "Comparison",
    "ConfigError",
    "Export",
    "FaultRecording",
    "FaultStudy",
    "Import",
    "InternalError",
    "LiveRun",
    "MissRatioCurves",
    "NotComparableError",
    "OutOfMemoryError",
    "PagelabError",
    "Program",
    "Recording",
    "Results",
    "SavedSample",
    "Stretches",
    "SystemResult",
    "TraceError",
    "UsageError",
    "__version__",
    "anonymize_trace",
    "available",
    "compare",
    "export_trace",
    "fault_trace_head",
    "fault_trace_info",
    "import_trace",
    "mfoe",
    "miss_ratio_curves",
    "record",
    "record_faults",
    "run",
    "run_live",
    "save_sample",
    "schema",
    "sweep",
    "trace_head",
    "trace_info",
]

_MODULES = {
    "_engine": (
        "CheckError",
        "ConfigError",
        "InternalError",
        "OutOfMemoryError",
        "PagelabError",
        "TraceError",
        "UsageError",
        "__version__",
    ),
    "catalogue": (
        "available",
        "schema",
    ),
    "comparison.compare": ("compare",),
    "comparison.compared": (
        "Comparison",
        "NotComparableError",
    ),
    "faults.models": (
        "FaultStudy",
        "fault_trace_head",
        "fault_trace_info",
        "mfoe",
    ),
    "faults.recorder": (
        "FaultRecording",
        "record_faults",
    ),
    "replay.live": (
        "LiveRun",
        "run_live",
    ),
    "mrc.curves": (
        "MissRatioCurves",
        "miss_ratio_curves",
    ),
    "capture.recorder": (
        "Program",
        "Recording",
        "record",
    ),
    "results.results": (
        "Results",
        "SystemResult",
    ),
    "replay.simulation": ("run",),
    "capture.stretches": ("Stretches",),
    "capture.traces": (
        "Export",
        "Import",
        "SavedSample",
        "anonymize_trace",
        "export_trace",
        "import_trace",
        "save_sample",
        "trace_head",
        "trace_info",
    ),
}
"""Where the names above are defined. They are imported when they are first used: the command must answer Ctrl-C before
all of pagelab is loaded."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        for module, names in _MODULES.items():
            if name in names:
                value = getattr(import_module(f"pagelab.{module}"), name)
                globals()[name] = value
                return value
        if name in __all__:
            return import_module(f"pagelab.{name}")
        if renamed := import_module("pagelab.renamed").complaint([f"pagelab.{name}"]):
            raise AttributeError(renamed)
        raise AttributeError(f"module 'pagelab' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
