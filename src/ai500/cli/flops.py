"""`ai500 flops`: operations of a model, by operator kind and by module."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from ai500.cli.arguments import AsJson
from ai500.cli.terminal import console, print_json
from ai500.core.errors import InputError, RuleError
from ai500.core.reading import read_text
from ai500.core.schema import check_known
from ai500.core.units import human_bytes, human_si
from ai500.metrics import equations
from ai500.operations.count import KindCount, OperationCount, convention_named, count_trace
from ai500.operations.graph import Trace, with_loss
from ai500.operations.published import AIPERF_TABLE_III, PROFILED_OPERATIONS_PER_IMAGE
from ai500.operations.rules import CONVENTIONS
from ai500.operations.stablehlo import trace_stablehlo
from ai500.records import list_operators
from ai500.workloads.named_models import IMAGENET_INPUT, Countable, countable, imported_torch

if TYPE_CHECKING:
    from torch import Tensor

STABLEHLO = (".mlir", ".stablehlo")
"""Endings of the names of files with StableHLO text."""
DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8")


def flops(
    model: Annotated[
        str,
        typer.Argument(
            help="resnet50, resnet50-v1, faster-rcnn, a workload (image_classification, "
            "image_classification/smoke), package.module:factory, which runs that Python code, or "
            "a file of StableHLO text (model.mlir)."
        ),
    ],
    input_shape: Annotated[
        str | None, typer.Option("--input", help="Shape of one sample, as 3,224,224.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Samples per step. Default: 1, or that of the StableHLO text."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Data type of the input: int64 for tokens; default: the model's own."),
    ] = None,
    regions: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of rows of operators whose size depends on data (proposals)."
        ),
    ] = None,
    parameters: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="StableHLO text: leading arguments of main that are trained; default: all "
            "floating-point ones but the last.",
        ),
    ] = None,
    convention: Annotated[str, typer.Option(help="v3, aiperf (the score's) or matmul.")] = "aiperf",
    compare: Annotated[
        bool, typer.Option("--compare", help="Show all conventions side by side.")
    ] = False,
    tree: Annotated[bool, typer.Option("--tree", help="Show the tree of modules.")] = False,
    depth: Annotated[int, typer.Option(min=1, help="Levels of modules to show.")] = 2,
    exact_backward: Annotated[
        bool, typer.Option("--exact-backward", help="Also count the traced backward graph.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail on operators that no rule counts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Count the operations of a training step, without running it.

    Example: ai500 flops resnet50 --compare
    """
    convention_named(convention)
    if model.endswith(STABLEHLO):
        unused = {"--input": input_shape, "--dtype": dtype, "--regions": regions}
        unused["--exact-backward"] = exact_backward or None
        _refuse(unused, "StableHLO text has shapes, types and operators of its own")
        traced = _trace_text(Path(model), parameters=parameters, batch=batch)
    else:
        _refuse({"--parameters": parameters}, "a torch model has its own parameters")
        traced = _trace_torch(
            countable(model),
            input_shape=input_shape,
            batch=batch or 1,
            dtype=dtype,
            regions=regions,
            exact_backward=exact_backward,
        )
    counts = {name: count_trace(traced.trace, convention=name) for name in CONVENTIONS}
    count, sample = counts[convention], traced.sample
    exact = None
    if traced.backward is not None:
        exact = count_trace(traced.backward, convention=convention)
    if strict and count.unknown:
        raise RuleError(f"--strict: {_unknown(count)}", key="--strict", value=dict(count.unknown))
    if as_json:
        data = {"model": traced.name, "input": list(sample), **count.as_json()}
        data |= {"regions": regions} if regions else {}
        data["scaling_ratio"] = _scaling_ratio(count)
        if compare:
            data["conventions"] = {name: part.as_json() for name, part in counts.items()}
        data |= _json_of_backward(exact) if exact else {}
        print_json(data)
        return
    tables: list[Table | Tree] = [_compare_table(counts) if compare else _kind_table(count)]
    if tree:
        tables.append(_module_tree(traced.name, count, depth=depth))
    elif not compare:
        tables.append(_module_table(count, depth=depth))
    if _has_published(traced, count):
        tables.append(_published_table(count))
    shape = "×".join(map(str, (count.batch, *sample)))
    stated = f", {regions:,} regions" if regions else ""
    size = f"{_si(count.parameters)} parameters{stated}"
    console.print(f"[bold]{escape(traced.name)}[/] on {shape}, {size}")
    for table in tables:
        console.print(table, "", sep="\n")
    totals = counts if compare else {convention: count}
    console.print(*_totals(totals), *_profiled(traced), *_notes(count, exact), sep="\n")


@dataclass(frozen=True, slots=True)
class _Traced:
    """A traced model: its name, the shape of one sample, and the graphs."""

    name: str
    sample: tuple[int, ...]
    trace: Trace
    own_sample: tuple[int, ...] | None = None
    """Shape of a sample of the named model's class; None: it has none."""
    backward: Trace | None = None


MAX_SAMPLE_VALUES = 2**40
MAX_STABLEHLO_BYTES = 1 << 30  # weights may stand in the text as constants


def _refuse(options: dict[str, Any], reason: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"{name} has no effect: {reason}.", key=name, value=value, remedy="Leave it out."
            )


def _trace_text(path: Path, *, parameters: int | None, batch: int | None) -> _Traced:
    try:
        text = read_text(path, limit=MAX_STABLEHLO_BYTES)
    except (OSError, InputError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"{path} cannot be read as StableHLO text: {reason}.",
            key="model",
            path=path,
            remedy="Write it with jax.jit(f).lower(...).as_text().",
        ) from error
    trained = None if parameters is None else range(parameters)
    traced = trace_stablehlo(text, parameters=trained, batch=batch, source=path.name)
    [shape] = traced.inputs or ((),)
    return _Traced(path.name, shape[1:], traced)


def _trace_torch(
    model: Countable,
    *,
    input_shape: str | None,
    batch: int,
    dtype: str | None,
    regions: int | None,
    exact_backward: bool,
) -> _Traced:
    sample = _sample_shape(input_shape, model)
    example = _example((batch, *sample), dtype or model.input_dtype)
    built = model.model()
    from ai500.operations.torch_trace import trace, trace_backward

    traced = trace(built, example, regions=regions)
    if model.loss:
        traced = with_loss(traced, model.loss)
    backward = trace_backward(built, example, regions=regions) if exact_backward else None
    return _Traced(model.name, sample, traced, model.input_shape, backward)


def _sample_shape(text: str | None, model: Countable) -> tuple[int, ...]:
    if text is None:
        if model.input_shape is None:
            raise InputError(
                f"{model.name} needs --input: the shape of one sample, as 3,224,224", key="--input"
            )
        return model.input_shape
    try:
        shape = tuple(int(size) for size in text.replace("x", ",").split(","))
    except ValueError:
        shape = (0,)
    if any(size < 1 for size in shape):
        raise InputError(
            f"--input {text!r}: expected positive whole numbers, as 3,224,224",
            key="--input",
            value=text,
        )
    if math.prod(shape) > MAX_SAMPLE_VALUES:
        raise InputError(
            f"--input: a sample of more than {MAX_SAMPLE_VALUES} values.",
            key="--input",
            value=text,
            remedy="Name the shape of one sample, as 3,224,224.",
        )
    return shape


def _example(shape: tuple[int, ...], dtype: str) -> Tensor:
    check_known(dtype, DTYPES, key="--dtype")
    torch = imported_torch()
    example: Tensor = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    return example


def _has_published(traced: _Traced, count: OperationCount) -> bool:
    return (
        traced.name == "resnet50-v1"
        and traced.sample == IMAGENET_INPUT
        and (count.convention, count.batch) == ("aiperf", 1)
    )


def _json_of_backward(exact: OperationCount) -> dict[str, Any]:
    by_kind = {kind: part.forward for kind, part in exact.by_kind.items() if part.forward}
    return {"exact_backward": exact.forward, "exact_backward_by_kind": by_kind}


def _table(*columns: str, title: str) -> Table:
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    name, *figures = columns
    table.add_column(name, no_wrap=True, overflow="ellipsis")
    for column in figures:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _count_rows(table: Table, rows: Iterable[tuple[str, KindCount]], *, total: int) -> Table:
    for name, part in rows:
        table.add_row(
            escape(name),
            _si(part.forward),
            _si(part.backward),
            _si(part.parameters),
            human_bytes(part.activation_bytes) if part.activation_bytes else "0",
            f"{part.total / total:.2%}" if total else "–",
        )
    return table


_COLUMNS = ("forward", "backward", "parameters", "activations", "share")


def _kind_table(count: OperationCount) -> Table:
    table = _table("kind", *_COLUMNS, title=f"operations by kind, convention {count.convention}")
    rows = sorted(count.by_kind.items(), key=lambda row: -row[1].total)
    shown = [(kind, part) for kind, part in rows if part.total or part.activation_bytes]
    _count_rows(table, shown, total=count.total)
    table.add_section()
    everything = sum(count.by_kind.values(), KindCount())
    return _count_rows(table, [("total", everything)], total=count.total)


def _compare_table(counts: dict[str, OperationCount]) -> Table:
    """Tabulate forward and backward of each kind in each convention."""
    columns = [f"{name}\n{phase}" for name in counts for phase in ("forward", "backward")]
    table = _table("kind", *columns, title="operations by kind, all conventions")
    kinds = {
        kind for count in counts.values() for kind, part in count.by_kind.items() if part.total
    }
    widest = {kind: max(count.by_kind[kind].total for count in counts.values()) for kind in kinds}
    for kind in sorted(kinds, key=lambda kind: -widest[kind]):
        parts = [count.by_kind[kind] for count in counts.values()]
        table.add_row(kind, *(_si(n) for part in parts for n in (part.forward, part.backward)))
    table.add_section()
    totals = [(count.forward, count.backward) for count in counts.values()]
    table.add_row("total", *(_si(operations) for pair in totals for operations in pair))
    return table


def _with_ancestors(count: OperationCount) -> dict[str, KindCount]:
    """Sum each module with all modules inside it, in execution order."""
    inside: dict[str, KindCount] = {}
    for path, own in count.by_module.items():
        parts = path.split(".") if path else []
        for level in range(1, len(parts) + 1):
            ancestor = ".".join(parts[:level])
            inside[ancestor] = inside.get(ancestor, KindCount()) + own
    return inside


def _module_table(count: OperationCount, *, depth: int) -> Table:
    table = _table("module", *_COLUMNS, title="operations by module")
    own = count.by_module.get("")
    rows = [("(the model itself)", own)] if own and own.total else []
    inside = _with_ancestors(count)
    rows += [(path, module) for path, module in inside.items() if path.count(".") < depth]
    return _count_rows(table, rows, total=count.total)


def _module_tree(name: str, count: OperationCount, *, depth: int) -> Tree:
    """Draw modules down to `depth`; deeper ones are summed into their parent."""
    inside = _with_ancestors(count)
    root = Tree(f"[bold]{escape(name)}[/]  {_si(count.forward)} + {_si(count.backward)}")
    nodes = {"": root}
    for path, module in inside.items():
        if path.count(".") >= depth:
            continue
        parent, _, leaf = path.rpartition(".")
        hidden = _folded(path, inside, depth=depth)
        folded = f" [dim]({hidden} modules inside)[/]" if hidden else ""
        share = f"{module.total / count.total:.1%}" if count.total else "–"
        label = f"{escape(leaf)}  {_si(module.forward)} + {_si(module.backward)}  {share}{folded}"
        nodes[path] = nodes[parent].add(label)
    return root


def _folded(path: str, inside: dict[str, KindCount], *, depth: int) -> int:
    """Count the modules inside `path` that the tree does not show."""
    is_shown_open = path.count(".") + 1 < depth
    return 0 if is_shown_open else sum(other.startswith(f"{path}.") for other in inside)


def _published_table(count: OperationCount) -> Table:
    """Tabulate AIPerf's printed figures beside ai500's; * marks contradictions."""
    title = "compared with AIPerf Table III (* not by its weights)"
    table = _table("kind", "forward", "printed", "backward", "printed", title=title)
    for kind, printed in AIPERF_TABLE_III.items():
        part = count.by_kind.get(kind, KindCount(forward=count.forward, backward=count.backward))
        table.add_row(
            kind,
            f"{part.forward:.2E}",
            f"{printed.forward:.2E}{'*' if 'forward' in printed.recorded else ''}",
            f"{part.backward:.2E}",
            f"{printed.backward:.2E}{'*' if 'backward' in printed.recorded else ''}",
        )
    return table


def _totals(counts: dict[str, OperationCount]) -> Iterable[str]:
    for name, count in counts.items():
        per_sample = _si(count.total // count.batch)
        yield f"total in {name}: {count.total:,} operations per step, {per_sample} per sample"
        if count.update:
            yield f"  including {count.update:,} per step to update the parameters"
        if (ratio := _scaling_ratio(count)) is not None:
            yield (
                f"  scaling ratio {ratio:.2f} GFLOP per million parameters communicated, at a "
                f"batch of {count.batch} (V2 Table 5)"
            )


def _scaling_ratio(count: OperationCount) -> float | None:
    """Return the scaling ratio of a step; None: a model without parameters communicates none."""
    if not count.parameters:
        return None
    return equations.scaling_ratio(count.total, parameters=count.parameters)


def _profiled(traced: _Traced) -> Iterable[str]:
    """Yield the papers' measurement of their own model, whose graph is not published."""
    workload = {"faster-rcnn": "extreme_weather"}.get(
        traced.name, traced.name.removesuffix("/full")
    )
    printed = PROFILED_OPERATIONS_PER_IMAGE.get(workload)
    if printed is not None and traced.sample == traced.own_sample:
        yield f"the papers' own model, by a profiler: {_si(printed)} per sample (V2 Table 6)"


def _notes(count: OperationCount, exact: OperationCount | None) -> Iterable[str]:
    if exact is not None:
        yield f"traced backward graph in {count.convention}: {exact.forward:,}"
        yield f"  by the rule {count.gradients:,}"
        if exact.unknown:
            yield f"  in it {escape(_unknown(exact))}"
    if count.unknown:
        yield f"not counted: {escape(_unknown(count))}"


def _unknown(count: OperationCount) -> str:
    return f"operators without a counting rule: {list_operators(count.unknown)}"


def _si(value: float) -> str:
    return human_si(value).strip() if value else "0"
