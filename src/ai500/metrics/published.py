"""Tables and figures of the papers about trials and rankings, as published."""

from __future__ import annotations

from typing import NamedTuple


class Repeated(NamedTuple):
    """Run-to-run variation of one AIBench task: standard deviation / mean of epochs to quality."""

    task: str
    variation: float | None
    """None: the paper says "not available"."""
    repeats: int | None


#: V2 Table 2. V2 §5.3.2 takes the least runs from it, the other way round than it reads [D3].
V2_TABLE_2 = (
    Repeated("Image Classification", 0.0112, 5),
    Repeated("Image Generation", None, None),
    Repeated("Text-to-Text Translation", 0.0938, 6),
    Repeated("Image-to-Text", 0.2353, 5),
    Repeated("Image-to-Image", None, None),
    Repeated("Speech Recognition", 0.1208, 4),
    Repeated("Face Embedding", 0.0573, 8),
    Repeated("3D Face Recognition", 0.3846, 4),
    Repeated("Object Detection", 0.0, 10),
    Repeated("Recommendation", 0.0995, 5),
    Repeated("Video Prediction", 0.1183, 4),
    Repeated("Image Compression", 0.2249, 4),
    Repeated("3D Object Reconstruction", 0.1607, 4),
    Repeated("Text Summarization", 0.2472, 5),
    Repeated("Spatial Transformer", 0.0729, 4),
    Repeated("Learning to Rank", 0.0190, 4),
    Repeated("Neural Architecture Search", 0.0615, 6),
)
