"""Small runs of every workload, and what a disturbed one must have in common with them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ai500.records import TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.workloads.protocol import load_workload
from tests.support import searches

SCORE_KEYS = ("operations", "ensemble_quality", "members_mean_quality", "out_of_bag_quality")


@dataclass(frozen=True)
class Ensemble:
    """A run that takes seconds: its data and its settings."""

    workload: str
    samples: tuple[int, int]
    """Training and validation samples."""
    epochs: int
    size: int = 2
    degree: int = 1
    frame: tuple[int, int] | None = None
    """Height and width of the frames, where the data generator can change them."""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of its folders."""
        return f"{self.workload}-{self.size}x{self.degree}"

    @property
    def is_search(self) -> bool:
        """True of a search, whose models depend on the time that it is given."""
        return self.workload == "automl"

    def write_store(self, folder: Path) -> Path:
        """Generate its data, or keep what is there."""
        workload = load_workload(self.workload)
        train, validation = self.samples
        definition = replace(
            workload.problem_classes["smoke"],
            train_samples=train,
            validation_samples=validation,
            store_sha256=None,
        )
        source = workload.data_source(definition)
        assert source is not None
        if self.frame is not None:
            source = source.resized(train + validation, height=self.frame[0], width=self.frame[1])
        path = folder / "store"
        source.write_store(path, name=self.workload, problem_class=definition)
        return path

    def arguments(self, store: Path, run: Path) -> list[str | Path]:
        """Return the words of `ai500 run`."""
        values = {
            "ensemble.size": self.size,
            "parallel.degree": self.degree,
            "train.epochs": self.epochs,
            # A checkpoint every few steps: a fault finds training between two of them.
            "train.checkpoint_minutes": 0.002,
            "scheduler.poll_seconds": 0.05,
            "system.accelerators_per_node": self.size * self.degree,
            "system.cores_per_slot": 1,
            **self.settings,
        }
        pairs = [
            p for key, value in values.items() for p in ("--set", f"{key}={json.dumps(value)}")
        ]
        return ["run", "--workload", self.workload, "--data", store, "--out", run, *pairs]

    def result(self, run: Path) -> dict[str, Any]:
        """Return what a disturbed run must have in common with an undisturbed one.

        The models of a search depend on the time it had; that nothing is lost or counted twice is
        checked instead.
        """
        if self.is_search:
            searches.check(run, workers=self.size)
            return {}
        trial = RunFolder(run).trial(1)
        members = [trial.member(number) for number in range(self.size)]
        score = json.loads(RunFolder(run).score.read_text(encoding="utf-8"))
        return {
            "weights": [run_folder.read(TrainRecord, m.record).weights_sha256 for m in members],
            "validation": [_sha256(m.validation) for m in members],
            "out_of_bag": [_sha256(m.out_of_bag) for m in members],
            "score": [score[key] for key in SCORE_KEYS],
        }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


RETRIES = {"scheduler.max_retries": 1}
ENSEMBLES = (
    Ensemble("image_classification", (128, 64), epochs=6, size=1, degree=2),
    Ensemble("cosmology", (16, 8), epochs=2, size=1),
    Ensemble("image_classification", (128, 64), epochs=6, settings=RETRIES),
    Ensemble("language_model", (64, 32), epochs=3, size=1, degree=2, settings=RETRIES),
    Ensemble("climate_segmentation", (12, 6), epochs=2, size=1),
    Ensemble("extreme_weather", (12, 4), epochs=2, size=1, frame=(96, 144)),
    Ensemble(
        "automl", (256, 64), epochs=2, size=1,
        settings={"automl.minutes": 60, "automl.max_growth": 1.01, "automl.batch_sizes": [32, 64]},
    ),
)  # fmt: skip
