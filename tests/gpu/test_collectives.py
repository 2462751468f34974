"""All-reduce in every mode × precision over NCCL: several ranks share one GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.collective_runs import failures

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU: not tested here"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", [2, 4, 6])
def test_ranks_agree_with_theory_over_nccl(size: int, tmp_path: Path) -> None:
    errors, _ = failures(size, tmp_path, device="cuda:0")
    assert not errors, "\n".join(f"{name}:\n{trace}" for name, trace in errors.items())
