"""Checks of `test_collectives` on real ranks: each runs on every rank of one group.

RANK=… WORLD_SIZE=… python -m tests.support.collective_checks STORE REPORT [DEVICE]
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ai500.core.errors import ConfigError
from ai500.parallel.collectives import Collective, make
from tests.support.collective_theory import (
    MESSAGE_MODES,
    MODES,
    PRIMES,
    ROUNDS,
    UNIT,
    bound,
    expected_bytes,
    local_sizes,
    modes,
    rank,
    shape,
    world,
)

PRECISIONS = ("fp32", "fp16", "bf16", "int8")
_made: dict[tuple[str, str, int], Collective] = {}


def collective(mode: str, precision: str, local_size: int) -> Collective:
    """Return a collective without state; process groups are made once."""
    key = (mode, precision, local_size)
    if key not in _made:
        _made[key] = make(mode, precision, group=None, local_size=local_size)
    _made[key].reset()
    return _made[key]


def combinations() -> Iterator[tuple[str, str, int]]:
    for mode in modes():
        for precision in PRECISIONS:
            for local_size in local_sizes():
                yield mode, precision, local_size


def drawn(seed: int, of_rank: int, length: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Some rank's gradients, which every rank can draw."""
    generator = torch.Generator("cpu").manual_seed(1000 * seed + of_rank)
    values = torch.randn(length, generator=generator, dtype=torch.float64, device="cpu")
    spread = torch.rand(length, generator=generator, dtype=torch.float64, device="cpu") ** 3
    return (values * spread).to(dtype=dtype, device=torch.get_default_device())


def everyone(seed: int, length: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.stack([drawn(seed, r, length, dtype) for r in range(world())]).double()


def same_everywhere(tensor: Tensor) -> bool:
    bits = tensor.contiguous().view(torch.uint8)
    root = bits.clone()
    dist.broadcast(root, 0)
    different = torch.tensor(int(not torch.equal(bits, root)))
    dist.all_reduce(different)
    return int(different) == 0


def check_mean_same_bits_every_time() -> None:
    long = 1_000_003 if world() == 2 else 20_011
    for mode, precision, local_size in combinations():
        for length in (1, 7, 5000, long) if local_size == local_sizes()[-2:][0] else (7, 5000):
            reducer = collective(mode, precision, local_size)
            inputs = everyone(length, length)
            result = reducer.all_reduce_mean(drawn(length, rank(), length))
            error = (result.double() - inputs.mean(0)).abs()
            where = (mode, precision, local_size, length)
            assert result.dtype == torch.float32
            if world() > 1:
                allowed = bound(precision, inputs, mode, local_size)
                assert bool((error <= allowed).all()), (where, float((error / allowed).max()))
            else:
                assert not error.any(), where
            assert same_everywhere(result), where
            reducer.reset()
            again = reducer.all_reduce_mean(drawn(length, rank(), length))
            assert torch.equal(result, again), where


def check_own_type_is_kept_without_compression() -> None:
    for mode in modes():
        reducer = collective(mode, "fp32", local_sizes()[-1])
        inputs = everyone(3, 1001, torch.float64)
        result = reducer.all_reduce_mean(drawn(3, rank(), 1001, torch.float64))
        assert result.dtype == torch.float64
        assert torch.allclose(result, inputs.mean(0), rtol=0, atol=1e-15)
        half = reducer.all_reduce_mean(drawn(3, rank(), 1001, torch.bfloat16))
        assert half.dtype == torch.bfloat16
        inputs = everyone(3, 1001, torch.bfloat16)
        # A library's ring rounds each partial sum to the tensor's own type.
        error = (half.double() - inputs.mean(0)).abs()
        assert bool((error <= (world() + 2) * UNIT["bf16"] * inputs.abs().mean(0)).all())


def check_zeros_and_nothing() -> None:
    for mode, precision, local_size in combinations():
        reducer = collective(mode, precision, local_size)
        assert not reducer.all_reduce_mean(torch.zeros(2500)).any()
        assert reducer.all_reduce_mean(torch.zeros(0)).numel() == 0


def check_what_is_not_finite_shows_and_passes() -> None:
    if world() == 1:
        return
    for mode, precision, local_size in combinations():
        for bad in (math.nan, math.inf, -math.inf):
            reducer = collective(mode, precision, local_size)
            own = drawn(1, rank(), 3000)
            if rank() == world() - 1:
                own[1500] = bad
            result = reducer.all_reduce_mean(own)
            where = (mode, precision, local_size, bad)
            assert not math.isfinite(result[1500]), where
            if precision != "int8":
                assert torch.equal(result[1500], torch.tensor(bad)) or math.isnan(bad), where
                assert int(result.isfinite().sum()) == 2999, where
            assert same_everywhere(result.nan_to_num(7)), where
            # A step that a loss scaler throws away must not spoil the next one.
            assert bool(reducer.all_reduce_mean(drawn(1, rank(), 3000)).isfinite().all()), where


def check_large_and_small_gradients_in_half_precision() -> None:
    for mode in modes():
        reducer = collective(mode, "fp16", local_sizes()[-1])
        for factor in (1e-20, 1e-7, 1.0, 1e6, 1e30):
            inputs = everyone(4, 999) * factor
            result = reducer.all_reduce_mean((drawn(4, rank(), 999).double() * factor).float())
            error = (result.double() - inputs.mean(0)).abs()
            assert bool(result.isfinite().all())
            allowed = bound("fp16", inputs, mode, local_sizes()[-1]) * 1.001
            assert bool((error <= allowed).all()), (mode, factor)


def check_traffic_is_the_theory() -> None:
    for mode, precision, local_size in combinations():
        reducer = collective(mode, precision, local_size)
        for length in (1, 5000):
            reducer.all_reduce_mean(torch.ones(length), key=str(length))
        expected = [expected_bytes(mode, precision, local_size, n) for n in (1, 5000)]
        counted = (reducer.traffic.inside_node, reducer.traffic.between_nodes)
        where = (mode, precision, local_size, counted, expected)
        assert counted == tuple(map(sum, zip(*expected, strict=True))), where
        assert reducer.traffic.calls == (2 if world() > 1 else 0)
        if local_size == world():
            assert reducer.traffic.between_nodes == 0


def check_error_feedback_loses_nothing_over_steps() -> None:
    if world() == 1:
        return
    for mode in modes():
        local_size = local_sizes()[-2:][0]
        reducer = collective(mode, "int8", local_size)
        inputs = everyone(5, 3000)
        total = torch.zeros(3000, dtype=torch.float64)
        once = bound("int8", inputs, mode, local_size)
        for step in range(1, 41 if world() < 6 else 9):
            result = reducer.all_reduce_mean(drawn(5, rank(), 3000)).double()
            total += result
            error = (total - step * inputs.mean(0)).abs()
            # Values are larger by what was lost before: less than one hundredth.
            assert bool((error <= once * 1.05).all()), (mode, step)
        assert float((result - inputs.mean(0)).abs().max()) > 0, "nothing was rounded"


def check_error_feedback_goes_on_after_a_restart() -> None:
    for mode in modes():
        straight = collective(mode, "int8", local_sizes()[0])

        def steps(reducer: Collective, first: int, last: int) -> list[Tensor]:
            return [
                reducer.all_reduce_mean(drawn(step, rank(), length), key=str(length))
                for step in range(first, last)
                for length in (3000, 77)
            ]

        steps(straight, 0, 3)
        file = io.BytesIO()
        torch.save(straight.state_dict(), file)
        expected = steps(straight, 3, 6)
        file.seek(0)
        resumed = make(mode, "int8", group=None, local_size=local_sizes()[0])
        resumed.load_state_dict(torch.load(file, weights_only=True))
        means = steps(resumed, 3, 6)
        assert all(torch.equal(a, b) for a, b in zip(expected, means, strict=True)), mode
        straight.reset()
        if world() > 1:
            fresh = steps(straight, 3, 6)
            assert not all(torch.equal(a, b) for a, b in zip(expected, fresh, strict=True)), mode


def check_groups_side_by_side() -> None:
    if world() < 4 or world() % 2:
        return
    for groups in (
        [list(range(0, world(), 2)), list(range(1, world(), 2))],
        [list(range(world() // 2)), list(range(world() // 2, world()))],
    ):
        made = [dist.new_group(ranks) for ranks in groups]
        group, ranks = next(pair for pair in zip(made, groups, strict=True) if rank() in pair[1])
        for mode in MODES:
            if mode == "torus_2d" and len(ranks) in PRIMES:
                continue
            for precision in PRECISIONS:
                # In a world of six, three neighbours on nodes of two or three do not fill them.
                local_size = 1 if world() == 6 else world() // 2
                reducer = make(mode, precision, group=group, local_size=local_size)
                result = reducer.all_reduce_mean(drawn(6, rank(), 2000)).double()
                inputs = torch.stack([drawn(6, r, 2000) for r in ranks]).double()
                error = (result - inputs.mean(0)).abs().max()
                assert float(error) <= 2.1 * UNIT[precision] * float(inputs.abs().max()) * 4


def gradients(mode: str | None, precision: str = "fp32") -> tuple[list[Tensor], Collective | None]:
    """Return gradients of a small model under DDP, after its buckets are laid out."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(40, 70), nn.Tanh(), nn.Linear(70, 50), nn.Linear(50, 3))
    data = DistributedDataParallel(model, bucket_cap_mb=0.01, gradient_as_bucket_view=True)
    reducer = None
    if mode is not None:
        reducer = collective(mode, precision, local_sizes()[-2:][0])
        data.register_comm_hook(None, reducer.ddp_hook)
    for step in range(3):
        model.zero_grad(set_to_none=True)
        if reducer is not None:
            reducer.reset()
        data(drawn(step, rank(), 320).view(8, 40)).square().mean().backward()
    averaged = [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
    return averaged, reducer


def check_hook_gives_the_gradients_of_ddp() -> None:
    expected, _ = gradients(None)
    largest = max(float(g.abs().max()) for g in expected)
    for mode in modes():
        for precision in PRECISIONS:
            hooked, reducer = gradients(mode, precision)
            assert reducer is not None
            exact = mode == "all_reduce" and precision == "fp32"
            for gradient, true in zip(hooked, expected, strict=True):
                error = float((gradient - true).abs().max())
                # The ranks' own gradients are larger than their mean.
                limit = 0 if exact else 4 * world() * UNIT[precision] * largest
                assert error <= limit, (mode, precision, error / largest)
                assert same_everywhere(gradient)
            assert reducer.traffic.calls >= (2 if world() > 1 else 0), "more than one bucket"


def check_hook_reports_an_error() -> None:
    if world() == 1:
        return
    torch.manual_seed(3)
    model = nn.Linear(9000, 3)
    data = DistributedDataParallel(model)
    reducer = collective("all_reduce", "int8", world())
    reducer.all_reduce_mean(torch.ones(10), key="bucket 0")
    data.register_comm_hook(None, reducer.ddp_hook)
    try:
        data(torch.ones(1, 9000)).sum().backward()
    except RuntimeError as error:
        assert "the buffers changed" in str(error), error
    else:
        raise AssertionError("a stale residual was taken")


def check_sizes_that_are_refused() -> None:
    if world() in PRIMES:
        try:
            make("torus_2d", "fp32", group=None, local_size=1)
        except ConfigError as error:
            assert "at least 2 × 2" in str(error)
        else:
            raise AssertionError("a line of ranks is no torus")


def check_description() -> None:
    for mode, precision, local_size in combinations():
        reducer = collective(mode, precision, local_size)
        reducer.all_reduce_mean(torch.ones(5000))
        description = reducer.describe()
        assert (description["mode"], description["precision"]) == (mode, precision)
        if mode in MESSAGE_MODES:
            assert description["rounds"] == ROUNDS[mode, world()], (mode, description)
        else:
            assert tuple(description["grid"]) == shape(mode, local_size)
        assert description["nodes"] == world() // local_size
        assert description["traffic"]["calls"] == (1 if world() > 1 else 0)
        flat = mode == "all_reduce" and precision == "fp32"
        assert description["bytes"] == ("analytical" if flat else "counted")
        json.dumps(description)


CHECKS: dict[str, Callable[[], None]] = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}


def main() -> None:
    torch.set_num_threads(1)
    here, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(sys.argv[1], size)
    device = torch.device(sys.argv[3] if len(sys.argv) > 3 else "cpu")
    torch.set_default_device(device)
    backend = dist.get_default_backend_for_device(device)
    dist.init_process_group(backend, store=store, rank=here, world_size=size)
    failures = {}
    for name, check in CHECKS.items():
        try:
            check()
        except Exception:
            failures[name] = traceback.format_exc()
            break  # ranks that went on would wait for this one
    Path(f"{sys.argv[2]}.{here}").write_text(json.dumps(failures), encoding="utf-8")
    if failures:
        os._exit(1)
    dist.all_reduce(torch.zeros(1))  # nobody leaves before the last one is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
