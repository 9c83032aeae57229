"""Draws the pictures of the README and the manual from the records in results/ and from embedded data.

``python docs/make_images.py`` writes all of them to docs/images/; ``python docs/make_images.py rounds report`` some.
Screenshots of a report and of the live page need chromium and are left as they are if there is none.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.patches import Patch
from PIL import Image
from record_tables import ROOT, TITLES, batch_size_errors, load, step_milliseconds

from driftlaw.corruptions import corrupt, list_corruptions
from driftlaw.corruptions.contact_sheet import contact_sheet
from driftlaw.datasets import load_dataset
from driftlaw.records import error_by_round, find_records, read_record
from driftlaw.reports import make_tables
from driftlaw.reports.frames import frame_strips

IMAGES = ROOT / "docs" / "images"
MEAN_OF_BATCHES = 20  # in the picture of LAW+
COLORS = {
    "source": "#8c8c8c",
    "norm": "#4c9be8",
    "tent": "#e8743b",
    "law": "#1a7f37",
    "law_plus": "#0b4f6c",
    "cotta": "#9b59b6",
    "rmt": "#c0392b",
    "gtta": "#d4a017",
    "adacontrast": "#16a2b8",
    "eta": "#7cb342",
    "eata": "#558b2f",
    "rdumb": "#6d8b9c",
    "roid": "#2e4a9e",
    "cmf": "#7e57c2",
    "autorgn": "#795548",
    "surgical": "#e05a9c",
    "palm": "#2f8f8f",
    "sar": "#b8860b",
    "deyo": "#6a5acd",
    "rotta": "#556b2f",
    "lame": "#a0522d",
}
plt.rcParams.update(
    {
        "figure.dpi": 100,
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "svg.hashsalt": "driftlaw",
        "svg.fonttype": "none",
    }
)


def save(figure: plt.Figure, name: str) -> None:
    """Write a figure without a date, so that the same records give the same file."""
    metadata = {"Date": None} if name.endswith(".svg") else {"Software": None}
    figure.savefig(IMAGES / name, bbox_inches="tight", facecolor="white", metadata=metadata)
    plt.close(figure)


def label_last(axes: plt.Axes, points: dict[str, tuple[float, float]]) -> None:
    """Write the name of each line at its last point."""
    for method, (x, y) in points.items():
        axes.annotate(
            TITLES[method], (x, y), xytext=(6, 0), textcoords="offset points", color=COLORS[method], va="center"
        )


def rounds() -> None:
    """Error in each of ten rounds through the fifteen corruptions, without a reset."""
    figure, axes = plt.subplots(figsize=(7.2, 3.4))
    last = {}
    for record in load("stress/cifar10-c", schedule="recurring"):
        if record.method == "law" and record.settings["learning_rate"] != 1e-3:
            continue
        errors = error_by_round(record)
        numbers = range(1, len(errors) + 1)
        axes.plot(numbers, errors, color=COLORS[record.method], marker="o", markersize=4, linewidth=2)
        last[record.method] = (len(errors), errors[-1])
    label_last(axes, last)
    axes.set(xlabel="round through the 15 corruptions of CIFAR-10-C", ylabel="error in %", ylim=(0, None))
    axes.set_xticks(range(1, 11))
    save(figure, "rounds.svg")


def methods() -> None:
    """Error on each corruption of the embedded stream, one picture per method, beside source and BN-1."""
    records = {record.method: record for record in load("embedded", "embedded-methods")}
    for method in records:
        figure, axes = plt.subplots(figsize=(7.2, 2.8))
        last = {}
        for name in dict.fromkeys(("source", "norm", method)):
            errors = records[name].error_by_domain
            strong = name == method
            axes.plot(
                list(errors.values()),
                color=COLORS[name],
                linewidth=2.4 if strong else 1.3,
                marker="o" if strong else None,
                markersize=4,
            )
            last[name] = (len(errors) - 1, list(errors.values())[-1])
        spread_labels(axes, last)
        axes.set(ylabel="error in %", ylim=(0, 92))
        axes.set_xticks(range(len(errors)), [name.replace("_", " ") for name in errors], rotation=40, ha="right")
        save(figure, f"method-{method}.svg")


def spread_labels(axes: plt.Axes, points: dict[str, tuple[float, float]], gap: float = 6.5) -> None:
    """Write the names at the last points, moved apart where they would overlap."""
    height = -gap
    for method, (x, y) in sorted(points.items(), key=lambda item: item[1][1]):
        height = max(y, height + gap)
        title = TITLES[method].split(" (")[0]
        axes.annotate(title, (x, height), xytext=(8, 0), textcoords="offset points", color=COLORS[method], va="center")


def law_plus_mixed() -> None:
    """Error along a stream of mixed held-out corruptions: LAW+, LAW+ without two of its ingredients, and others."""
    figure, axes = plt.subplots(figsize=(7.2, 3.4))
    start = {"adapted_share": 0.67, "anchor": 0.005, "symmetric": True}  # settings of the ablation
    shown = {
        "symmetric": ("LAW+", "-"),
        "anchor": ("LAW+, no anchor", ":"),
        "adapted_share": ("LAW+, all layers", "--"),
    }
    peers = [record for record in load("tuning-law_plus/mixed") if record.method in ("norm", "roid", "law")]
    for record in [*peers, *load("ablation-law_plus/mixed")]:
        label, style = TITLES[record.method], "-"
        if record.method == "law_plus":
            changed = [key for key, value in start.items() if record.settings[key] != value]
            if not changed:
                continue
            label, style = shown[changed[0]]
        errors = [100 * batch["wrong"] / batch["images"] for batch in record.batches]
        smooth = np.convolve(errors, np.ones(MEAN_OF_BATCHES) / MEAN_OF_BATCHES, mode="valid")
        numbers = range(MEAN_OF_BATCHES, len(errors) + 1)
        axes.plot(numbers, smooth, style, color=COLORS[record.method], label=label, linewidth=2)
    axes.set(xlabel=f"batch (mean of {MEAN_OF_BATCHES} batches)", ylabel="error in %")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, "law_plus-mixed.svg")


def batch_sizes() -> None:
    """Error against the batch size with default settings; dashed with batch statistics."""
    figure, axes = plt.subplots(figsize=(6.4, 3.2))
    for method, errors in batch_size_errors("bench/batch-sizes.json")[1].items():
        axes.plot(list(errors), list(errors.values()), color=COLORS[method], marker="o", label=TITLES[method])
        sizes = list(errors)
    for method, errors in batch_size_errors("bench/batch-sizes-batch.json")[1].items():
        axes.plot(list(errors), list(errors.values()), color=COLORS[method], linestyle="--", linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set(xlabel="images per batch", ylabel="error in %", ylim=(0, 95))
    axes.legend(frameon=False)
    save(figure, "batch-sizes.svg")


def layer_weights() -> None:
    """LAW's weight of every layer at every batch of the embedded stream."""
    (record,) = (record for record in load("embedded") if record.method == "law")
    weights = np.array(record.diagnostics("layer_weights")).T
    figure, axes = plt.subplots(figsize=(8, 5.2))
    picture = axes.imshow(weights, aspect="auto", cmap="magma", vmin=0, vmax=1, interpolation="nearest")
    figure.colorbar(picture, ax=axes, label="layer weight w̄", shrink=0.8)
    per_domain = weights.shape[1] // len(record.error_by_domain)
    names = [name.replace("_", " ") for name in record.error_by_domain]
    axes.set_xticks(
        [per_domain * (index + 0.5) - 0.5 for index in range(len(names))], names, rotation=45, ha="right", fontsize=8
    )
    labels = record.diagnostic_labels("layer_weights")
    axes.set_yticks(range(0, len(labels), 2), labels[::2], fontsize=6)
    axes.grid(False)
    axes.set_ylabel("parameter tensor, input at the top")
    save(figure, "layer-weights.png")


def corruptions() -> None:
    """The 19 corruptions at five severities, of one embedded image."""
    pixels = load_dataset("cifar10-embedded").images([13])[0]
    sheet = contact_sheet(Image.fromarray(pixels))
    sheet = sheet.resize((sheet.width * 2 // 3, sheet.height * 2 // 3), Image.Resampling.LANCZOS)
    sheet.save(IMAGES / "corruptions.jpg", quality=82, optimize=True)


def corruption_tiles() -> None:
    """One embedded image, clean and under each of the nineteen corruptions at severity 5."""
    pixels = torch.from_numpy(load_dataset("cifar10-embedded").images([13])).permute(0, 3, 1, 2)
    tiles = {"clean": pixels} | {name: corrupt(pixels, name, 5) for name in list_corruptions("all")}
    figure, grid = plt.subplots(2, 10, figsize=(11, 2.7))
    for axes, (name, tile) in zip(grid.flat, tiles.items(), strict=True):
        axes.imshow(tile[0].permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.set_title(name.replace("_", " ").replace(" transform", "").replace(" compression", ""), fontsize=9)
        axes.axis("off")
    figure.tight_layout(pad=0.4)
    save(figure, "corruption-tiles.png")


def speed() -> None:
    """Milliseconds per step on an H200."""
    times = step_milliseconds("table1/step-times.json", "wrn_28_10")
    labels = {
        "forward only": "plain forward pass, float32",
        "source": "source",
        "norm": "norm",
        "tent": "tent",
        "naive TENT": "naive TENT",
        "law, fast": 'law, preset="fast"',
        "law": "law",
        "naive LAW": "naive LAW",
    }
    figure, axes = plt.subplots(figsize=(6.6, 3))
    values = [times[label] for label in labels]
    colors = ["#b9b9b9" if label.startswith(("naive", "forward")) else COLORS["law"] for label in labels]
    bars = axes.barh(list(labels.values()), values, color=colors)
    axes.bar_label(bars, fmt="%.1f", padding=4)
    axes.invert_yaxis()
    axes.set(xlabel="ms/step (WRN-28-10, batch 200, NVIDIA H200)")
    axes.grid(False, axis="y")
    save(figure, "speed.svg")


def tutorial() -> None:
    """The plot and the printed lines of the tutorial, made by running it."""
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=folder, check=True, env=environment, stdout=subprocess.PIPE, text=True)
        shutil.copy(Path(folder) / "tutorial.png", IMAGES / "tutorial.png")
    (IMAGES / "tutorial.txt").write_text(done.stdout, encoding="utf-8")


def report() -> None:
    """A screenshot of the report page of the embedded runs."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        runs = ["results/embedded", "results/embedded-methods"]
        subprocess.run([sys.executable, "-m", "driftlaw", "report", *runs, "--out", str(page)], cwd=ROOT, check=True)
        screenshot(page.as_uri(), "report.jpg")


def frames() -> None:
    """Frames of five domains of the generated segmentation stream, from the records of a run."""
    names = ["gaussian noise", "glass blur", "snow", "contrast", "jpeg compression"]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--methods", "source,norm,tent,law", "--metrics", "frames", "--out", folder]
        subprocess.run([sys.executable, "-m", "driftlaw", "run", "shapes", *options], cwd=ROOT, check=True)
        draw_frames(Path(folder), names, "frames-shapes.png")


def draw_frames(folder: Path, names: list[str], picture: str) -> None:
    """Draw the frames of some domains of the records in a folder, as a report shows them."""
    (table,) = make_tables(map(read_record, find_records([folder])))
    strips = frame_strips(table)
    assert strips is not None
    rows = [(name, images) for name, images in strips.rows if name in names]
    height, width = plt.imread(io.BytesIO(rows[0][1][1][0])).shape[:2]
    columns, side = len(strips.headings), 1.5
    size = (columns * side, len(rows) * (side * height / width + 0.2) + 0.6)
    figure, grid = plt.subplots(len(rows), columns, figsize=size, squeeze=False, layout="constrained")
    for axes, heading in zip(grid[0], strips.headings, strict=True):
        axes.set_title(heading.label, fontsize=10)
    for line, (name, images) in zip(grid, rows, strict=True):
        for axes, image in zip(line, images, strict=True):
            axes.imshow(Image.open(io.BytesIO(image[0])), interpolation="nearest")
            axes.set_xlabel(image[1] and f"{image[1]} %", fontsize=8, labelpad=2)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        line[0].set_ylabel(name.replace(" ", "\n"), fontsize=9)
    patches = [Patch(facecolor=color or "#9c9c9c", hatch="" if color else "////") for _, color in strips.legend]
    figure.legend(patches, [name for name, _ in strips.legend], loc="outside lower center", ncols=6, frameon=False)
    save(figure, picture)


def live_page() -> None:
    """A screenshot of the live page of the server, after two minutes of foggy, then snowy images."""
    if importlib.util.find_spec("uvicorn") is None:
        print("live-page.jpg was left as it is: the extra 'serve' is not installed", file=sys.stderr)
        return
    clean = torch.from_numpy(load_dataset("cifar10-embedded").images(range(800))).permute(0, 3, 1, 2)
    images = torch.cat([corrupt(half, name, 5) for half, name in zip(clean.chunk(2), ("fog", "snow"), strict=True)])
    command = [sys.executable, "-m", "driftlaw", "serve", "--port", "0", "--set", "step.window=32"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        address = next(line.split()[-1] for line in server.stderr if line.startswith("Live page:"))
        threading.Thread(target=server.stderr.read, daemon=True).start()  # the request log
        time.sleep(2.0)
        try:
            for batch in images.split(8):
                body = json.dumps({"images": batch.tolist(), "dtype": "uint8"}).encode()
                request = urllib.request.Request(f"{address}v1/predict", body, {"Content-Type": "application/json"})
                urllib.request.urlopen(request).read()
                time.sleep(1.0)
            screenshot(address, "live-page.jpg", "--virtual-time-budget=4000")  # time for the script to read the status
        finally:
            server.terminate()


def screenshot(address: str, name: str, *options: str) -> None:
    """Draw a page with chromium; without it the picture is left as it is."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print(f"{name} was left as it is: chromium is not installed", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "page.png"
        size = ["--window-size=1280,1500", "--hide-scrollbars", "--force-device-scale-factor=1"]
        basic = ["--headless", "--no-sandbox", "--disable-gpu"]
        command = [chromium, *basic, *size, *options, f"--screenshot={shot}", address]
        subprocess.run(command, check=True, capture_output=True)
        picture = Image.open(shot).convert("RGB")
        picture.resize((960, picture.height * 960 // picture.width), Image.Resampling.LANCZOS).save(
            IMAGES / name, quality=82, optimize=True
        )


PICTURES = (
    rounds,
    methods,
    law_plus_mixed,
    batch_sizes,
    layer_weights,
    corruptions,
    corruption_tiles,
    speed,
    tutorial,
    report,
    frames,
    live_page,
)

if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    chosen = [name.replace("-", "_") for name in sys.argv[1:]]
    for picture in PICTURES:
        if not chosen or picture.__name__ in chosen:
            picture()
