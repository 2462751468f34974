"""Pictures of a trial: the right frames and boxes, shown by a report without the data."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from ai500.data.climate.schema import CHANNELS
from ai500.data.climate.store import ClimateStore
from ai500.pipeline.scoring import write_report
from ai500.records import run_folder
from ai500.records.illustrations import Illustrations
from ai500.records.run_folder import RunFolder
from ai500.workloads.climate import illustrations as drawing
from ai500.workloads.climate.illustrations import KINDS
from ai500.workloads.detection.mean_average_precision import mean_average_precision
from ai500.workloads.detection.pictures import apply_threshold, choose_frames, picture_boxes
from tests.support import changed_records
from tests.support.html_words import HOSTILE, Words
from tests.support.synthetic_detections import climate_store, draw_pictures, write_illustrated_run
from tests.support.synthetic_run import Shape, write_synthetic_run

Floats = NDArray[np.float64]
BOX, OTHER, FAR = (0, 0, 10, 10), (20, 20, 40, 60), (60, 60, 70, 70)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ClimateStore:
    return climate_store(tmp_path_factory.mktemp("climate") / "store")


def rows(*frames: list[tuple[float, ...]], width: int) -> Floats:
    """Return frames of rows, padded with −1."""
    padded = np.full((len(frames), 4, width), -1.0)
    for frame, several in enumerate(frames):
        for row, values in enumerate(several):
            padded[frame, row] = values
    return padded


def drawn(run: RunFolder) -> Illustrations:
    return run_folder.read(Illustrations, run.trial(1).pictures_record)


def page_of(run: RunFolder) -> Words:
    write_report(run)
    return Words(run.report.read_text(encoding="utf-8"))


def test_boxes_are_shown_from_the_score_of_the_best_f1() -> None:
    """Right, right, wrong, right of three: F1 is 2/4, 4/5, 4/6, 6/7; the last is the best."""
    labels = rows([(*BOX, 0), (*OTHER, 1), (*FAR, 2)], width=5)
    boxes = rows([(*BOX, 0.9, 0), (*OTHER, 0.8, 1), (*BOX, 0.7, 3), (*FAR, 0.6, 2)], width=6)
    assert apply_threshold(boxes, labels).threshold == 0.6
    without_the_last = rows([(*BOX, 0.9, 0), (*OTHER, 0.8, 1), (*BOX, 0.7, 3)], width=6)
    best = apply_threshold(without_the_last, labels)
    assert best.threshold == 0.8
    assert best.boxes[0, :, 4].tolist() == [0.9, 0.8]


def test_where_nothing_is_right_half_is_the_threshold() -> None:
    labels = rows([(*BOX, 0)], width=5)
    wrong = rows([(*FAR, 0.9, 0), (*FAR, 0.3, 0)], width=6)
    assert apply_threshold(wrong, labels).threshold == 0.5
    nothing = apply_threshold(rows([], width=6), labels)
    assert (nothing.threshold, nothing.boxes[..., 4].max()) == (0.5, -1)


def test_frames_are_chosen_for_what_is_said_of_them() -> None:
    labels = rows([(*BOX, 0)], [(*BOX, 0), (*OTHER, 1)], [(*BOX, 1)], [], width=5)
    good = [[(*BOX, 0.9, 0)], [(*BOX, 0.9, 0), (*OTHER, 0.9, 1)]]
    ensemble = apply_threshold(rows(*good, [(*FAR, 0.9, 1)], [], width=6), labels)
    agrees = apply_threshold(rows(*good, [(*FAR, 0.9, 1)], [], width=6), labels)
    differs = apply_threshold(
        rows([(*FAR, 0.9, 0)], good[1], [(*FAR, 0.9, 1)], [], width=6), labels
    )
    chosen = {frame.reason: frame for frame in choose_frames([agrees, differs], ensemble, labels)}
    assert {reason: frame.frame for reason, frame in chosen.items()} == {
        "Most events": 1,
        "Members differ most": 0,
        "The ensemble errs most": 2,
    }
    worst = chosen["The ensemble errs most"]
    assert (worst.events, worst.hits, worst.false_alarms) == (1, 0, 1)
    # A lone member does not differ from itself, and a frame is shown once.
    assert [chosen.frame for chosen in choose_frames([ensemble], ensemble, labels)] == [1, 2]


def test_south_is_at_the_bottom() -> None:
    """Row 0 of a frame is the South Pole: a box there lies low, and so does moisture."""
    labels = rows([(0, 36, 12, 72, 3)], width=5)
    nobody = apply_threshold(rows([], width=6), labels)
    (box,) = picture_boxes(
        0, labels=labels, members={0: nobody}, ensemble=nobody, kinds=KINDS, size=(48, 72)
    )
    assert (box.left, box.top, box.right, box.bottom) == (0.5, 0.75, 1.0, 1.0)
    assert (box.role, box.label, box.tip) == ("truth", "AR", "true: atmospheric river")
    frame = np.zeros((len(CHANNELS), 48, 72), np.float32)
    frame[CHANNELS.index("TMQ"), :12] = drawing.MOST_VAPOUR
    png, width, height = drawing.map_png(frame)
    picture = np.asarray(Image.open(io.BytesIO(png)).convert("L"))
    assert picture.shape == (height, width) == (384, drawing.WIDTH)
    assert picture[-1].min() > 180 > 90 > picture[0].max()


def test_isobars_follow_the_pressure_and_nothing_else() -> None:
    frame = np.zeros((len(CHANNELS), 48, 72), np.float32)
    flat, _, _ = drawing.map_png(frame)
    assert np.unique(np.asarray(Image.open(io.BytesIO(flat)))).tolist() == [0]
    slope = np.linspace(99_000, 99_000 + 3 * drawing.ISOBAR_STEP, 72, dtype=np.float32)
    frame[CHANNELS.index("PSL")] = slope
    sloping, _, height = drawing.map_png(frame)
    indices = np.asarray(Image.open(io.BytesIO(sloping)))
    assert np.sum(indices[height // 2] == drawing.SHADES) == 3  # one pixel for each line crossed


def test_shades_grow_evenly_lighter() -> None:
    colours = drawing.palette()[: drawing.SHADES].astype(np.float64) / 255
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    luminance = linear @ (0.2126, 0.7152, 0.0722)
    steps = np.diff(np.cbrt(luminance))  # CIE's lightness, but for its scale
    assert steps.min() > 0.4 * steps.mean()
    assert steps.max() < 2.5 * steps.mean()


def test_a_trial_leaves_pictures_curves_and_areas(store: ClimateStore, tmp_path: Path) -> None:
    run = write_illustrated_run(tmp_path / "run", store, Shape(failed=frozenset({1})))
    record, samples = drawn(run), store.splits["validation"]
    assert len(record.pictures) == 3
    for picture in record.pictures:
        with Image.open(run.trial(1).pictures / picture.file) as image:
            assert image.size == (picture.width, picture.height)
        frame = int(picture.file[6:11])
        true = [box for box in picture.boxes if box.role == "truth"]
        assert len(true) == np.sum(samples.boxes[frame, :, 4] >= 0)
        sources = {box.tip.partition(":")[0] for box in picture.boxes}
        assert sources <= {"true", "ensemble", "member 0", "member 2", "member 3"}
    qualities = [
        mean_average_precision(np.load(run.trial(1).member(m).validation), samples.boxes, classes=4)
        for m in (0, 2, 3)
    ]
    _, members_mean, ensemble = record.rows[-1]
    assert members_mean == f"{np.mean(qualities):.3f}"
    assert float(ensemble) > float(members_mean)
    for chart, row in zip(record.charts, record.rows, strict=False):
        assert [line.role for line in chart.lines] == [*["member"] * 3, "ensemble"]
        assert np.mean(chart.lines[-1].values) == pytest.approx(float(row[-1]), abs=1e-3)


def test_the_report_shows_them_without_the_data(store: ClimateStore, tmp_path: Path) -> None:
    run = write_illustrated_run(tmp_path / "run", store, Shape())
    page = page_of(run)
    images = [attributes for tag, attributes in page.tags if tag == "image"]
    assert len(images) == 6  # each picture, and its shades
    assert all((image["href"] or "").startswith("data:image/png;base64,") for image in images)
    for words in (
        "Detections of the ensemble",
        "Most events: frame",
        "raises",
        "TC tropical cyclone",
    ):
        assert words in page.text
    assert all(name in page.text for row in drawn(run).rows for name in row)
    assert run.report.stat().st_size < 2_000_000
    named = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert all(attributes.get("aria-label") for attributes in named)


def test_drawing_again_changes_nothing_and_leaves_nothing(
    store: ClimateStore, tmp_path: Path
) -> None:
    run = write_illustrated_run(tmp_path / "run", store, Shape())
    folder = run.trial(1).pictures
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "frame-99999.png").write_bytes(b"of an earlier drawing")
    draw_pictures(run, store.splits["validation"], size=4)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_can_not_be_drawn_is_noted_and_no_more(store: ClimateStore, tmp_path: Path) -> None:
    run = write_illustrated_run(tmp_path / "run", store, Shape())
    run.trial(1).member(2).validation.write_bytes(b"not an array")
    draw_pictures(run, store.splits["validation"], size=4)
    assert not list(run.trial(1).pictures.glob("*.png"))
    assert "Nothing could be drawn" in page_of(run).text


def test_a_workload_without_pictures_leaves_no_folder(tmp_path: Path, store: ClimateStore) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape())
    for member in range(4):
        np.save(run.trial(1).member(member).validation, np.zeros((10, 4), np.float32))
    draw_pictures(run, store.splits["validation"], size=4)
    assert not run.trial(1).pictures.exists()
    assert "Detections of the ensemble" not in page_of(run).text  # nor in runs of older versions


def test_hostile_texts_stay_texts(store: ClimateStore, tmp_path: Path) -> None:
    run = write_illustrated_run(tmp_path / "run", store, Shape())

    def spoiled(value: Any) -> Any:
        if isinstance(value, dict):
            kept = ("file", "role")
            return {k: v if k in kept else spoiled(v) for k, v in value.items()}
        if isinstance(value, list):
            return [spoiled(item) for item in value]
        return HOSTILE + '"' + HOSTILE if isinstance(value, str) else value

    path = run.trial(1).pictures_record
    changed_records.save(path, spoiled(changed_records.load(path)))
    page = page_of(run)
    assert not [tag for tag, _ in page.tags if tag == "script"]
    assert HOSTILE in page.text
    assert len([tag for tag, _ in page.tags if tag == "image"]) == 6


@pytest.mark.parametrize("name", ["../ensemble.json", "../secret.png", "link.png", "text.png", "/"])
def test_only_pngs_of_the_folder_are_shown(store: ClimateStore, tmp_path: Path, name: str) -> None:
    run = write_illustrated_run(tmp_path / "run", store, Shape())
    folder, path = run.trial(1).pictures, run.trial(1).pictures_record
    record = changed_records.load(path)
    png = (folder / record["pictures"][0]["file"]).read_bytes()
    (folder.parent / "secret.png").write_bytes(png)
    (folder / "link.png").symlink_to(folder.parent / "secret.png")
    (folder / "text.png").write_text("root:x:0:0")
    record["pictures"][0]["file"] = name
    changed_records.save(path, record)
    page = page_of(run)
    assert len([tag for tag, _ in page.tags if tag == "image"]) == 4
    assert f"Not shown: no picture in {name}." in page.text


def test_a_damaged_record_is_named_and_the_report_is_written(
    store: ClimateStore, tmp_path: Path
) -> None:
    run = write_illustrated_run(tmp_path / "run", store, Shape())
    run.trial(1).pictures_record.write_text('{"title": 5}')
    assert "Not shown: pictures.json" in page_of(run).text
