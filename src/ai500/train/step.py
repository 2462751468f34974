"""An optimizer step of one member, written once: run eagerly, or captured by `graphed_step.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ai500.train.feed import Batch
from ai500.train.generated_samples import generated_samples
from ai500.train.loop import StepRequest
from ai500.train.warm_up import on_device

if TYPE_CHECKING:
    from ai500.train.member import Member


def eager_step(member: Member, request: StepRequest) -> Tensor:
    """Run a step without a CUDA graph; return the mean loss over its batch."""
    # Dropout and the like draw from torch's global generators, which members of a process share.
    torch.default_generator.manual_seed(request.seed)
    if member.feed.device.type != "cpu":
        torch.get_device_module(member.feed.device).manual_seed(request.seed)
    for group in member.optimizer.param_groups:
        group["lr"] = request.learning_rate
    return training_step(member, request.batch)


def training_step(member: Member, batch: Batch) -> Tensor:
    """Train on a batch, from stored samples to new weights; return the mean loss."""
    loss = compute_gradients(member, batch)
    update_weights(member)
    return loss


def compute_gradients(member: Member, batch: Batch) -> Tensor:
    """Augment the batch and run forward and backward pass; return the mean loss."""
    inputs, targets = member.workload.train_inputs(member.problem_class, batch.fields, batch.draws)
    # To None, not to zero: a captured step then allocates its gradients inside the graph.
    member.optimizer.zero_grad(set_to_none=True)
    return member.engine.forward_backward(inputs, targets)


def update_weights(member: Member) -> None:
    """Take the optimizer's step, unscaling gradients where the precision needs it."""
    member.numerics.step(member.optimizer)


def warm_up_batch(member: Member) -> Batch:
    """Generate a batch for warm-up: no sample is read before the timed window [D18]."""
    size, device = member.feed.batch_size, member.feed.device
    fields = on_device(generated_samples(member.feed.samples.fields, size), device)
    draws = torch.full((size, member.workload.draws_per_sample), 0.5, device=device)
    return Batch(fields, draws)
