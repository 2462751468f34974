"""Records: the typed contents of the run folder. Each stage reads records and writes records.

    Plan → BootstrapRecord[M] → Placement[nodes] → Task[M] → JobRecord[M] → TrainRecord[M]
         → EnsembleResult → Score → Finding[]

A value that was not measured is None.
"""

from ai500.records.fields import (
    Field,
)
from ai500.records.plan import (
    OFFICIAL_CONVENTION,
    Communication,
    FrameworkChoice,
    MemberMapping,
    Operations,
    Parallelism,
    Plan,
    Share,
    Sharing,
)
from ai500.records.problem import (
    CustomClass,
    Hyperparameters,
    ParallelPlan,
    ProblemClass,
    Split,
    SplitKind,
)
from ai500.records.profiling import (
    Profiling,
)
from ai500.records.results import (
    EnsembleResult,
    RunState,
    Score,
    ScoreFigures,
    TrialScore,
    known,
)
from ai500.records.search import (
    Improvement,
    InitialNetwork,
    Search,
    SearchFigures,
    SearchScore,
    TrialSearchScore,
)
from ai500.records.system import (
    Cluster,
    Node,
    Slot,
    System,
)
from ai500.records.training import (
    BootstrapRecord,
    JobRecord,
    JobState,
    Placement,
    Progress,
    Task,
    TrainRecord,
    TrialRecord,
)

__all__ = [
    "OFFICIAL_CONVENTION",
    "BootstrapRecord",
    "Cluster",
    "Communication",
    "CustomClass",
    "EnsembleResult",
    "Field",
    "FrameworkChoice",
    "Hyperparameters",
    "Improvement",
    "InitialNetwork",
    "JobRecord",
    "JobState",
    "MemberMapping",
    "Node",
    "Operations",
    "ParallelPlan",
    "Parallelism",
    "Placement",
    "Plan",
    "ProblemClass",
    "Profiling",
    "Progress",
    "RunState",
    "Score",
    "ScoreFigures",
    "Search",
    "SearchFigures",
    "SearchScore",
    "Share",
    "Sharing",
    "Slot",
    "Split",
    "SplitKind",
    "System",
    "Task",
    "TrainRecord",
    "TrialRecord",
    "TrialScore",
    "TrialSearchScore",
    "known",
]
