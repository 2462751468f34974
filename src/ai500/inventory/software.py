"""Operating system, libraries, and environment variables that change results."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ai500.inventory.description import Software

PACKAGES = ("ai500", "torch", "numpy", "triton", "h5py", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
CHANGES_RESULTS = (
    *("NCCL_", "RCCL_", "UCX_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "CUDA_", "CUBLAS_"),
    *("CUDNN_", "NVIDIA_TF32_OVERRIDE", "HIP_", "ROCR_", "HSA_", "MIOPEN_", "ONEAPI_", "SYCL_"),
    *("ZE_", "XLA_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "GLOO_", "FI_", "OMPI_MCA_", "AI500_"),
    *("MALLOC_", "LD_PRELOAD", "ATEN_", "ONEDNN_", "DNNL_", "TRITON_"),
)
"""Prefixes of environment variables that change results."""
_SECRET = ("TOKEN", "SECRET", "PASSWORD", "KEY")
_JOB = (
    *("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_JOB_PARTITION", "SLURM_CLUSTER_NAME"),
    *("SLURM_CPUS_PER_TASK", "SLURM_NTASKS", "SLURM_JOB_GPUS", "SLURM_VERSION"),
)


def software(root: Path, environ: Mapping[str, str] = os.environ) -> Software:
    """Describe the software of this process."""
    library, number = platform.libc_ver()
    return Software(
        operating_system=operating_system(),
        kernel=platform.release() or None,
        c_library=f"{library} {number}" if library else None,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        libraries={name: package_version(name) for name in PACKAGES} | _loaded_torch(),
        container=container(root, environ),
        scheduler={name: environ[name] for name in _JOB if name in environ},
        environment={
            name: value
            for name, value in sorted(environ.items())
            if name.startswith(CHANGES_RESULTS) and not any(word in name for word in _SECRET)
        },
    )


def container(root: Path, environ: Mapping[str, str]) -> str | None:
    """Detect the container runtime of this process."""
    for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "ENROOT_ROOTFS"):
        if name in environ:
            return f"{name.partition('_')[0].lower()}: {environ[name]}"
    for file, kind in (("run/.containerenv", "podman"), (".dockerenv", "docker")):
        if (root / file).exists():
            return kind
    return environ.get("container")


def _loaded_torch() -> dict[str, str | None]:
    """Return the versions of torch's libraries if this process has loaded torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    versions: dict[str, str | None] = {
        "CUDA of torch": torch.version.cuda,
        "HIP of torch": torch.version.hip,
    }
    if torch.cuda.is_available():
        versions["cuDNN"] = str(torch.backends.cudnn.version())
        versions["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    return versions


def operating_system() -> str | None:
    """Return the name of the Linux distribution."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return None


def package_version(package: str) -> str | None:
    """Return the version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
