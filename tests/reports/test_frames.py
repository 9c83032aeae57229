"""Frames of segmentation runs in a page."""

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from driftlaw.errors import DataError
from driftlaw.label_colors import label_map_to_rgb
from driftlaw.reports import build_report
from tests.reports.example_records import in_rounds, make_record, with_label_maps
from tests.reports.test_render_html import Page

TRUTH = np.array([[0, 1, 255]], np.uint8)


def encoded(pixels, file_format="PNG"):
    Image.fromarray(pixels).save(file := io.BytesIO(), file_format)
    return base64.b64encode(file.getvalue()).decode()


def record_with_frames(method, prediction, *, truth=TRUTH):
    record = with_label_maps(make_record(method, {"fog": 40, "jpeg_compression": 20}))
    record.header["stream"]["dataset"]["class_names"] = ["<b>road</b>", "sky", "train"]
    frame = {"input": encoded(np.zeros((1, 3, 3), np.uint8), "JPEG"), "truth": encoded(truth)}
    for line in record.batches[1::2]:
        line["frame"] = frame | {"prediction": encoded(np.array([prediction], np.uint8))}
    return replace(record)  # without cached segments


def images(page):
    return {tag["alt"]: tag["src"] for name, tag in page.tags if name == "img"}


def pixels(source):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))).tolist()


def test_page_has_a_strip_per_domain_and_a_legend():
    records = [record_with_frames("source", [1, 1, 1]), record_with_frames("law", [0, 1, 0])]
    text = build_report(records, "html")
    page = Page(text)
    shown = images(page)
    columns = ("input", "truth", "Source", "LAW")
    assert list(shown) == [f"{domain}: {name}" for domain in ("fog", "jpeg compression") for name in columns]
    assert shown["fog: input"].startswith("data:image/jpeg;base64,/9j/")
    assert pixels(shown["fog: truth"]) == label_map_to_rgb(TRUTH).tolist()
    assert pixels(shown["fog: LAW"]) == label_map_to_rgb(np.array([[0, 1, 0]])).tolist()
    assert f"{records[1].mean_iou_by_domain['fog']:.1f}" in page.texts["td"]
    assert page.texts["li"][:3] == ["<b>road</b>", "sky", "no class, not counted"]  # the third class does not occur
    assert "<b>road" not in text
    assert "data:image" not in build_report(records, "md") + build_report(records, "json")


def test_a_run_with_another_frame_or_none_has_no_image():
    other = record_with_frames("norm", [1, 1, 1], truth=TRUTH[:, ::-1])
    unfinished = record_with_frames("law", [0, 1, 0])
    del unfinished.batches[3]["frame"]
    records = [record_with_frames("source", [1, 1, 1]), other, unfinished]
    shown = images(Page(build_report([in_rounds(each, [0, 1]) for each in records], "html")))
    assert [name for name in shown if name.startswith("fog")] == [
        f"fog, round 1: {name}" for name in ("input", "truth", "Source", "LAW")
    ]
    assert "jpeg compression, round 2: LAW" not in shown


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("truth", "not base64!"),
        ("prediction", base64.b64encode(b"no image").decode()),
        ("prediction", encoded(np.zeros((1, 3, 3), np.uint8))),
        ("truth", encoded(np.zeros((1, 3), np.uint8))[:-40]),
        ("input", encoded(TRUTH)),
        ("truth", encoded(np.zeros((1, 2000), np.uint8))),
    ],
)
def test_a_damaged_frame_is_an_error(name, value):
    record = record_with_frames("law", [0, 1, 0])
    record.batches[1]["frame"] = record.batches[1]["frame"] | {name: value}
    with pytest.raises(DataError, match=f"a run in memory, batch 1, '{name}' of its frame"):
        build_report([record], "html")
