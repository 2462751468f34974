"""The tracer: leaves the model alone, finds weights, names the layer that failed."""

from __future__ import annotations

import logging
import random
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ai500.core.errors import InputError
from ai500.operations import aten, count
from ai500.train.member import warn_of_uncounted
from ai500.workloads.models.resnet import small_resnet
from tests.support.architectures import ARCHITECTURES, GPT, VisionTransformer


def model_with_everything() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5), nn.Flatten(), nn.Linear(288, 4)
    )


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("is_training", [True, False])
def test_model_and_random_state_are_left_as_they_were(is_training: bool) -> None:
    model = model_with_everything().train(is_training)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    before, modes = state_of(model), [module.training for module in model.modules()]
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    identities = [id(parameter) for parameter in model.parameters()]
    torch_random, python_random = torch.get_rng_state(), random.getstate()
    count(model, torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert all(
        torch.equal(old, parameter.grad)
        for old, parameter in zip(gradients, model.parameters(), strict=True)
    )
    assert [id(parameter) for parameter in model.parameters()] == identities
    assert torch.equal(torch.get_rng_state(), torch_random)
    assert random.getstate() == python_random
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_training_goes_the_same_way_with_and_without_counting() -> None:
    def trained(*, is_counted: bool) -> list[Tensor]:
        torch.manual_seed(3)
        model = model_with_everything()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            if is_counted:
                count(model, (2, 3, 8, 8))
            optimizer.zero_grad()
            model(torch.randn(2, 3, 8, 8)).square().sum().backward()
            optimizer.step()
        return list(model.state_dict().values())

    plain, counted = trained(is_counted=False), trained(is_counted=True)
    assert all(torch.equal(a, b) for a, b in zip(plain, counted, strict=True))


def test_backends_are_put_back_after_a_failure() -> None:
    settings = (torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled)
    with pytest.raises(InputError), torch.no_grad():
        count(model_with_everything(), (2, 5, 8, 8))
    assert (torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled) == settings
    assert torch.backends.mha.get_fastpath_enabled()
    assert not torch.nn.modules.module._global_forward_hooks


def test_any_form_of_example_input_counts_the_same() -> None:
    model = small_resnet(classes=10)
    shape = (4, 3, 32, 32)
    forms = [shape, list(shape), torch.zeros(shape), torch.empty(shape, device="meta")]
    totals = {count(model, form).total for form in forms}
    with torch.device("meta"):
        totals.add(count(small_resnet(classes=10), shape).total)
    totals.add(count(model.eval(), shape).total)
    assert len(totals) == 1


@pytest.mark.parametrize("bad", [(), (0, 3), (2, "3"), (2, -1)])
def test_bad_example_input(bad: tuple[object, ...]) -> None:
    with pytest.raises(InputError) as error:
        count(nn.Linear(3, 3), bad)  # type: ignore[arg-type]
    assert (error.value.key, error.value.value) == ("example_input", bad)


def test_frozen_layers_need_no_gradient_and_no_update() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    everything = count(model, (1, 8))
    assert everything.gradients == 3 * 2 * 64  # the first layer's data needs none
    model[0].requires_grad_(False)
    frozen = count(model, (1, 8))
    assert frozen.gradients == 2 * 64
    assert frozen.update == 2 * 72
    assert count(model.requires_grad_(False), (1, 8)).backward == 0


def test_an_input_that_needs_a_gradient_gets_one() -> None:
    data = torch.zeros(1, 8, requires_grad=True)
    assert count(nn.Linear(8, 8), data).gradients == 2 * 2 * 64


def test_tied_weights_are_one_parameter_updated_once() -> None:
    model = GPT()
    counted = count(model, torch.zeros(2, 24, dtype=torch.int64))
    assert counted.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert sum(kind.parameters for kind in counted.by_kind.values()) == counted.parameters
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    biases = sum(layer.bias.numel() for layer in layers if layer.bias is not None)
    assert counted.update == 2 * (sum(layer.weight.numel() for layer in layers) + biases)


def test_a_layer_called_twice_counts_twice_and_is_updated_once() -> None:
    layer = nn.Linear(8, 8)
    once, twice = count(layer, (1, 8)), count(nn.Sequential(layer, layer), (1, 8))
    assert twice.forward == 2 * once.forward
    assert twice.update == once.update


def test_modules_and_kinds_add_up() -> None:
    counted = count(VisionTransformer(), (2, 3, 32, 32))
    for parts in (counted.by_kind, counted.by_module):
        assert sum(part.forward for part in parts.values()) == counted.forward
        assert sum(part.backward for part in parts.values()) == counted.backward
    assert counted.by_module["head"].forward == 2 * 2 * 64 * 10
    assert "encoder.layers.0.linear1" in counted.by_module


@pytest.mark.parametrize("name", ["resnet18", "mobilenet", "vgg", "unet", "densenet"])
def test_work_is_linear_in_the_batch(name: str) -> None:
    factory, (_, *sample), _ = ARCHITECTURES[name]
    with torch.device("meta"):
        model = factory()
    single, seven = count(model, (1, *sample)), count(model, (7, *sample))
    assert seven.forward_per_sample == single.forward
    assert seven.backward_per_sample == single.gradients
    assert seven.update == single.update


def test_autocast_changes_no_operation() -> None:
    model = small_resnet(classes=10)
    plain = count(model, (2, 3, 32, 32))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = count(model, (2, 3, 32, 32))
    assert (mixed.forward, mixed.backward) == (plain.forward, plain.backward)


def test_attention_counts_alike_whatever_the_mode_and_the_mask() -> None:
    with torch.device("meta"):
        model = VisionTransformer()
    training = count(model, (2, 3, 32, 32), convention="matmul").forward
    with torch.no_grad():
        evaluation = count(model.eval().requires_grad_(False), (2, 3, 32, 32), convention="matmul")
    assert evaluation.forward == training


def test_compiled_and_wrapped_models_count_as_what_they_wrap() -> None:
    model = small_resnet(classes=10)
    compiled = torch.compile(model, backend="eager")
    assert count(compiled, (2, 3, 32, 32)) == count(model, (2, 3, 32, 32))


class Odd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(F.relu(x))


def test_unknown_operator_is_named() -> None:
    counted = count(nn.Sequential(Odd(), Odd()), (2, 4))
    assert counted.unknown == {"aten::special_bessel_j0": 2}
    assert counted.by_kind["relu"].forward == 16
    assert counted.as_record().uncounted == counted.unknown


def test_a_member_names_its_uncounted_operators_in_its_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warn_of_uncounted(count(nn.ReLU(), (2, 4)).as_record())
    assert capsys.readouterr().err == ""
    warn_of_uncounted(count(Odd(), (2, 4)).as_record())
    assert "aten::special_bessel_j0 ×1" in capsys.readouterr().err


def test_torchs_log_is_silent_only_while_tracing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="torch")
    with pytest.raises(InputError):
        count(nn.Linear(4, 2), (1, 9))
    assert logging.getLogger("torch").level == logging.INFO
    assert not caplog.records


class Numpy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy())


def test_models_that_leave_torch_are_refused_by_layer() -> None:
    with pytest.raises(InputError) as error:
        count(nn.Sequential(Numpy()), (2, 4))
    assert error.value.key == "0"


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_parameters_are_refused_by_name() -> None:
    with pytest.raises(InputError) as error:
        count(nn.LazyLinear(3), (2, 4))
    assert error.value.key == "weight"


def test_wrong_shape_names_the_layer() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(7, 2))
    with pytest.raises(InputError) as error:
        count(model, (1, 3, 8, 8))
    assert (error.value.key, error.value.value) == ("2", "1×3×8×8")


def test_traced_recurrent_layers_match_their_formula() -> None:
    """Four gates, each a product of the input and one of the state, in every step."""
    counted = count(nn.LSTM(12, 16), (7, 2, 12), convention="matmul")
    assert counted.forward == 2 * 7 * 2 * 4 * 16 * (12 + 16)


def test_a_bias_counts_alike_whatever_the_layout_of_the_input() -> None:
    class Transposing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.dense(x.transpose(1, 2))

    straight, transposed = count(nn.Linear(5, 3), (2, 4, 5)), count(Transposing(), (2, 5, 4))
    assert (transposed.forward, transposed.backward) == (straight.forward, straight.backward)
    assert straight.update == 2 * (5 + 1) * 3


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (nn.MaxPool2d(3, 2, 1), (1, 4, 8, 8), 9 * 64),
        (nn.MaxPool1d(2), (1, 4, 8), 2 * 16),
        (nn.MaxPool3d(2), (1, 4, 4, 4, 4), 8 * 32),
        (nn.AvgPool2d(2), (1, 4, 8, 8), (4 + 4) * 64),
        (nn.AvgPool1d(2), (1, 4, 8), (2 + 4) * 16),
        (nn.AdaptiveAvgPool2d(1), (1, 4, 8, 8), 256 + 4 * 4),
        (nn.AdaptiveAvgPool2d(2), (1, 4, 8, 8), 256 + 4 * 16),
        (nn.AdaptiveMaxPool2d(2), (1, 4, 8, 8), 256),
        (nn.InstanceNorm2d(4), (1, 4, 8, 8), 7 * 256),
        (nn.GroupNorm(2, 4), (1, 4, 8, 8), 7 * 256),
        (nn.LayerNorm(8), (1, 4, 8), 7 * 32),
        (nn.Softmax(-1), (1, 10), 130),
        (nn.GELU(), (1, 10), 120),
        (nn.Hardswish(), (1, 10), 50),
        (nn.PReLU(), (1, 10), 20),
        (nn.Conv1d(3, 4, 3), (1, 3, 10), 2 * 3 * 3 * 4 * 8),
        (nn.Conv3d(3, 4, 2, bias=False), (1, 3, 4, 4, 4), 2 * 8 * 3 * 4 * 27),
        (nn.ConvTranspose1d(3, 4, 3), (1, 3, 10), 2 * 3 * 3 * 4 * 10),
        (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 4, 4), 8 * 128),
        (nn.Upsample(scale_factor=2), (1, 2, 4, 4), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_layers_by_hand(layer: nn.Module, shape: tuple[int, ...], expected: int) -> None:
    counted = count(layer, shape)
    assert counted.forward == expected
    assert not counted.unknown


def test_recurrent_biases_are_updated() -> None:
    layer = nn.LSTM(12, 16, num_layers=2, bidirectional=True, batch_first=True)
    parameters = sum(parameter.numel() for parameter in layer.parameters())
    assert count(layer, (2, 7, 12)).update == 2 * parameters


MEMORY = """
import resource, sys
import torch
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
from ai500.operations import aten, count
from ai500.workloads.models.resnet import resnet50
with torch.device("meta"):
    model = resnet50()
assert count(model, (256, 3, 224, 224)).parameters == 25_557_032
assert not torch.cuda.is_initialized()
print(peak() - before)
"""


@pytest.mark.slow
def test_counting_resnet50_allocates_under_300_mb() -> None:
    """At batch 256, whose activations would take 29 GB if anything were really computed."""
    result = subprocess.run(
        [sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True
    )
    assert int(result.stdout) < 300e6


def test_counting_rules_need_no_torch() -> None:
    script = "import sys, ai500.operations, ai500.operations.shipped, ai500.cli.flops as f\n"
    script += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_name_in_the_table_is_an_operator_of_torch() -> None:
    tables = (aten.KINDS, aten.CONVOLUTIONS, aten.PRODUCTS, aten.FUSED_ATTENTION)
    names = {name for table in tables for name in table if "::" not in name}
    known = torch.ops.aten
    missing = {name for name in names if not (hasattr(known, name) or hasattr(known, f"{name}_"))}
    assert not missing
