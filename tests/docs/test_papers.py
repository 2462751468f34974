"""docs/papers.md has every table, figure and equation of the papers, and commands that exist."""

from __future__ import annotations

import csv
import json
import re
import shlex

import pytest
import typer.main

from ai500.cli import app
from ai500.metrics.equations import scaling_ratio
from ai500.operations import count
from ai500.operations.shipped import shipped_operations
from ai500.workloads.named_models import IMAGENET_INPUT, countable
from tests.support import v2_roofline as v2
from tests.support.docs_examples import ROOT

PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII")
PARTS = {
    "V3": [
        *(f"Eq. {n}" for n in range(1, 9)),
        *(f"Table {n}" for n in range(1, 5)),
        *(f"Fig. {n}" for n in range(1, 10)),
    ],
    "V2": [
        *(f"Eq. {n}" for n in range(1, 7)),
        *(f"Table {n}" for n in range(1, 13)),
        *(f"Fig. {n}" for n in range(1, 16)),
    ],
    "AIPerf": [
        *(f"Eq. {n}" for n in range(1, 4)),
        "Algorithm 1",
        *(f"Table {n}" for n in ROMAN),
        *(f"Fig. {n}" for n in range(1, 6)),
    ],
}


def rows(paper: str) -> dict[str, list[str]]:
    """Cells of a paper's rows by their first one."""
    section = PAGE.partition(f"\n## {paper}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert all(len(row) == 6 for row in cells)
    return {row[0]: row[1:] for row in cells}


@pytest.mark.parametrize("paper", PARTS)
def test_all_parts_of_a_paper_are_listed_in_order(paper: str) -> None:
    assert list(rows(paper)) == PARTS[paper]


def test_each_command_exists_with_its_options() -> None:
    commands = [cells[1] for paper in PARTS for cells in rows(paper).values()]
    assert sum(text.startswith("`ai500 ") for text in commands) > 50
    for text in commands:
        if text.startswith("none: "):
            continue  # a survey or a drawing
        shown = re.fullmatch(r"`ai500 (.*)`", text)
        assert shown is not None, text
        command, words = typer.main.get_command(app), shlex.split(shown[1])
        while words and hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        assert not hasattr(command, "commands"), text
        known = {option for parameter in command.params for option in parameter.opts}
        options = [word for word in words if word.startswith("-")]
        assert set(options) <= known, text
        arguments = [
            parameter for parameter in command.params if parameter.param_type_name == "argument"
        ]
        required = [parameter for parameter in arguments if parameter.required]
        positional = [word for word in words if not word.startswith("-")]
        assert not required or positional, text
        if command.name == "flops" and positional[0] != "MODEL":
            assert countable(positional[0]).name == positional[0]


def test_links_of_the_page_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def test_measurements_on_the_page_are_those_of_the_records() -> None:
    score = json.loads((ROOT / "docs/examples/h200/score.json").read_text(encoding="utf-8"))
    roofline = json.loads((ROOT / "docs/examples/h200/roofline.json").read_text(encoding="utf-8"))
    placed = roofline["placed"][-1]
    share = placed["flops"] / placed["peak_flops"]
    assert f"{score['penalty_coefficient']:.2f} on an H200" in rows("V3")["Eq. 8"][3]
    assert f"VFLOPS {score['score_variation']:.0%}".replace("%", " %") in rows("V2")["Table 2"][3]
    with (ROOT / "docs/examples/studies/tradeoff/points.csv").open(encoding="utf-8") as file:
        points = {int(point["ensemble_size"]): point for point in csv.DictReader(file)}
    assert sorted(points) == [1, 2, 4, 8]
    speeds = {size: float(p["model_samples_per_second"]) for size, p in points.items()}
    assert max(speeds, key=speeds.__getitem__) == 1
    quality = {size: float(point["ensemble_quality"]) for size, point in points.items()}
    lost = f"M = 1 fastest, {100 * (quality[8] - quality[1]):.1f} points worse than M = 8"
    assert lost in rows("V3")["Fig. 7"][3]
    assert f"{share:.0%} of the BF16 peak".replace("%", " %") in rows("V2")["Table 11"][3]


def test_sentences_about_the_optimizations_are_those_of_its_points() -> None:
    """Of docs/studies.md: the table there is generated, these sentences are not."""
    page = " ".join((ROOT / "docs/studies.md").read_text(encoding="utf-8").split())
    result = json.loads(
        (ROOT / "docs/examples/studies/optimizations/result.json").read_text(encoding="utf-8")
    )
    minutes = {point["name"]: point["wall_seconds"] / 60 for point in result["points"]}
    shown = ("fp32", "mixed-bf16", "mixed-fp16", "fp16", "int8", "compression", "both")
    large = [name for name in minutes if name.startswith("large-batch")]
    in_all = sum(minutes[name] for name in (*shown, *large))
    assert f"({in_all:.0f} minutes, {minutes['fp16'] + minutes['mixed-fp16']:.0f} of them" in page
    quality = {point["name"]: point["score"]["ensemble_quality"] for point in result["points"]}
    assert "both together are above neither" in page
    assert quality["large-batch"] > quality["large-batch-neither"]


def test_counts_on_the_page_are_those_of_the_graphs() -> None:
    """Parameters, operations of an image and the scaling ratio of V2's two models."""
    network = shipped_operations("image_classification", "full", "aiperf")
    detector = shipped_operations("extreme_weather", "full", "aiperf")
    assert network is not None and detector is not None
    v1 = countable("resnet50-v1").model()
    one, step = (
        count(v1, (batch, *IMAGENET_INPUT), convention="aiperf", loss="softmax")
        for batch in (1, 128)
    )
    each = [one.total / 1e9, network.per_sample / 1e9, detector.per_sample / 1e9]
    millions = [count.parameters / 1e6 for count in (network, detector)]
    ratios = [
        scaling_ratio(step.total, parameters=step.parameters),
        scaling_ratio(detector.per_step(1), parameters=detector.parameters),
    ]
    ours = {name: cells[3] for name, cells in (rows("V2") | {"V3": rows("V3")["Table 4"]}).items()}
    assert ours["V3"] == "{:.1f} M and {:.1f} M".format(*millions)
    assert ours["Table 5"] == "{:.2f} (ResNet-50 v1) and {:.2f}".format(*ratios)
    assert ours["Table 10"] == (
        f"{each[1]:.1f} GFLOP (v1.5; {each[0]:.2f} for v1) and {each[2]:,.0f} GFLOP"
    )
    assert rows("AIPerf")["Table III"][3] == f"{each[0]:.2f} GFLOP"
    assert f"{each[2]:,.0f} GFLOP an image" in rows("V3")["Table 4"][4]


def test_roofs_of_the_roofline_page_are_computed() -> None:
    """Every number of its table on V2's system, from V2's Table 5, ceilings and links."""
    page = (ROOT / "docs" / "roofline.md").read_text(encoding="utf-8")
    table_rows = re.findall(
        r"^\| (EWA|Image Classification|the same, mixed)(?:, (\d+) \(.*?\))? \|.*?"
        r"\| ([\d,]+) T \| ([\d,]+) T \|",
        page,
        re.M,
    )
    assert len(table_rows) == 7
    workload, gpus = "", 0
    for name, number, roof, ceiling in table_rows:
        mixed = name == "the same, mixed"
        if not mixed:
            workload, gpus = name, int(number)
        ours = v2.standing(workload, gpus=gpus, precision="mixed" if mixed else "FP32")
        lowest = min(channel.bytes_per_second * channel.coi for channel in ours.channels)
        assert roof == f"{lowest / 1e12:,.0f}", (workload, gpus, mixed)
        assert ceiling == f"{ours.ceiling_flops / 1e12:,.0f}", (workload, gpus, mixed)
