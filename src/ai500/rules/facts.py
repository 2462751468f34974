"""Facts of a run, layer by layer: what the workers recorded beside what the class prescribes.

`check` shows the facts, the rules compare them with the reference, `compare` shows
the differences between two runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from ai500.core import plugins, units
from ai500.frameworks.protocol import OTHER_FRAMEWORKS
from ai500.records import TrainRecord
from ai500.rules.evidence import Evidence, Fact, effective, optimizer_groups
from ai500.train.choices import OPTIMIZERS_WITH

T = TypeVar("T", str, str | None)

# Optimizers that V2 §5.1.2 counts as learning-rate policies.
LEARNING_RATE_POLICIES = ("lars", "lamb")
# tests/train/test_engines.py holds these modes equal to training in one process.
EQUIVALENT_MODES = ("data", "tensor", "pipeline", "mixed")
# V2 §5.1.7 and V3 Table 2; ai500 has no INT4 kernels, a framework of one's own may.
PRECISIONS = ("fp32", "tf32", "mixed-bf16", "mixed-fp16", "fp16", "fp8", "int8", "int4")
# V3 §3.3: the number of times a sample is drawn follows Poisson(1), exactly or in the limit.
SAMPLERS = ("bootstrap", "poisson")
OPTIMIZER_CLASSES = {
    "sgd": "torch.optim.sgd.SGD",
    "sgd_no_vector_decay": "torch.optim.sgd.SGD",
    "adam": "torch.optim.adam.Adam",
    "adamw": "torch.optim.adamw.AdamW",
    "adagrad": "torch.optim.adagrad.Adagrad",
    "lars": "ai500.train.optimizers.LARS",
    "lamb": "ai500.train.optimizers.LAMB",
}
# Characters of a SHA-256 that are shown; all are compared.
DIGEST_LENGTH = 16
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
ONE_BATCH = "an accelerator's batch"
AXES = ("data", "pipeline", "tensor")


def ensemble_facts(evidence: Evidence) -> Iterator[Fact]:
    """Yield the facts of an ensemble, the problem domain's first and the hardware's last."""
    yield from problem_facts(evidence)
    yield from _epochs(evidence)
    yield from _hyperparameters(evidence)
    yield from _workload(evidence)
    yield from system_facts(evidence)


def system_facts(evidence: Evidence) -> Iterator[Fact]:
    """Yield the facts of layers 6 to 1, which every program has."""
    yield from _programming_model(evidence)
    yield from _framework(evidence)
    yield from _accelerators(evidence)
    yield from _communication(evidence)
    yield from _machine(evidence)


def as_text(value: Any) -> str:
    """Format a value as it is shown and compared."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        text = f"{value:.6g}"  # 2 and 2.0 print alike
        return text if float(text) == value else repr(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value)) or "none"
    return str(value)


def of_members(evidence: Evidence, read: Callable[[TrainRecord], Any]) -> str | None:
    """Join the distinct values that members recorded; None: no member recorded one."""
    values = [read(member) for member in evidence.members]
    texts = sorted({as_text(value) for value in values if value is not None})
    if texts and None in values:
        texts.append("not recorded")
    return " and ".join(texts) if texts else None


def ranges(numbers: Any) -> str | None:
    """Format 1, 2, 3, 5 as '1–3, 5'; return None for anything but a list of integers."""
    if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
        return None
    return units.ranges(numbers) or "none"


def recorded(evidence: Evidence, *path: str) -> str | None:
    """Join the distinct values that workers recorded under a path."""
    return of_members(evidence, lambda member: effective(member, *path))


def shorten(digest: str) -> str:
    """Cut a SHA-256 to a length that can be compared by eye."""
    return f"{digest[:DIGEST_LENGTH]}…" if len(digest) > DIGEST_LENGTH else digest


def shown(reference: T, run: T) -> tuple[T, T]:
    """Shorten the digests of two values, unless different ones would then look equal."""
    digests = {digest for text in (reference, run) for digest in _DIGEST.findall(text or "")}
    if len(digests) > len(set(map(shorten, digests))):
        return reference, run
    short = [
        _DIGEST.sub(lambda match: shorten(match[0]), text) if isinstance(text, str) else text
        for text in (reference, run)
    ]
    return short[0], short[1]


def problem_facts(evidence: Evidence) -> Iterator[Fact]:
    """Yield the data set and the target quality (layer 9)."""
    reference, definition = evidence.reference, evidence.plan.definition
    advice = "Leave data.path out."
    stores = of_members(evidence, lambda member: _digest(member, "data", "store_sha256"))
    placed = {placement.store_sha256 for placement in evidence.placements}
    expected = reference.store_sha256
    yield Fact(
        "data set", "data's SHA-256", expected, _joined(stores, placed), advice,
    )  # fmt: skip
    for split in ("train", "validation"):
        field = f"{split}_samples"
        expected, planned = (as_text(getattr(d, field)) for d in (reference, definition))
        read = recorded(evidence, "data", "samples", split)
        yield Fact("data set", f"{split} samples", expected, _joined(read, {planned}), advice)
    for name, field in (("classes", "classes"), ("model's input", "input_shape")):
        expected, planned = (as_text(getattr(d, field)) for d in (reference, definition))
        yield Fact("data set", name, expected, planned, advice)
    qualities = sorted({evidence.score.target_quality, definition.target_quality})
    yield Fact(
        "target quality", "target quality",
        f"{as_text(reference.target_quality)}, n = {reference.penalty_exponent}",
        " and ".join(
            f"{as_text(quality)}, n = {definition.penalty_exponent}" for quality in qualities
        ),
        "Run the class as it is.",
    )  # fmt: skip


def _epochs(evidence: Evidence) -> Iterator[Fact]:
    reference = evidence.reference.reference
    epochs, every = reference.epochs, reference.evaluate_every_epochs
    yield Fact(
        "epochs", "epochs", as_text(epochs), of_members(evidence, lambda member: member.epochs),
        "Leave train.epochs out.",
    )  # fmt: skip
    due = [epoch for epoch in range(1, epochs + 1) if epoch % every == 0 or epoch == epochs]
    yield Fact(
        "evaluations", "evaluated after epochs", ranges(due),
        of_members(evidence, lambda member: ranges(effective(member, "evaluation_epochs"))),
        "Leave train.epochs and train.evaluate_every_epochs out.",
    )  # fmt: skip


def _hyperparameters(evidence: Evidence) -> Iterator[Fact]:
    reference = evidence.reference_hyperparameters
    used = recorded(evidence, "hyperparameters", "optimizer")
    policy = used in (*LEARNING_RATE_POLICIES, reference.optimizer)
    rate, other = "learning-rate policy", "other hyper-parameters"
    rows = [(name, "batch size") for name in ("batch_size", "accumulation")]
    rows += [("optimizer", rate if policy else other)]
    rows += [
        (name, rate)
        for name in (
            "base_learning_rate", "reference_batch_size", "schedule", "warmup_epochs",
            "decay_epochs", "decay_power",
        )
    ]  # fmt: skip
    for name in ("betas", "epsilon", "trust_coefficient"):
        rows += [(name, rate)] if used in OPTIMIZERS_WITH[name] else []
    rows += [("momentum", other), ("weight_decay", other), ("label_smoothing", other)]
    for name, aspect in rows:
        prescribed = reference.optimizer in OPTIMIZERS_WITH.get(name, (reference.optimizer,))
        yield Fact(
            aspect, name.replace("_", " "),
            as_text(getattr(reference, name)) if prescribed else None,
            recorded(evidence, "hyperparameters", name), f"Leave train.{name} out.",
        )  # fmt: skip
    yield Fact(
        other, "optimizer's code", _optimizer_code(evidence, used),
        recorded(evidence, "optimizer_class"),
        "Use the optimizer of that name that comes with ai500.",
    )  # fmt: skip
    yield Fact("batch size", "batch norm over", ONE_BATCH, of_members(evidence, batch_norm_images))


def _optimizer_code(evidence: Evidence, optimizer: str | None) -> str | None:
    """Name the optimizer's code in the framework that ran; None: there is no such optimizer."""
    framework = recorded(evidence, "framework", "name")
    if framework in OTHER_FRAMEWORKS:
        return f"ai500.frameworks.{framework}_backend.{optimizer}"
    return OPTIMIZER_CLASSES.get(optimizer or "")


def batch_norm_images(member: TrainRecord) -> str | None:
    """Describe the images that batch norm's statistics cover; the reference: one batch."""
    batch = effective(member, "batch_size")
    degrees = [effective(member, "parallel", f"{axis}_degree") for axis in AXES]
    if not all(isinstance(value, int) for value in (batch, *degrees)):
        return None
    data, pipeline, tensor = degrees
    parts = effective(member, "parallel", "microbatches")
    images = batch * pipeline * tensor // max(1, parts if isinstance(parts, int) else 1)
    if effective(member, "parallel", "batch_norm") == "synchronized":
        return f"{images * data} samples, synchronized"
    return ONE_BATCH if images == batch else f"{images} samples, its own batch is {batch}"


def _workload(evidence: Evidence) -> Iterator[Fact]:
    model, advice = evidence.model, "Train the class's own model."
    yield Fact(
        "model", "graph's SHA-256", None if model is None else model.graph_sha256,
        of_members(evidence, lambda member: _digest(member, "model", "graph_sha256")), advice,
    )  # fmt: skip
    parameters = None if model is None else as_text(model.parameters)
    yield Fact("model", "parameters", parameters, recorded(evidence, "model", "parameters"), advice)
    yield Fact(
        "model", "parameters trained", parameters, of_members(evidence, _trained_parameters),
        "Give every parameter to the optimizer.",
    )  # fmt: skip
    for part in ("model", "loss"):
        yield Fact(
            "model", f"{part}'s code", "ai500", of_members(evidence, partial(_code, part=part)),
            f"Leave free_level.{part} out, or enter at free level.",
        )  # fmt: skip
    sampler = evidence.plan.sampler
    known = " or ".join(SAMPLERS)
    yield Fact(
        "bagging", "sampler", known, known if sampler in SAMPLERS else sampler,
        "Leave ensemble.sampler out.",
    )  # fmt: skip


def _code(member: TrainRecord, *, part: str) -> str:
    """Return "ai500", or `module:function` of the user's own, which records only where it is."""
    return str(effective(member, "own_code", part, "code") or "ai500")


def _trained_parameters(member: TrainRecord) -> int | None:
    counts = [group.get("elements") for group in optimizer_groups(member)]
    if not counts or not all(isinstance(count, int) for count in counts):
        return None
    return sum(count for count in counts if isinstance(count, int))


def _programming_model(evidence: Evidence) -> Iterator[Fact]:
    mode = recorded(evidence, "parallel", "mode")
    equivalent = mode is None or mode in EQUIVALENT_MODES
    yield Fact(
        "equivalent parallelism" if equivalent else "other parallelism", "parallel mode",
        "data", mode, 'Set parallel.mode = "data".',
    )  # fmt: skip
    yield Fact(
        "equivalent parallelism", "data × pipeline × tensor", None, of_members(evidence, _degrees)
    )
    yield Fact(
        "equivalent parallelism", "sharded (FSDP2)", "no",
        recorded(evidence, "parallel", "sharded"),
    )  # fmt: skip
    yield Fact(
        "synchronous training", "synchronous steps", "yes", of_members(evidence, synchronous),
        "Use a collective that is synchronous and declares it.",
    )  # fmt: skip


def _degrees(member: TrainRecord) -> str | None:
    degrees = [effective(member, "parallel", f"{axis}_degree") for axis in AXES]
    return None if None in degrees else " × ".join(map(as_text, degrees))


def synchronous(member: TrainRecord) -> str | None:
    """Return "yes" if the member's gradients were averaged by a synchronous collective."""
    if not isinstance(effective(member, "parallel"), dict):
        return None
    mode = effective(member, "parallel", "communication", "mode")
    declared = effective(member, "parallel", "communication", "synchronous")
    if isinstance(declared, bool):
        return "yes" if declared else f"no: {mode!r}"
    # Every rank waits for the gradients of all others: tests/train/test_collectives.py.
    known = mode is None or plugins.is_built_in("collective", str(mode))
    return "yes" if known else f"not known of {mode!r}"


def _framework(evidence: Evidence) -> Iterator[Fact]:
    aspect = "AI framework"
    name = recorded(evidence, "framework", "name")
    yield Fact(aspect, "framework", "pytorch", name, "Enter at system level.")
    for key in ("version", "compiled", "deterministic"):
        yield Fact("framework's version", key, None, recorded(evidence, "framework", key))


def _accelerators(evidence: Evidence) -> Iterator[Fact]:
    used = recorded(evidence, "numerics", "precision")
    known = used is None or all(name in PRECISIONS for name in used.split(" and "))
    yield Fact(
        "precision" if known else "other precision", "precision",
        evidence.reference_hyperparameters.precision, used,
        f"Use one of {', '.join(PRECISIONS)}.",
    )  # fmt: skip
    yield Fact("precision", "products", None, recorded(evidence, "numerics", "products"))
    device = of_members(evidence, lambda member: member.device_name)
    yield Fact("accelerators", "device", None, device)
    versions = {name: _version(evidence, name) for name in ("cuda", "hip")}
    versions["cudnn"] = recorded(evidence, "framework", "cudnn")
    for name, version in versions.items():
        if version is not None:
            yield Fact("accelerators", name, None, version)


def _version(evidence: Evidence, name: str) -> str | None:
    return of_members(evidence, lambda member: member.versions.get(name))


def _communication(evidence: Evidence) -> Iterator[Fact]:
    single = all(
        effective(member, "parallel", "communication", "mode") is None
        for member in evidence.members
    )
    for key, reference in (("mode", "all_reduce"), ("precision", "fp32")):
        value = recorded(evidence, "parallel", "communication", key)
        yield Fact(
            "communication", f"all-reduce's {key}", None if single else reference,
            "none: one replica" if single and evidence.members else value,
        )  # fmt: skip
    yield Fact(
        "communication", "collective's code", None if single else "ai500",
        "none: one replica" if single and evidence.members else of_members(evidence, _collective),
    )  # fmt: skip
    yield Fact("communication", "backend", None, of_members(evidence, _backend))


def _collective(member: TrainRecord) -> str | None:
    """Return "ai500", or `module:function` of a collective of another package."""
    mode = effective(member, "parallel", "communication", "mode")
    if mode is None or plugins.is_built_in("collective", str(mode)):
        return None if mode is None else "ai500"
    return str(effective(member, "communication", "code") or f"not known of {mode!r}")


def _backend(member: TrainRecord) -> str | None:
    communication = effective(member, "communication")
    if not isinstance(communication, dict):
        return None
    name, version = communication.get("backend"), communication.get("version")
    if name is None:
        return "none: one process"
    return " ".join(str(part) for part in (name, version) if part)


def _machine(evidence: Evidence) -> Iterator[Fact]:
    system, plan = evidence.system, evidence.plan
    if system is not None:
        yield Fact("operating system", "operating system", None, system.operating_system)
        yield Fact("operating system", "kernel", None, system.kernel)
    yield Fact("operating system", "launcher", None, plan.launcher)
    build = recorded(evidence, "framework", "build_optimization")
    yield Fact("operating system", "framework built with", None, build)
    if system is not None:
        memory = system.memory_bytes
        yield Fact("hardware", "CPU", None, f"{system.cpu}, {system.cores} cores")
        yield Fact(
            "hardware", "memory", None, None if memory is None else units.human_bytes(memory)
        )
    yield Fact("hardware", "nodes", None, as_text(len(plan.nodes)))
    yield Fact("hardware", "Sys_scale", None, as_text(plan.system_scale))


def _digest(member: TrainRecord, *path: str) -> str | None:
    digest = effective(member, *path)
    return digest if isinstance(digest, str) else None


def _joined(recorded: str | None, values: set[str]) -> str | None:
    """Join the members' value with differing values from other records."""
    return recorded and " and ".join([recorded, *sorted(values - {recorded})])
