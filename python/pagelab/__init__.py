"""A laboratory for paging.

Record a program once, replay it under many virtual-memory systems, and see what page tables, page walks and page
faults cost it:

    import pagelab

    results = pagelab.run("gups:size=1GiB,updates=1M", systems=["radix", "nested-radix"])
    print(results.table())
    frame = results.to_polars()
"""

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
from pagelab.catalogue import available, schema
from pagelab.fault_models import FaultStudy, fault_trace_head, fault_trace_info, mfoe
from pagelab.fault_recorder import FaultRecording, record_faults
from pagelab.live import LiveRun, run_live
from pagelab.mrc import MissRatioCurves, miss_ratio_curves
from pagelab.recorder import Program, Recording, record
from pagelab.results import Results, SystemResult
from pagelab.simulation import run
from pagelab.stretches import Stretches
from pagelab.traces import (
    Export,
    Import,
    SavedSample,
    export_trace,
    import_trace,
    save_sample,
    trace_head,
    trace_info,
)

__all__ = [
    "CheckError",
    "ConfigError",
    "Export",
    "FaultRecording",
    "FaultStudy",
    "Import",
    "InternalError",
    "LiveRun",
    "MissRatioCurves",
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
    "available",
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
