"""`ai500 flops`: operations of a model, by operator kind and by module."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from ai500.cli.terminal import console
from ai500.core.errors import InputError, RuleError
from ai500.core.schema import nearest
from ai500.core.units import human_bytes, human_si
from ai500.operations.count import KindCount, OperationCount, convention_named, count_trace
from ai500.operations.graph import Trace, with_loss
from ai500.operations.published import AIPERF_TABLE_III, PROFILED_OPERATIONS_PER_IMAGE
from ai500.operations.rules import CONVENTIONS
from ai500.workloads.named_models import IMAGENET_INPUT, Countable, countable, imported_torch

if TYPE_CHECKING:
    from torch import Tensor, nn

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8")


def flops(
    model: Annotated[
        str,
        typer.Argument(
            help="resnet50, resnet50-v1, faster-rcnn, a workload (image_classification, "
            "image_classification/smoke), or package.module:factory."
        ),
    ],
    input_shape: Annotated[
        str | None, typer.Option("--input", help="Shape of one sample, as 3,224,224.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Samples per step.")] = 1,
    dtype: Annotated[str, typer.Option(help="Type of the input: int64 for tokens.")] = "float32",
    regions: Annotated[
        int | None,
        typer.Option(min=1, help="Rows where an operator's size depends on data: proposals."),
    ] = None,
    convention: Annotated[str, typer.Option(help="v3, aiperf (the score's) or matmul.")] = "aiperf",
    compare: Annotated[
        bool, typer.Option("--compare", help="All conventions side by side.")
    ] = False,
    tree: Annotated[bool, typer.Option("--tree", help="The tree of modules.")] = False,
    depth: Annotated[int, typer.Option(min=1, help="Levels of modules shown.")] = 2,
    exact_backward: Annotated[
        bool, typer.Option("--exact-backward", help="Count the traced backward graph too.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail on operators no rule knows.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Count the operations of a training step, without running it.

    Example: ai500 flops resnet50 --compare
    """
    convention_named(convention)
    chosen = countable(model)
    sample = _sample_shape(input_shape, chosen)
    example = _example((batch, *sample), dtype)
    built = chosen.model()
    traced = _traced(chosen, built, example, regions=regions)
    counts = {name: count_trace(traced, convention=name) for name in CONVENTIONS}
    count = counts[convention]
    exact = None
    if exact_backward:
        exact = _traced_backward(built, example, convention=convention, regions=regions)
    if strict and count.unknown:
        raise RuleError(f"--strict: {_unknown(count)}")
    if as_json:
        data = {"model": chosen.name, "input": list(sample), **count.as_json()}
        data |= {"regions": regions} if regions else {}
        data |= {"conventions": _json_of_all(counts)} if compare else {}
        data |= _json_of_backward(exact) if exact else {}
        print(json.dumps(data, indent=2))
        return
    tables: list[Table | Tree] = [_compare_table(counts) if compare else _kind_table(count)]
    if tree:
        tables.append(_module_tree(chosen.name, count, depth=depth))
    elif not compare:
        tables.append(_module_table(count, depth=depth))
    if _has_published(chosen, count, sample):
        tables.append(_published_table(count))
    shape = "×".join(map(str, (batch, *sample)))
    stated = f", {regions:,} regions" if regions else ""
    parameters = f"{_si(count.parameters)} parameters{stated}"
    console.print(f"[bold]{escape(chosen.name)}[/] on {shape}, {parameters}")
    for table in tables:
        console.print(table, "", sep="\n")
    totals = counts if compare else {convention: count}
    console.print(*_totals(totals), *_profiled(chosen, sample), *_notes(count, exact), sep="\n")


def _sample_shape(text: str | None, model: Countable) -> tuple[int, ...]:
    if text is None:
        if model.input_shape is None:
            raise InputError(f"{model.name} needs --input: the shape of one sample, as 3,224,224")
        return model.input_shape
    try:
        shape = tuple(int(size) for size in text.replace("x", ",").split(","))
    except ValueError:
        shape = (0,)
    if any(size < 1 for size in shape):
        raise InputError(f"--input {text!r}: give positive whole numbers, as 3,224,224")
    return shape


def _example(shape: tuple[int, ...], dtype: str) -> Tensor:
    if dtype not in DTYPES:
        raise InputError(f"--dtype {dtype!r}: {nearest(dtype, list(DTYPES))}")
    torch = imported_torch()
    example: Tensor = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    return example


def _traced(chosen: Countable, model: nn.Module, example: Tensor, *, regions: int | None) -> Trace:
    from ai500.operations.torch_trace import trace

    traced = trace(model, example, regions=regions)
    return with_loss(traced, chosen.loss) if chosen.loss else traced


def _traced_backward(
    model: nn.Module, example: Tensor, *, convention: str, regions: int | None
) -> OperationCount:
    from ai500.operations.torch_trace import trace_backward

    return count_trace(trace_backward(model, example, regions=regions), convention=convention)


def _has_published(model: Countable, count: OperationCount, sample: tuple[int, ...]) -> bool:
    return (
        model.name == "resnet50-v1"
        and sample == IMAGENET_INPUT
        and (count.convention, count.batch) == ("aiperf", 1)
    )


def _json_of_all(counts: dict[str, OperationCount]) -> dict[str, Any]:
    return {name: count.as_json() for name, count in counts.items()}


def _json_of_backward(exact: OperationCount) -> dict[str, Any]:
    by_kind = {kind: one.forward for kind, one in exact.by_kind.items() if one.forward}
    return {"exact_backward": exact.forward, "exact_backward_by_kind": by_kind}


def _table(*columns: str, title: str) -> Table:
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    first, *others = columns
    table.add_column(first, no_wrap=True, overflow="ellipsis")
    for column in others:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _count_rows(table: Table, rows: Iterable[tuple[str, KindCount]], *, total: int) -> Table:
    for name, one in rows:
        table.add_row(
            escape(name),
            _si(one.forward),
            _si(one.backward),
            _si(one.parameters),
            human_bytes(one.activation_bytes) if one.activation_bytes else "0",
            f"{one.total / total:.2%}" if total else "–",
        )
    return table


_COLUMNS = ("forward", "backward", "parameters", "activations", "share")


def _kind_table(count: OperationCount) -> Table:
    table = _table("kind", *_COLUMNS, title=f"operations by kind, convention {count.convention}")
    rows = sorted(count.by_kind.items(), key=lambda row: -row[1].total)
    shown = [(kind, one) for kind, one in rows if one.total or one.activation_bytes]
    _count_rows(table, shown, total=count.total)
    table.add_section()
    everything = sum(count.by_kind.values(), KindCount())
    return _count_rows(table, [("total", everything)], total=count.total)


def _compare_table(counts: dict[str, OperationCount]) -> Table:
    """Forward and backward of each kind in each convention."""
    columns = [f"{name}\n{way}" for name in counts for way in ("forward", "backward")]
    table = _table("kind", *columns, title="operations by kind, all conventions")
    kinds = {kind for count in counts.values() for kind, one in count.by_kind.items() if one.total}
    widest = {kind: max(count.by_kind[kind].total for count in counts.values()) for kind in kinds}
    for kind in sorted(kinds, key=lambda kind: -widest[kind]):
        each = [count.by_kind[kind] for count in counts.values()]
        table.add_row(kind, *(_si(way) for one in each for way in (one.forward, one.backward)))
    table.add_section()
    totals = [(count.forward, count.backward) for count in counts.values()]
    table.add_row("total", *(_si(way) for pair in totals for way in pair))
    return table


def _with_ancestors(count: OperationCount) -> dict[str, KindCount]:
    """Module path → itself and everything inside it, in the order the model runs."""
    inside: dict[str, KindCount] = {}
    for path, one in count.by_module.items():
        parts = path.split(".") if path else []
        for level in range(1, len(parts) + 1):
            ancestor = ".".join(parts[:level])
            inside[ancestor] = inside.get(ancestor, KindCount()) + one
    return inside


def _module_table(count: OperationCount, *, depth: int) -> Table:
    table = _table("module", *_COLUMNS, title="operations by module")
    own = count.by_module.get("")
    rows = [("(the model itself)", own)] if own and own.total else []
    rows += [(path, one) for path, one in _with_ancestors(count).items() if path.count(".") < depth]
    return _count_rows(table, rows, total=count.total)


def _module_tree(name: str, count: OperationCount, *, depth: int) -> Tree:
    """Modules down to `depth`; what is deeper is summed into its parent and counted."""
    inside = _with_ancestors(count)
    root = Tree(f"[bold]{escape(name)}[/]  {_si(count.forward)} + {_si(count.backward)}")
    nodes = {"": root}
    for path, one in inside.items():
        if path.count(".") >= depth:
            continue
        parent, _, leaf = path.rpartition(".")
        hidden = _folded(path, inside, depth=depth)
        folded = f" [dim]({hidden} modules inside)[/]" if hidden else ""
        share = f"{one.total / count.total:.1%}" if count.total else "–"
        label = f"{escape(leaf)}  {_si(one.forward)} + {_si(one.backward)}  {share}{folded}"
        nodes[path] = nodes[parent].add(label)
    return root


def _folded(path: str, inside: dict[str, KindCount], *, depth: int) -> int:
    """Modules inside `path` that the tree does not show."""
    is_shown_open = path.count(".") + 1 < depth
    return 0 if is_shown_open else sum(other.startswith(f"{path}.") for other in inside)


def _published_table(count: OperationCount) -> Table:
    """AIPerf's printed figures beside ours; * marks those that don't follow from its weights."""
    title = "beside AIPerf Table III (* recorded: not by its weights)"
    table = _table("kind", "forward", "printed", "backward", "printed", title=title)
    for kind, printed in AIPERF_TABLE_III.items():
        ours = count.by_kind.get(kind, KindCount(forward=count.forward, backward=count.backward))
        table.add_row(
            kind,
            f"{ours.forward:.2E}",
            f"{printed.forward:.2E}{'*' if 'forward' in printed.recorded else ''}",
            f"{ours.backward:.2E}",
            f"{printed.backward:.2E}{'*' if 'backward' in printed.recorded else ''}",
        )
    return table


def _totals(counts: dict[str, OperationCount]) -> Iterable[str]:
    for name, count in counts.items():
        each = _si(count.total // count.batch)
        yield f"total in {name}: {count.total:,} operations a step, {each} a sample"
        if count.update:
            yield f"  of them {count.update:,} update the parameters, once a step"


def _profiled(model: Countable, sample: tuple[int, ...]) -> Iterable[str]:
    """What the papers measured of a model of that kind, whose graph they don't publish."""
    workload = {"faster-rcnn": "extreme_weather"}.get(model.name, model.name.removesuffix("/full"))
    printed = PROFILED_OPERATIONS_PER_IMAGE.get(workload)
    if printed is not None and sample == model.input_shape:
        yield f"the papers' own model, by a profiler: {_si(printed)} a sample (V2 Table 6)"


def _notes(count: OperationCount, exact: OperationCount | None) -> Iterable[str]:
    if exact is not None:
        yield f"traced backward graph in {count.convention}: {exact.forward:,}"
        yield f"  by the rule {count.gradients:,}"
        if exact.unknown:
            yield f"  in it {_unknown(exact)}"
    if count.unknown:
        yield f"not counted: {_unknown(count)}"


def _unknown(count: OperationCount) -> str:
    listed = ", ".join(f"{name} ×{times}" for name, times in count.unknown.items())
    return f"operators no rule knows: {listed}"


def _si(value: float) -> str:
    return human_si(value).strip() if value else "0"
