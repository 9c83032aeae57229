"""Frames of segmentation runs for a page: input, true label map and the predictions of every method."""

import io
from base64 import b64decode

import numpy as np
import numpy.typing as npt
from PIL import Image

from driftlaw.errors import DataError
from driftlaw.label_colors import CLASS_COLORS, label_map_to_rgb
from driftlaw.records import RunRecord
from driftlaw.records.jsonl import Line
from driftlaw.reports.contents import label_cell
from driftlaw.reports.document import Cell, Strips
from driftlaw.reports.format import LABELS, error_text
from driftlaw.reports.result_table import ResultTable

_MAX_SIDE = 1024  # pixels; frames of a run are smaller

LabelMap = npt.NDArray[np.uint8]


def frame_strips(table: ResultTable) -> Strips | None:
    """Return a strip of images per stored frame, for the first run of every row; None if no run has frames.

    A row whose run has another frame there, because of another seed, has no image in the strip.

    Raises:
        DataError: A frame of a record is damaged.
    """
    frames = {row: {line["segment"]: line for line in row.first.batches if line.get("frame")} for row in table.rows}
    shown = [row for row in table.rows if frames[row]]
    strips, classes = [], set()
    for segment in sorted({segment for row in shown for segment in frames[row]}):
        first, line = next((row.first, frames[row][segment]) for row in shown if segment in frames[row])
        truth = _label_map(first, line, "truth")
        images: list[tuple[bytes, str] | None] = [(_open(first, line, "input")[1], ""), (_png(truth), "")]
        for row in shown:
            own, record = frames[row].get(segment), row.first
            if own is None or not np.array_equal(truth, _label_map(record, own, "truth")):
                images.append(None)
                continue
            prediction = _label_map(record, own, "prediction")
            lines = [other for other in record.batches if other["segment"] == segment]
            (part,) = RunRecord(record.header, lines).segments
            images.append((_png(prediction), error_text(part.mean_iou)))
            classes |= {*np.unique(np.append(truth, prediction)).tolist()}
        strips.append((_title(table, line), tuple(images)))
    if not strips:
        return None
    names = dict(enumerate(shown[0].first.class_names))
    known = sorted(classes - {len(CLASS_COLORS)})
    legend = [(names.get(index, str(index)), f"#{CLASS_COLORS[index].tobytes().hex()}") for index in known]
    legend += [("no class, not counted", "")] if len(CLASS_COLORS) in classes else []
    headings = (Cell("input"), Cell("truth"), *(label_cell(table, row) for row in shown))
    return Strips(headings, tuple(strips), tuple(legend), LABELS["captions"]["frames"])


def _title(table: ResultTable, line: Line) -> str:
    """Return the domain of a strip, with its severity and round if there are several."""
    domain = line["domain"]
    parts = [domain["name"].replace("_", " ")]
    parts += [f"severity {domain['severity']}"] if len(table.severities) > 1 else []
    has_rounds = any(part.round for part in table.rows[0].first.segments)
    return ", ".join(parts + ([f"round {domain['round'] + 1}"] if has_rounds else []))


def _open(record: RunRecord, line: Line, name: str) -> tuple[Image.Image, bytes]:
    """Return an image of a frame and the bytes of its file, after checks: records may come from somewhere else."""
    try:
        content = b64decode(line["frame"][name], validate=True)
        image = Image.open(io.BytesIO(content), formats=["JPEG"] if name == "input" else ["PNG"])
        if max(image.size) > _MAX_SIDE or (name != "input" and image.mode != "L"):
            raise ValueError(f"an image of mode {image.mode} with {image.width}×{image.height} pixels")
        image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        where = f"{record.location}, batch {line['batch']}"
        raise DataError(f"The record is damaged: {where}, '{name}' of its frame: {error}. Run again.") from error
    return image, content


def _label_map(record: RunRecord, line: Line, name: str) -> LabelMap:
    return np.asarray(_open(record, line, name)[0])


def _png(labels: LabelMap) -> bytes:
    Image.fromarray(label_map_to_rgb(labels)).save(file := io.BytesIO(), "PNG", optimize=True)
    return file.getvalue()
