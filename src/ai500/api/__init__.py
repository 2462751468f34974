"""The public Python API: everything outside this package is private and may move.

    from ai500.api import load_config, run, open_run

    config = load_config(overrides={"ensemble.size": 4})
    finished = run(config, "runs/mine")
    print(finished.score.vflops)

Names load on first use (PEP 562): `import ai500` stays quick, and a plugin that needs one record
does not load the rest. The records and protocols that plugins use are re-exported from the modules
that define them; the same object is reached either way.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ai500.api.runs import MeterSeries as MeterSeries
    from ai500.api.runs import Plot as Plot
    from ai500.api.runs import Run as Run
    from ai500.api.runs import load_config as load_config
    from ai500.api.runs import open_run as open_run
    from ai500.api.runs import plan as plan
    from ai500.api.runs import resume as resume
    from ai500.api.runs import run as run
    from ai500.bagging.data_sampler import Sampler as Sampler
    from ai500.bagging.member_views import MemberView as MemberView
    from ai500.config import Config as Config
    from ai500.core import __version__ as __version__
    from ai500.core.errors import AI500Error as AI500Error
    from ai500.core.errors import ConfigError as ConfigError
    from ai500.core.errors import DataError as DataError
    from ai500.core.errors import EnvironmentLacksError as EnvironmentLacksError
    from ai500.core.errors import InputError as InputError
    from ai500.core.errors import JobError as JobError
    from ai500.core.errors import RuleError as RuleError
    from ai500.core.errors import RunCancelledError as RunCancelledError
    from ai500.core.errors import RunDetachedError as RunDetachedError
    from ai500.core.errors import RunFolderError as RunFolderError
    from ai500.data.generated import Generated as Generated
    from ai500.data.generated import SampleSource as SampleSource
    from ai500.data.store import Arrays as Arrays
    from ai500.data.store import CheckReport as CheckReport
    from ai500.data.store import DataSource as DataSource
    from ai500.data.store import Problem as Problem
    from ai500.data.store import Samples as Samples
    from ai500.data.store import Store as Store
    from ai500.data.store import StoredSplit as StoredSplit
    from ai500.data.store import StoreReader as StoreReader
    from ai500.frameworks.protocol import Capabilities as Capabilities
    from ai500.frameworks.protocol import Framework as Framework
    from ai500.frameworks.protocol import NodePlace as NodePlace
    from ai500.frameworks.protocol import WorkerCommand as WorkerCommand
    from ai500.jobs.launchers import Container as Container
    from ai500.jobs.launchers import Launcher as Launcher
    from ai500.jobs.launchers import Wrap as Wrap
    from ai500.jobs.schedulers import JobSpec as JobSpec
    from ai500.jobs.schedulers import JobStatus as JobStatus
    from ai500.jobs.schedulers import Scheduler as Scheduler
    from ai500.jobs.schedulers import SchedulerContext as SchedulerContext
    from ai500.jobs.schedulers import SchedulerKind as SchedulerKind
    from ai500.jobs.schedulers import SchedulerUnavailableError as SchedulerUnavailableError
    from ai500.meters import Absent as Absent
    from ai500.meters import Meter as Meter
    from ai500.meters import Part as Part
    from ai500.meters import Reading as Reading
    from ai500.operations import count as count
    from ai500.parallel.collectives import Collective as Collective
    from ai500.parallel.collectives import Ranks as Ranks
    from ai500.parallel.collectives import Traffic as Traffic
    from ai500.parallel.engines import Engine as Engine
    from ai500.pipeline.stages import Observer as Observer
    from ai500.records import Cluster as Cluster
    from ai500.records import EnsembleResult as EnsembleResult
    from ai500.records import Field as Field
    from ai500.records import Hyperparameters as Hyperparameters
    from ai500.records import ParallelPlan as ParallelPlan
    from ai500.records import Plan as Plan
    from ai500.records import ProblemClass as ProblemClass
    from ai500.records import Score as Score
    from ai500.records import Split as Split
    from ai500.records import Task as Task
    from ai500.records import TrainRecord as TrainRecord
    from ai500.records import TrialScore as TrialScore
    from ai500.records.fields import image_fields as image_fields
    from ai500.records.findings import Finding as Finding
    from ai500.records.illustrations import Box as Box
    from ai500.records.illustrations import Chart as Chart
    from ai500.records.illustrations import Drawn as Drawn
    from ai500.records.illustrations import Illustrations as Illustrations
    from ai500.records.illustrations import Kind as Kind
    from ai500.records.illustrations import Line as Line
    from ai500.records.illustrations import Picture as Picture
    from ai500.records.illustrations import Shading as Shading
    from ai500.records.illustrations import Tick as Tick
    from ai500.records.run_folder import MemberFolder as MemberFolder
    from ai500.train.learning_rate import LearningRate as LearningRate
    from ai500.workloads.averaging import average as average
    from ai500.workloads.member_predictions import ArrayPredictions as ArrayPredictions
    from ai500.workloads.member_predictions import MemberPredictions as MemberPredictions
    from ai500.workloads.models.compiled import use_compiler as use_compiler
    from ai500.workloads.protocol import Optimized as Optimized
    from ai500.workloads.protocol import Workload as Workload

EXPORTS: dict[str, tuple[str, ...]] = {
    "ai500.api.runs": (
        "MeterSeries", "Plot", "Run", "load_config", "open_run", "plan", "resume", "run",
    ),
    "ai500.bagging.data_sampler": ("Sampler",),
    "ai500.bagging.member_views": ("MemberView",),
    "ai500.config": ("Config",),
    "ai500.core": ("__version__",),
    "ai500.core.errors": (
        "AI500Error", "ConfigError", "DataError", "EnvironmentLacksError", "InputError",
        "JobError", "RuleError", "RunCancelledError", "RunDetachedError", "RunFolderError",
    ),
    "ai500.data.generated": ("Generated", "SampleSource"),
    "ai500.data.store": (
        "Arrays", "CheckReport", "DataSource", "Problem", "Samples", "Store", "StoreReader",
        "StoredSplit",
    ),
    "ai500.frameworks.protocol": ("Capabilities", "Framework", "NodePlace", "WorkerCommand"),
    "ai500.jobs.launchers": ("Container", "Launcher", "Wrap"),
    "ai500.jobs.schedulers": (
        "JobSpec", "JobStatus", "Scheduler", "SchedulerContext", "SchedulerKind",
        "SchedulerUnavailableError",
    ),
    "ai500.meters": ("Absent", "Meter", "Part", "Reading"),
    "ai500.operations": ("count",),
    "ai500.parallel.collectives": ("Collective", "Ranks", "Traffic"),
    "ai500.parallel.engines": ("Engine",),
    "ai500.pipeline.stages": ("Observer",),
    "ai500.records": (
        "Cluster", "EnsembleResult", "Field", "Hyperparameters", "ParallelPlan", "Plan",
        "ProblemClass", "Score", "Split", "Task", "TrainRecord", "TrialScore",
    ),
    "ai500.records.fields": ("image_fields",),
    "ai500.records.findings": ("Finding",),
    "ai500.records.illustrations": (
        "Box", "Chart", "Drawn", "Illustrations", "Kind", "Line", "Picture", "Shading", "Tick",
    ),
    "ai500.records.run_folder": ("MemberFolder",),
    "ai500.train.learning_rate": ("LearningRate",),
    "ai500.workloads.averaging": ("average",),
    "ai500.workloads.member_predictions": ("ArrayPredictions", "MemberPredictions"),
    "ai500.workloads.models.compiled": ("use_compiler",),
    "ai500.workloads.protocol": ("Optimized", "Workload"),
}  # fmt: skip
"""Module → names it defines; a test holds the imports above equal to this table."""

_HOME = {name: module for module, names in EXPORTS.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Load an exported name on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the exported names, loaded or not."""
    return __all__
