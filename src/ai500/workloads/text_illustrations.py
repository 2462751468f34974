"""The report's section of a language model: texts with the bits of their bytes, and a table."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ai500.data.store import Arrays, Samples
from ai500.records.illustrations import Drawn, Illustrations, Picture, Shading
from ai500.workloads.learnable_text import SMOKE, WORKSTATION

if TYPE_CHECKING:
    from ai500.workloads.language_model import LanguageModel

Floats = NDArray[np.floating]

COLUMNS = 32  # bytes in a line of a picture
CELL_WIDTH, CELL_HEIGHT, LETTER = 18, 28, 17  # pixels
MOST_BITS = 8.0  # of the darkest shade: a byte without a prediction takes as many
PALE, DARK = np.array([255.0, 255.0, 255.0]), np.array([226.0, 120.0, 60.0])
SHADING = Shading("bits.png", f"0 to {MOST_BITS:g} bits")


def illustrations(
    workload: LanguageModel,
    predictions: Mapping[int, Floats],
    *,
    ensemble: Floats,
    samples: Samples,
) -> Drawn:
    """Show members' and the ensemble's probabilities of the true tokens [samples, context]."""
    fields = samples.rows(np.arange(samples.count))
    pictures, images = [], {}
    if fields["tokens"].dtype == np.uint8:  # other tokens have no text without their tokenizer
        for reason, number in _chosen(predictions, ensemble).items():
            text, bits = fields["tokens"][number], _bits(ensemble[number])
            name = f"text-{number:05d}.png"
            images[name], width, height = text_png(text, bits)
            pictures.append(_picture(reason, number, bits, file=name, size=(width, height)))
        images[SHADING.file] = _png(_shades(np.linspace(0, MOST_BITS, 64))[None])
    return Drawn(
        Illustrations(
            title="Texts and their bits",
            introduction=_introduction(samples, shown=bool(pictures)),
            pictures=tuple(pictures),
            table_title="Bits per byte of the validation texts",
            columns=("", "all tokens", "first quarter", "last quarter"),
            rows=tuple(_rows(workload, predictions, ensemble, fields)),
        ),
        images,
    )


def _bits(probabilities: Floats) -> Floats:
    bits: Floats = -np.log2(np.maximum(probabilities, np.finfo(np.float32).tiny))
    return bits


def _chosen(predictions: Mapping[int, Floats], ensemble: Floats) -> dict[str, int]:
    """Return the texts to show by the reason: a typical one, and the ensemble's largest gain."""
    bits = _bits(ensemble).mean(axis=1)
    member_bits = np.zeros(len(bits))
    for rows in predictions.values():
        member_bits += _bits(rows).mean(axis=1)
    gains = member_bits / len(predictions) - bits
    return {
        "Text of about mean quality": int(np.abs(bits - bits.mean()).argmin()),
        "Text on which the ensemble gains most over its members": int(gains.argmax()),
    }


def _picture(
    reason: str, number: int, bits: Floats, *, file: str, size: tuple[int, int]
) -> Picture:
    caption = f"The ensemble takes {bits.mean():.3f} bits per byte, at most {bits.max():.1f}."
    return Picture(
        title=f"{reason}: number {number:,}",
        caption=caption,
        alternative=f"A text whose letters are shaded by their bits. {caption}",
        file=file,
        width=size[0],
        height=size[1],
        boxes=(),
        x_ticks=(),
        y_ticks=(),
        shading=SHADING,
    )


def _introduction(samples: Samples, *, shown: bool) -> tuple[str, ...]:
    text = (
        "Bits of a token are −log₂ of the probability that the ensemble gave it, the mean of its "
        "members' probabilities. The table compares the beginning of the context with its end, "
        "where more of the text is known."
    )
    pictures = (
        f"The {samples.count:,} validation texts are numbered from 0. Each letter is shaded by its "
        "bits; the first is given, not predicted, and · stands for a line's end."
    )
    return (text, pictures) if shown else (text,)


def _rows(
    workload: LanguageModel, predictions: Mapping[int, Floats], ensemble: Floats, fields: Arrays
) -> list[tuple[str, ...]]:
    """Return the table: the ensemble, its members, and the optimum where it is known."""

    def row(name: str, parts: Floats) -> tuple[str, ...]:
        return (name, *(f"{value:.4f}" for value in parts))

    context = ensemble.shape[1]
    quarters = (slice(None), slice(None, context // 4), slice(-(context // 4), None))
    lengths = fields["bytes"]

    def qualities(probabilities: Floats) -> Floats:
        return np.array(
            [
                # A quarter's bytes are not known, only those of the whole text.
                workload.quality(part, {"bytes": lengths * (part.shape[1] / context)})
                for part in (probabilities[:, quarter] for quarter in quarters)
            ]
        )

    members = {member: qualities(rows) for member, rows in predictions.items()}
    rows = [
        row("ensemble", qualities(ensemble)),
        row("members' mean", np.mean(list(members.values()), axis=0)),
        *(row(f"member {member}", parts) for member, parts in members.items()),
    ]
    optimum = source_bits(fields["tokens"])
    if optimum is not None:
        rows.append(("the text's source: no model can expect less", f"{optimum:.4f}", "", ""))
    return rows


def source_bits(texts: NDArray[np.integer]) -> float | None:
    """Return the bits per byte of generated texts under their own source; None for others."""
    for source in (SMOKE, WORKSTATION):
        shape = (source.validation, source.length)
        if texts.shape == shape and np.array_equal(texts[:4], source.tokens("validation", 0, 4)):
            return source.bits_per_byte(texts.astype(np.uint8))
    return None


def text_png(text: NDArray[np.uint8], bits: Floats) -> tuple[bytes, int, int]:
    """Draw a text, each letter on a cell shaded by its bits; return PNG, width and height."""
    lines = -(-len(text) // COLUMNS)
    shades = np.zeros((lines * COLUMNS, 3), np.uint8) + PALE.astype(np.uint8)
    shades[1 : len(text)] = _shades(bits)
    cells = shades.reshape(lines, COLUMNS, 3)
    image = Image.fromarray(cells.repeat(CELL_HEIGHT, axis=0).repeat(CELL_WIDTH, axis=1))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(LETTER)
    for place, value in enumerate(text):
        letter = chr(value) if 32 <= value < 127 else "·"
        column, line = place % COLUMNS, place // COLUMNS
        middle = ((column + 0.5) * CELL_WIDTH, (line + 0.5) * CELL_HEIGHT)
        draw.text(middle, letter, fill=(20, 20, 20), font=font, anchor="mm")
    return _png(np.asarray(image)), image.width, image.height


def _shades(bits: Floats) -> NDArray[np.uint8]:
    share = np.clip(bits / MOST_BITS, 0.0, 1.0)[:, None]
    shades: NDArray[np.uint8] = np.rint(PALE + share * (DARK - PALE)).astype(np.uint8)
    return shades


def _png(colours: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(colours).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
