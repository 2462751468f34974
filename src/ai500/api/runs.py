"""Runs from Python: load a configuration, plan, run, resume, open a finished run and read it."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ai500 import config as configuration
from ai500.config import Config
from ai500.core import events as event_log
from ai500.core.errors import EnvironmentLacksError, InputError
from ai500.core.schema import nearest
from ai500.core.units import human_seconds, human_si
from ai500.meters.log import read_meters
from ai500.pipeline import scoring, stages
from ai500.pipeline.reporting import program_report
from ai500.pipeline.session import Observer, Silent
from ai500.records import EnsembleResult, Plan, Score, TrainRecord, run_folder
from ai500.records.findings import Finding
from ai500.records.run_folder import RunFolder
from ai500.report.run_data import read_run_data
from ai500.report.run_report import report_page
from ai500.report.section import Figure, figures_of, slug

if TYPE_CHECKING:
    import pandas as pd

FolderPath = str | PathLike[str]
Table = Literal["trials", "members", "events", "meters"]


def load_config(
    path: FolderPath | None = None, *, overrides: Mapping[str, Any] | None = None
) -> Config:
    """Read a configuration file, or the defaults without one, with dotted keys over it."""
    return configuration.load(None if path is None else Path(path), overrides=dict(overrides or {}))


def plan(config: Config) -> Plan:
    """Plan a run on this machine or the cluster the configuration names; nothing is written."""
    return stages.make_plan(config)[1]


def run(config: Config, folder: FolderPath, *, observer: Observer | None = None) -> Run:
    """Run every stage in a new folder and return the finished run.

    Training starts processes that import the calling script again: guard it with
    `if __name__ == "__main__":`.
    """
    return _execute(stages.prepare(config, Path(folder)), observer)


def resume(folder: FolderPath, *, observer: Observer | None = None) -> Run:
    """Run the stages of a run folder that are not done yet; nothing finished is repeated."""
    return _execute(RunFolder.open(Path(folder)), observer)


def open_run(folder: FolderPath) -> Run:
    """Open a run folder for reading."""
    return Run(RunFolder.open(Path(folder)))


def _execute(folder: RunFolder, observer: Observer | None) -> Run:
    stages.execute(folder, observer or Silent())
    return Run(folder)


@dataclass(frozen=True)
class MeterSeries:
    """One quantity of one device of one node over time."""

    node: str
    meter: str
    device: str
    quantity: str
    times: tuple[float, ...]
    """Wall-clock seconds since the epoch."""
    values: tuple[float, ...]


@dataclass(frozen=True)
class Plot:
    """A figure as SVG text, shown by notebooks as it is."""

    title: str
    svg: str
    caption: str

    def save(self, path: FolderPath) -> None:
        """Write the figure as an SVG file."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg


class Run:
    """A run folder, read on demand: each property reads the records as they are now."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._folder.path

    @property
    def config(self) -> Config:
        """The configuration the run was started with."""
        return configuration.load(self._folder.config)

    @property
    def plan(self) -> Plan:
        """The plan: degrees, mapping, operations."""
        return run_folder.read(Plan, self._folder.plan)

    @property
    def state(self) -> Literal["running", "finished", "stopped"]:
        """Whether a controller is attached, every trial is scored, or neither."""
        return scoring.state_of(self._folder, self.plan)

    @property
    def score(self) -> Score:
        """The run's score, recomputed from its events."""
        return scoring.score_from_events(self._folder)[2]

    @property
    def trials(self) -> tuple[Any, ...]:
        """The score of each trial."""
        return self.score.trials

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the newest rule set at hardware level."""
        return tuple(scoring.judge_run(self._folder)[1].findings)

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self._folder.report

    def members(self, trial: int = 1) -> list[TrainRecord]:
        """Read the records of the members that finished a trial."""
        folder = self._folder.trial(trial)
        paths = [folder.member(member).record for member in range(self.plan.ensemble_size)]
        return [run_folder.read(TrainRecord, path) for path in paths if path.exists()]

    def ensemble(self, trial: int = 1) -> EnsembleResult:
        """Read the aggregated result of a trial."""
        return run_folder.read(EnsembleResult, self._folder.trial(trial).ensemble)

    def events(
        self, kind: str | None = None, *, trial: int | None = None
    ) -> Iterator[event_log.Event]:
        """Yield the run's events in order, of one kind or one trial where given."""
        for event in event_log.read(self._folder.events):
            if kind in (None, event["event"]) and trial in (None, event.get("trial")):
                yield event

    def meters(self, trial: int = 1) -> list[MeterSeries]:
        """Read every series that the meters of a trial recorded."""
        points: dict[tuple[str, str, str, str], list[tuple[float, float]]] = {}
        for node in read_meters(self._folder.trial(trial).meters):
            for sample in node.samples:
                for column, value in zip(sample.columns, sample.values, strict=True):
                    if value is not None:
                        key = (node.name, column.meter, column.device, column.quantity)
                        points.setdefault(key, []).append((sample.clocks["wall"], value))
        return [
            MeterSeries(*key, *(tuple(axis) for axis in zip(*sorted(series), strict=True)))
            for key, series in points.items()
        ]

    def frame(self, table: Table, *, trial: int = 1) -> pd.DataFrame:
        """Return a table as a pandas data frame: trials, members, events or meters."""
        pandas = _pandas()
        match table:
            case "trials":
                return pandas.DataFrame([_flat(score) for score in self.trials])
            case "members":
                return pandas.DataFrame([_flat(record) for record in self.members(trial)])
            case "events":
                return pandas.DataFrame(list(self.events()))
            case "meters":
                return pandas.concat(
                    [pandas.DataFrame(dataclasses.asdict(series)) for series in self.meters(trial)]
                    or [pandas.DataFrame()],
                    ignore_index=True,
                )
        raise InputError(
            f"no table {table!r}.", value=table, remedy="Ask for trials, members, events or meters."
        )

    def plots(self) -> list[str]:
        """List the names of the report's figures."""
        return list(self._figures())

    def plot(self, name: str = "") -> Plot:
        """Return the first figure of the report whose name begins so."""
        figures = self._figures()
        for known, figure in figures.items():
            if known.startswith(name):
                return Plot(figure.title, str(figure.svg), figure.caption)
        raise InputError(f"no figure {name!r}; {nearest(name, list(figures))}", value=name)

    def _figures(self) -> dict[str, Figure]:
        """Return the figures that have a chart, by the slug of their title."""
        sections = report_page(read_run_data(self._folder), program_report).sections
        figures = [figure for section in sections for figure in figures_of(section.blocks)]
        return {slug(figure.title): figure for figure in figures if figure.chart is not None}

    def _repr_html_(self) -> str:
        """Show the score in a notebook."""
        score, plan = self.score, self.plan
        rows = {
            "VFLOPS": human_si(score.vflops) + "FLOPS",
            "FLOPS": human_si(score.flops) + "FLOPS",
            score.quality_name: f"{score.ensemble_quality:.4f} (target {score.target_quality:g})",
            "time to quality": human_seconds(score.time_to_quality_seconds),
            "ensemble": f"M = {plan.ensemble_size}, P_degree = {plan.parallel_degree}",
            "trials": str(len(score.trials)),
        }
        body = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in rows.items()
        )
        title = html.escape(f"{self.path.name}: {score.workload}, class {score.problem_class}")
        return f"<table><caption>{title}</caption>{body}</table>"


def _flat(record: Any) -> dict[str, Any]:
    """Return a record's own values, without records inside it."""
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: value for name, value in values.items() if not dataclasses.is_dataclass(value)}


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise EnvironmentLacksError(
            "data frames need pandas, which is not installed here.", remedy="pip install pandas"
        ) from error
    return pandas
