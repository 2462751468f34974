"""Records: the typed contents of the run folder. Each stage reads records and writes records.

    Plan → BootstrapRecord[M] → Placement[nodes] → Task[M] → JobRecord[M] → TrainRecord[M]
         → EnsembleResult → Score → Finding[]

A value that was not measured is None.
"""

from ai500.records.fields import Field as Field
from ai500.records.plan import OFFICIAL_CONVENTION as OFFICIAL_CONVENTION
from ai500.records.plan import Communication as Communication
from ai500.records.plan import FrameworkChoice as FrameworkChoice
from ai500.records.plan import MemberMapping as MemberMapping
from ai500.records.plan import NodeSlots as NodeSlots
from ai500.records.plan import Operations as Operations
from ai500.records.plan import OwnCode as OwnCode
from ai500.records.plan import Parallelism as Parallelism
from ai500.records.plan import Plan as Plan
from ai500.records.plan import Sharing as Sharing
from ai500.records.plan import list_operators as list_operators
from ai500.records.plan import most_uncounted as most_uncounted
from ai500.records.problem import CustomClass as CustomClass
from ai500.records.problem import Hyperparameters as Hyperparameters
from ai500.records.problem import ParallelPlan as ParallelPlan
from ai500.records.problem import ProblemClass as ProblemClass
from ai500.records.problem import Split as Split
from ai500.records.problem import SplitKind as SplitKind
from ai500.records.profiling import Profiling as Profiling
from ai500.records.results import EnsembleResult as EnsembleResult
from ai500.records.results import RunState as RunState
from ai500.records.results import Score as Score
from ai500.records.results import ScoreFigures as ScoreFigures
from ai500.records.results import TrialScore as TrialScore
from ai500.records.results import require as require
from ai500.records.search import Improvement as Improvement
from ai500.records.search import InitialNetwork as InitialNetwork
from ai500.records.search import Search as Search
from ai500.records.search import SearchFigures as SearchFigures
from ai500.records.search import SearchScore as SearchScore
from ai500.records.search import TrialSearchScore as TrialSearchScore
from ai500.records.system import Cluster as Cluster
from ai500.records.system import JobLimits as JobLimits
from ai500.records.system import Node as Node
from ai500.records.system import QosLimits as QosLimits
from ai500.records.system import Slot as Slot
from ai500.records.system import System as System
from ai500.records.training import BootstrapRecord as BootstrapRecord
from ai500.records.training import JobRecord as JobRecord
from ai500.records.training import JobState as JobState
from ai500.records.training import Placement as Placement
from ai500.records.training import Progress as Progress
from ai500.records.training import Task as Task
from ai500.records.training import TrainRecord as TrainRecord
from ai500.records.training import TrialRecord as TrialRecord
from ai500.records.worker_exit import WorkerExit as WorkerExit
