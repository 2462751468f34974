"""An architecture as a torch module."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ai500.workloads.models.architecture import Architecture, Layer


class Network(nn.Module):
    """Runs the layers in order; parameter names contain the layer's number."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        channels = architecture.channels()
        self.layers = nn.ModuleDict()
        for layer in architecture.layers:
            module = _module(layer, channels)
            if module is not None:
                self.layers[str(layer.number)] = module
        self._last_use = {i: layer.number for layer in architecture.layers for i in layer.inputs}

    def forward(self, images: Tensor) -> Tensor:
        """Return class scores."""
        outputs: dict[int, Tensor] = {}
        for layer in self.architecture.layers:
            inputs = [outputs[i] for i in layer.inputs] or [images]
            outputs[layer.number] = self._output(layer, inputs)
            for used in layer.inputs:
                if self._last_use[used] == layer.number:
                    outputs.pop(used, None)  # frees memory in evaluation
        return outputs[self.architecture.layers[-1].number]

    def _output(self, layer: Layer, inputs: list[Tensor]) -> Tensor:
        if layer.kind == "add":
            return sum(inputs[1:], inputs[0])
        if layer.kind == "concat":
            return torch.cat(inputs, dim=1)
        if layer.kind == "relu":
            return F.relu(inputs[0])
        if layer.kind == "input":
            return inputs[0]
        output: Tensor = self.layers[str(layer.number)](inputs[0])
        return output


def _module(layer: Layer, channels: dict[int, int]) -> nn.Module | None:
    input_channels = channels[layer.inputs[0]] if layer.inputs else 0
    if layer.kind == "convolution":
        convolution = nn.Conv2d(
            input_channels, layer.channels, layer.kernel, layer.stride, layer.padding, bias=False
        )
        # He's method.
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        return convolution
    if layer.kind == "batch_norm":
        return nn.BatchNorm2d(input_channels)
    if layer.kind == "max_pool":
        return nn.MaxPool2d(layer.kernel, layer.stride, layer.padding)
    if layer.kind == "global_pool":
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if layer.kind == "dense":
        return nn.Linear(input_channels, layer.channels)
    return None
