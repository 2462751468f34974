"""Decisions of this project where the papers are silent or contradict themselves.

Findings, reports and pages cite them as "decision D6". docs/glossary.md lists them from here.
"""

from __future__ import annotations

DECISIONS: dict[str, str] = {
    "D1": (
        "LARS and LAMB are selected as optimizers; a learning-rate policy is a pure function of "
        "the step."
    ),
    "D2": (
        "PyTorch is the reference framework (hardware level). A run on another framework is a "
        "system-level entry."
    ),
    "D3": (
        "V2 §5.3.2 read literally: at least 5 runs of Extreme Weather, 10 of Image Classification "
        "(Table 2's repeat counts are the other way round). `smoke` 3, `workstation` 5. Fewer "
        "trials are shown, and marked as not a valid result."
    ),
    "D4": (
        "Problem classes are this project's own, after the NAS Parallel Benchmarks. Every score "
        "names its class."
    ),
    "D5": (
        "V3's fully connected layer has no factor 2 where its convolution has one: kept, as `v3`. "
        "Every score names its convention."
    ),
    "D6": (
        "Official FLOPS = all members' operations / (last end − first start). The sum of the "
        "members' own rates is shown beside it, and so are the members' mean quality and the "
        "ensemble's."
    ),
    "D7": "AIPerf's text says an error of at most 35 %, its Table IV 30 %: 30 %.",
    "D8": (
        "Sys_scale counts accelerators (the text says nodes, the experiments count GPUs). On a "
        "machine without accelerators, a slot is a fixed set of CPU cores."
    ),
    "D9": (
        "V2 Table 10's 2877.06 TFLOP / 12,800 images is not 23 GFLOP (it is 225): not used as a "
        "check."
    ),
    "D10": (
        "A peak is the one of the same precision (V2's 105 % efficiency divides mixed by the FP32 "
        "peak: not copied)."
    ),
    "D11": (
        "Several members may share one accelerator, an extension of Eq. 5: M = k × Sys_scale / "
        "P_degree. Reported, never hidden."
    ),
    "D12": "The parameter update counts once per optimizer step, not once per image.",
    "D13": (
        "M × P_degree may exceed what the machine holds: the ensemble then runs in waves, and the "
        "score says how many. Each class fixes its default M. Official entries have one wave."
    ),
    "D14": (
        "Each class fixes how often it evaluates. Evaluation during training is inside the window, "
        "and its operations are not counted."
    ),
    "D15": "For a quality where lower is better, the ratio of Eq. 8 is inverted.",
    "D16": (
        "AIPerf's search starts at ResNet-50 v1.5, as Image Classification; v1 (its Table III) can "
        "be chosen by `automl.initial_version`. The class fixes which is official."
    ),
    "D17": (
        "Any M and P_degree that satisfy Eq. 5 can be mapped: a member may straddle nodes. The "
        "mapping prefers whole nodes."
    ),
    "D18": (
        "What runs before the timed window (compilation, algorithm choice, warm-up) uses generated "
        "inputs only, and leaves weights, running statistics, optimizer state and random streams "
        "as they were."
    ),
    "D19": (
        "The papers' penalty coefficient is shown to people as quality factor (penalty "
        "coefficient, Eq. 8), because above the target it rewards."
    ),
    "D20": (
        "The official convention stays `aiperf`; every score can be shown in all three: `ai500 "
        "score --convention`."
    ),
    "D21": (
        "A search's models may grow to three times the start's operations: this project's "
        "own bound, so that memory holds."
    ),
    "D22": (
        "The seeds of an official result follow from the edition of the list (`run.edition`, such "
        "as `2026-11`) and the trial's number. A seed of one's own is shown, and is no entry."
    ),
    "D23": "An official result has no operator that was not counted.",
}
"""Decisions by their short names."""
