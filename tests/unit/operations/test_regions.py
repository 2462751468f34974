"""Models whose sizes depend on data: refused by layer, or counted with the regions stated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ai500.core.errors import InputError
from ai500.operations import count
from ai500.operations.count import count_trace
from ai500.operations.torch_trace import trace, trace_backward


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(x) if x.sum() > 0 else x


class Selecting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (nn.Sequential(nn.Linear(4, 4), Branching()), "1"),
        (nn.Sequential(Selecting()), "regions"),
        (Branching(), ""),
    ],
)
def test_data_dependent_models_are_refused_by_layer(model: nn.Module, key: str) -> None:
    with pytest.raises(InputError) as error:
        count(model, (2, 4))
    assert error.value.key == key


class Detector(nn.Module):
    """Two stages: a score map finds regions, a head classifies the features found there."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Conv2d(3, 8, 3, padding=1)
        self.score = nn.Conv2d(8, 1, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.backbone(x)
        scores = self.score(features)
        image, _, row, column = (scores > 0).nonzero().unbind(1)
        return self.head(features[image, :, row, column]), scores


@pytest.mark.parametrize("regions", [1, 7, 100])
def test_stated_regions_are_what_the_second_stage_sees(regions: int) -> None:
    counted = count(Detector(), (2, 3, 16, 16), convention="matmul", regions=regions)
    head = 2 * regions * 8 * 5
    assert counted.by_module["head"].forward == head
    assert counted.by_module["head"].backward == 2 * head
    first_stage = 2 * 2 * 16 * 16 * 8 * (9 * 3 + 1)
    assert counted.forward == first_stage + head
    assert not counted.unknown


def test_traced_backward_of_stated_regions_equals_the_rule() -> None:
    example = (2, 3, 16, 16)
    exact = count_trace(trace_backward(Detector(), example, regions=7), convention="matmul")
    assert exact.forward == count(Detector(), example, convention="matmul", regions=7).backward
    assert not exact.unknown


@torch.library.custom_op("ai500_test::suppress", mutates_args=())
def suppress(boxes: Tensor) -> Tensor:
    return boxes[boxes[:, 0] > 0].repeat(2, 1)


@suppress.register_fake
def _(boxes: Tensor) -> Tensor:
    rows = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty(2 * rows, boxes.shape[1])


SELECTIONS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "nonzero": (lambda x: (x > 0).nonzero(), (5, 2)),
    "where": (lambda x: torch.where(x > 0)[0], (5,)),
    "masked_select": (lambda x: x.masked_select(x > 0), (5,)),
    "mask_of_rows": (lambda x: x[x[:, 0] > 0], (5, 4)),
    "mask_of_columns": (lambda x: x[:, x[0] > 0], (8, 5)),
    "unique": (torch.unique, (5,)),
    "unique_rows": (lambda x: torch.unique(x, dim=0), (5, 4)),
    "custom": (suppress, (10, 4)),
}


class Applying(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("name", SELECTIONS)
def test_operators_whose_size_depends_on_data_give_the_stated_rows(name: str) -> None:
    function, expected = SELECTIONS[name]
    assert trace(Applying(function), (8, 4), regions=5).outputs == (expected,)
    with pytest.raises(InputError) as error:
        trace(Applying(function), (8, 4))
    assert error.value.key == "regions"


@pytest.mark.parametrize("regions", [None, 7])
def test_a_fixed_number_of_best_needs_no_statement(regions: int | None) -> None:
    best = Applying(lambda x: x[x[:, 0].topk(3).indices])
    assert trace(best, (8, 4), regions=regions).outputs == ((3, 4),)


def test_stated_regions_do_not_decide_branches() -> None:
    model = nn.Sequential(Selecting(), Branching())
    with pytest.raises(InputError) as error:
        count(model, (2, 4), regions=3)
    assert error.value.key == "1"


def test_a_number_of_regions_is_positive() -> None:
    with pytest.raises(InputError) as error:
        count(Detector(), (2, 3, 16, 16), regions=0)
    assert (error.value.key, error.value.value) == ("regions", 0)
