"""Valid combinations of [train]'s settings, checked at plan time without torch.

A key that has no effect is refused, not ignored: its author expects an effect.
"""

from __future__ import annotations

from ai500.config import Config
from ai500.core.errors import ConfigError
from ai500.records import Hyperparameters

OPTIMIZERS_WITH: dict[str, tuple[str, ...]] = {
    "momentum": ("sgd", "sgd_no_vector_decay", "lars"),
    "betas": ("adam", "adamw", "lamb"),
    "epsilon": ("adam", "adamw", "adagrad", "lamb"),
    "trust_coefficient": ("lars",),
}
SCHEDULES_WITH: dict[str, tuple[str, ...]] = {
    "decay_epochs": ("step",),
    "decay_power": ("polynomial", "inverse_time"),
}
_BUILT_IN = {name for names in OPTIMIZERS_WITH.values() for name in names}
_SCHEDULES = {"cosine", "step", "polynomial", "inverse_time"}


def check_training(config: Config, hyper: Hyperparameters) -> None:
    """Raise ConfigError for an invalid combination; plugins are not checked."""
    if hyper.optimizer in _BUILT_IN:
        _check_used(config, OPTIMIZERS_WITH, key="optimizer", chosen=hyper.optimizer)
    if hyper.schedule in _SCHEDULES:
        _check_used(config, SCHEDULES_WITH, key="schedule", chosen=hyper.schedule)
    # Only a stated warm-up: the class's own may be longer than a training shortened for a test.
    if (config.train.warmup_epochs or 0) > hyper.epochs:
        raise ConfigError(
            f"train.warmup_epochs = {hyper.warmup_epochs:g} is more than train.epochs = "
            f"{hyper.epochs}: the learning rate would never reach its peak.",
            key="train.warmup_epochs",
            value=hyper.warmup_epochs,
            remedy=f"Set at most {hyper.epochs}.",
        )
    if not all(0 <= beta < 1 for beta in hyper.betas):
        raise ConfigError(
            f"train.betas = {list(hyper.betas)}: each is at least 0 and less than 1, "
            "such as [0.9, 0.999].",
            key="train.betas",
            value=hyper.betas,
        )
    _check_decay_epochs(hyper)


def _check_used(
    config: Config, users: dict[str, tuple[str, ...]], *, key: str, chosen: str
) -> None:
    for name, names in users.items():
        value = getattr(config.train, name)
        if value is not None and chosen not in names:
            raise ConfigError(
                f'train.{name} = {value} has no effect with train.{key} = "{chosen}": it belongs '
                f"to {' and '.join(names)}.",
                key=f"train.{name}",
                value=value,
                remedy=f"Leave it out, or change train.{key}.",
            )


def _check_decay_epochs(hyper: Hyperparameters) -> None:
    if hyper.schedule != "step":
        return
    epochs = hyper.decay_epochs
    if not epochs:
        raise ConfigError(
            'train.schedule = "step" needs train.decay_epochs: the epochs at which the rate is '
            "divided by ten, such as [30, 60, 80].",
            key="train.decay_epochs",
        )
    if list(epochs) != sorted(set(epochs)) or epochs[0] < 1 or epochs[-1] >= hyper.epochs:
        raise ConfigError(
            f"train.decay_epochs = {list(epochs)}: state them in ascending order, each at least 1 "
            f"and less than train.epochs = {hyper.epochs}.",
            key="train.decay_epochs",
            value=epochs,
        )
