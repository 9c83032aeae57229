"""Markdown tables of the README and the manual, generated from the records in results/.

``python docs/record_tables.py NAME`` prints one table; ``tools/fill_documents.py`` puts it into the README. The manual
includes the same tables, written to docs/reference/ when it is built.
"""

from __future__ import annotations

import functools
import json
import re
import statistics
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from driftlaw.records import RunRecord, error_by_round, find_records, read_record

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
TITLES = {
    "source": "Source (no adaptation)",
    "norm": "BN-1",
    "tent": "TENT",
    "cotta": "CoTTA",
    "adacontrast": "AdaContrast",
    "rmt": "RMT",
    "gtta": "GTTA-MIX",
    "eta": "ETA",
    "eata": "EATA",
    "rdumb": "RDumb",
    "roid": "ROID",
    "cmf": "CMF",
    "autorgn": "AutoRGN",
    "surgical": "Surgical",
    "palm": "PALM",
    "sar": "SAR",
    "deyo": "DeYO",
    "rotta": "RoTTA",
    "lame": "LAME",
    "law": "LAW",
    "law_plus": "LAW+",
}


read_once = functools.cache(read_record)


def load(*folders: str, **stream: Any) -> list[RunRecord]:
    """Return the records in folders under results/ whose stream has these settings."""
    records = (read_once(path) for path in find_records([RESULTS / folder for folder in folders]))
    return [record for record in records if all(record.header["stream"][key] == stream[key] for key in stream)]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; the first column is text, the others are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def published_means(table: int, dataset: str) -> dict[str, float]:
    """Return the mean errors that a table of the paper prints for a dataset, by method."""
    path = ROOT / "driftlaw" / "reports" / "published" / f"table{table}.toml"
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["rows"]
    return {row["method"]: row["mean"] for row in rows if row["dataset"] == dataset}


def step_milliseconds(path: str, model: str) -> dict[str, float]:
    """Return the median milliseconds per step in a benchmark record, by the label of the row."""
    rows = json.loads((RESULTS / path).read_text(encoding="utf-8"))["rows"]
    return {row["label"]: row["milliseconds"]["median"] for row in rows if row["model"] == model}


def cifar10_table() -> str:
    """LAW and the other methods on CIFAR-10-C, beside the numbers that the paper prints."""
    groups = defaultdict(list)
    for record in load("table1/cifar10-c", limit=None):
        groups[_title(record)].append(record)
    published, milliseconds = published_means(1, "cifar10-c"), step_milliseconds("table1/step-times.json", "wrn_28_10")
    rows = []
    for title, records in groups.items():
        method, errors = records[0].method, [record.mean_error for record in records]
        rows.append(
            (
                statistics.mean(errors),
                title,
                "yes" if records[0].needs_train_data else "no",
                f"{statistics.mean(errors):.1f} ± {statistics.stdev(errors):.1f}",
                f"{published[method]:.1f}",
                f"{milliseconds[method]:.1f}",
            )
        )
    head = ("method", "needs training data", "error in %", "error in the paper", "ms/step")
    return markdown_table(head, [row[1:] for row in sorted(rows, reverse=True)])


def _title(record: RunRecord) -> str:
    if record.method != "law":
        return TITLES[record.method]
    is_paper = record.settings["learning_rate"] == 1e-3 and record.settings["consistency_weight"] == 0.1
    return "**LAW**, settings of the paper" if is_paper else "**LAW**, tuned on held-out corruptions"


def cifar10_methods_table() -> str:
    """Methods that need no training data on CIFAR-10-C, all with one WRN-28-10."""
    groups = defaultdict(list)
    for record in load("cifar10-c"):
        groups[record.method].append(record)
    means = {method: statistics.mean(record.mean_error for record in found) for method, found in groups.items()}
    rows = []
    for method, mean in sorted(means.items(), key=lambda item: -item[1]):
        found, cost = groups[method], groups[method][0].cost
        rows.append(
            (
                TITLES[method],
                f"{mean:.1f} ± {statistics.stdev(record.mean_error for record in found):.1f}",
                f"{mean - means['norm']:+.1f}".replace("-", "−") if method != "norm" else "",
                len(found),
                f"{cost['step_flops_per_image'] / cost['forward_flops_per_image']:.1f}",
            )
        )
    head = ("method", "error in %", "relative to BN-1", "seeds", "forward passes per step")
    return f"{markdown_table(head, rows)}\n\n{_reported('cifar10-c')}"


def embedded_table() -> str:
    """Every method on the embedded dataset and model."""
    records = sorted(load("embedded", "embedded-methods"), key=lambda record: -record.mean_error)
    source = next(record.mean_error for record in records if record.method == "source")
    rows = [
        (
            TITLES[record.method],
            "yes" if record.needs_train_data else "no",
            f"{record.mean_error:.1f}",
            f"{record.mean_error - source:+.1f}".replace("-", "−") if record.method != "source" else "",
            f"{1000 * record.seconds_per_step:.0f}",
        )
        for record in records
    ]
    table = markdown_table(("method", "needs training data", "error in %", "vs. source, points", "ms/step"), rows)
    return f"{table}\n\n{_reported('embedded', 'embedded-methods')}"


def batch_size_table() -> str:
    """Error of the default settings on the embedded stream for several batch sizes, averaged over 15 corruptions."""
    path = "bench/batch-sizes.json"
    record, errors = batch_size_errors(path)
    sizes = list(dict.fromkeys(row["batch_size"] for row in record["rows"]))
    rows = [(TITLES[method], *(f"{found[size]:.1f}" for size in sizes)) for method, found in errors.items()]
    table = markdown_table(("method", *(f"batch of {size}" for size in sizes)), rows)
    return f"{table}\n\n{_origin(path, record)}"


def batch_size_errors(path: str) -> tuple[dict[str, Any], dict[str, dict[int, float]]]:
    """Return a record of the benchmark ``batch-sizes``, and its errors by method and batch size."""
    record = json.loads((RESULTS / path).read_text(encoding="utf-8"))
    errors: dict[str, dict[int, float]] = defaultdict(dict)
    for row in record["rows"]:
        errors[row["method"]][row["batch_size"]] = row["error"]
    return record, errors


def stream_table() -> str:
    """Error on streams that are hard for test-time adaptation, CIFAR-10-C with a WRN-28-10."""
    kinds = {
        "one corruption after the other, ten rounds": {"schedule": "recurring"},
        "all corruptions mixed in every batch": {"schedule": "mixed"},
        "labels correlated in time": {"schedule": "continual", "order": "dirichlet"},
        "clean images": {"schedule": "single"},
    }
    rows = []
    for title, stream in kinds.items():
        errors = {}
        for record in load("stress/cifar10-c", **stream):
            if record.method != "law" or record.settings["learning_rate"] == 1e-3:
                errors[record.method] = record.mean_error
        rows.append((title, *(f"{errors[method]:.1f}" for method in ("source", "norm", "tent", "law"))))
    table = markdown_table(("stream", *(TITLES[method] for method in ("source", "norm", "tent", "law"))), rows)
    return f"{table}\n\n{_reported('stress/cifar10-c')}"


def rounds_table() -> str:
    """Error in the first and the last of ten rounds through the fifteen corruptions."""
    rows = []
    for record in load("stress/cifar10-c", schedule="recurring"):
        if record.method != "law" or record.settings["learning_rate"] == 1e-3:
            rounds = error_by_round(record)
            rows.append((TITLES[record.method], f"{rounds[0]:.1f}", f"{rounds[-1]:.1f}"))
    table = markdown_table(("method", "first round", "tenth round"), sorted(rows, key=lambda row: -float(row[1])))
    return f"{table}\n\n{_reported('stress/cifar10-c')}"


def step_table(path: str, names: dict[str, str]) -> str:
    """Milliseconds per step of a benchmark record, one column per model; ``names`` selects and renames rows."""
    record = json.loads((RESULTS / path).read_text(encoding="utf-8"))
    models = list(dict.fromkeys((row["model"], row["batch_size"]) for row in record["rows"]))
    cells = {(row["label"], row["model"], row["batch_size"]): row for row in record["rows"]}
    rows = []
    for label, name in names.items():
        row = [name]
        for model in models:
            median = cells[label, *model]["milliseconds"]["median"]
            naive = cells["naive LAW", *model]["milliseconds"]["median"]
            row += [f"{median:.1f}", f"{naive / median:.1f}×"]
        rows.append(row)
    head = [""]
    for model, batch in models:
        head += [f"{model}, batch {batch}: ms/step", "speed-up over naive LAW"]
    return f"{markdown_table(head, rows)}\n\n{_origin(path, record)}"


def _origin(path: str, record: dict[str, Any]) -> str:
    """Return a line and a code block that say where the numbers of a benchmark record come from."""
    device = f"{record['device']['name']}, torch {record['versions']['torch']}, commit {record['commit']}"
    command = re.sub(r" --out \S+", "", record["command"])
    return f"Record: `results/{path}` ({device}), written by\n\n```text\n{command}\n```"


def _reported(*folders: str) -> str:
    """Return a line that names the records of a table and the command that shows more of them."""
    names = " ".join(f"results/{folder}" for folder in folders)
    return f"More columns, settings and commands of these records: `driftlaw report {names} --format md`."


STEP_ROWS = {
    "forward only": "plain forward pass, float32, no adaptation",
    "naive TENT": "naive TENT",
    "naive LAW": "naive LAW",
    "tent": "`tent`",
    "law": "`law`",
    "law, compiled": "`law`, `compiled=True`",
    "law, fast": '`law`, `preset="fast"`',
    "law, float32": '`law`, `precision="float32", capture="off"`',
}

MEMORY_ROWS = {"law, recompute": "`law`, `recompute=True`", "law_plus": "`law_plus`"}


def speed_gpu_table() -> str:
    """Milliseconds per step on a GPU."""
    return step_table("table1/step-times.json", STEP_ROWS)


def speed_cpu_table() -> str:
    """Milliseconds per step on two CPU cores."""
    names = {label: name for label, name in STEP_ROWS.items() if label not in ("tent", "law, float32")}
    return step_table("bench/step-cpu-wrn_16_1.json", names)


def segmentation_table() -> str:
    """Milliseconds and peak memory of a step of a segmentation network on two CPU cores."""
    path = "bench/step-cpu-fpn_resnet50.json"
    record = json.loads((RESULTS / path).read_text(encoding="utf-8"))
    rows = []
    for row in record["rows"]:
        naive = "tent" if "tent" in row["method"] else "law"
        faster = f"{row[f'times_faster_than_plain_{naive}']:.1f}× naive {naive.upper()}"
        rows.append(
            (
                (STEP_ROWS | MEMORY_ROWS)[row["label"]],
                f"{row['milliseconds']['median']:,.0f}",
                f"{1 / row['times_faster_than_forward']:.1f}",
                "" if row["method"] == "forward" else faster,
                f"{row['peak_bytes'] / 1e6:,.0f}",
            )
        )
    head = ("", "ms/step", "forward passes", "speed", "peak MB")
    load = f"The load average of the two cores was {record['load_average']:.1f}; all rows were measured in turn."
    return f"{markdown_table(head, rows)}\n\n{load} {_origin(path, record)}"


def camvid_table(stream: str) -> str:
    """Mean IoU on CamVid at half resolution, in percent, by domain and method.

    Args:
        stream: ``corruptions`` for corrupted and clean frames of all videos, ``videos`` for the shift from day to dusk.
    """
    cells: dict[tuple[str, ...], dict[str, float | None]] = defaultdict(dict)
    for record in load("camvid-half"):
        header, by_domain = record.header["stream"], record.mean_iou_by_domain
        if (stream == "videos") != bool(header.get("sequences")):
            continue
        title = TITLES[record.method]
        title += ", adaptive statistics" if record.settings.get("statistics") == "adaptive" else ""
        where = (str(header["batch_size"]),) if stream == "videos" else ()
        for name, value in by_domain.items():
            cells[(name.replace("_", " "), *where)][title] = value
        if len(by_domain) > 1:
            cells[("**mean**", *where)][title] = record.mean_iou
    order = list(TITLES.values())
    titles = sorted(
        {title for row in cells.values() for title in row}, key=lambda text: order.index(text.split(",")[0])
    )
    rows = [
        (*names, *("" if (value := row.get(title)) is None else f"{value:.1f}" for title in titles))
        for names, row in cells.items()
    ]
    head = ("mIoU, %", *(["frames per batch"] if stream == "videos" else []), *titles)
    return f"{markdown_table(head, rows)}\n\n{_reported('camvid-half')}"


def memory_table() -> str:
    """Peak memory of a step on a GPU and on a CPU."""
    parts = []
    for path, labels in (
        ("bench/step-h200.json", ("forward only", "naive TENT", "naive LAW", "tent", "law", "law, fast")),
        ("bench/memory-cpu.json", ("forward only", "naive TENT", "naive LAW", "law", "law, recompute")),
    ):
        record = json.loads((RESULTS / path).read_text(encoding="utf-8"))
        models = list(dict.fromkeys((row["model"], row["batch_size"]) for row in record["rows"]))
        cells = {(row["label"], row["model"], row["batch_size"]): row["peak_bytes"] for row in record["rows"]}
        names = STEP_ROWS | MEMORY_ROWS
        rows = [(names[label], *(f"{cells[label, *model] / 1e6:.0f}" for model in models)) for label in labels]
        head = ("", *(f"{model}, batch {batch}: peak MB" for model, batch in models))
        parts.append(f"{markdown_table(head, rows)}\n\n{_origin(path, record)}")
    return "\n\n".join(parts)


def fast_table() -> str:
    """Error of the preset `fast` and of compiled and float32 steps beside the default step."""
    rows = []
    for title, folders in {
        "WRN-28-10": ("table1/cifar10-c", "speed/wrn_28_10-fast"),
        "WRN-40-2": ("table6/cifar10-c", "speed/wrn_40_2-fast"),
    }.items():
        network = title.lower().replace("-", "_")
        errors = defaultdict(list)
        for record in load(*folders, limit=None):
            settings = record.settings
            if (
                record.method == "law"
                and record.header["model"]["name"] == network
                and settings["learning_rate"] == 1e-3
            ):
                errors["fast" if settings.get("fisher_every", 1) > 1 else "exact"].append(record.mean_error)
        rows.append((title, *(_mean_and_deviation(errors[kind]) for kind in ("exact", "fast"))))
    table = markdown_table(("CIFAR-10-C, error in %", "default settings", '`preset="fast"`'), rows)
    folders = ("table1/cifar10-c", "table6/cifar10-c", "speed/wrn_28_10-fast", "speed/wrn_40_2-fast")
    return f"{table}\n\n{_reported(*folders)}"


def _mean_and_deviation(errors: list[float]) -> str:
    return f"{statistics.mean(errors):.1f} ± {statistics.stdev(errors):.1f} ({len(errors)} seeds)"


def method_table(name: str) -> str:
    """Error of a method beside source and BN-1 on the embedded stream and, if it was run, on CIFAR-10-C."""
    embedded = {record.method: record.mean_error for record in load("embedded", "embedded-methods")}
    cifar = defaultdict(list)
    for folder in ("table1/cifar10-c", "table3/cifar10-c"):
        runs = [record for record in load(folder, limit=None) if record.settings.get("learning_rate") != 5e-4]
        for record in runs:
            if folder.startswith("table1") or record.method == "autorgn":  # the others in table3 are copies
                cifar[record.method].append(record.mean_error)
    if name not in cifar:  # another WRN-28-10, for source and BN-1 too
        cifar.clear()
        for record in load("cifar10-c"):
            cifar[record.method].append(record.mean_error)
    shown = [method for method in dict.fromkeys(("source", "norm", name)) if method in embedded]
    rows = [("embedded stream, WRN-16-1 (1 seed)", *(f"{embedded[method]:.1f}" for method in shown))]
    if cifar[name]:
        seeds = f"{len(cifar[name])} seed" + "s" * (len(cifar[name]) > 1)
        means = (f"{statistics.mean(cifar[method]):.1f}" for method in shown)
        rows.append((f"CIFAR-10-C, WRN-28-10 ({seeds})", *means))
    return markdown_table(("error in %", *(TITLES[method] for method in shown)), rows)


LAW_PLUS_VARIANTS = {
    "adapted_share": "all layers adapted",
    "tau": "no layer weights",
    "anchor": "no anchor",
    "weighting": "no weights of images",
    "kept_share": "all images kept",
    "loss": "entropy instead of the soft likelihood ratio",
    "symmetric": "one-sided consistency",
    "consistency_weight": "no consistency",
    "prior_correction": "no prior correction",
    "conv_rate": "norm layers only",  # not a setting any more
}
"""Rows of the ablation of LAW+ by the setting that differs."""
LAW_PLUS_PEERS = ("source", "norm", "roid", "law", "law_plus")


def law_plus_ablation_table() -> str:
    """Error of LAW+ on held-out streams without one of its ingredients."""
    errors: dict[str, dict[str, float]] = defaultdict(dict)
    records = load("ablation-law_plus")
    usual = {
        key: statistics.mode(json.dumps(record.settings[key]) for record in records) for key in records[0].settings
    }
    for record in records:
        changed = [key for key, value in record.settings.items() if json.dumps(value) != usual[key]]
        title = LAW_PLUS_VARIANTS[changed[0]] if changed else "starting point"
        errors[title][record.header["stream"]["schedule"]] = record.mean_error
    order = ["starting point", *LAW_PLUS_VARIANTS.values()]
    rows = [
        (title, *(f"{found[schedule]:.1f}" for schedule in ("mixed", "recurring")))
        for title, found in sorted(errors.items(), key=lambda item: order.index(item[0]))
    ]
    head = ("error in %", "mixed, held out", "five rounds, held out")
    return f"{markdown_table(head, rows)}\n\n{_reported('ablation-law_plus')}"


def law_plus_streams_table() -> str:
    """Error of LAW+ and others on held-out streams, on which its settings were selected, and on benchmark streams."""
    selected = {"adapted_share": 0.67, "learning_rate": 0.03, "anchor": 0.005, "symmetric": False}
    rows = []
    for title, folders in {
        "held out, mixed": ("tuning-law_plus/mixed", "ablation-law_plus/mixed"),
        "held out and clean, five rounds": ("tuning-law_plus/recurring", "ablation-law_plus/recurring"),
        "held out and clean, classes in runs": ("tuning-law_plus/correlated",),
        "fifteen corruptions, mixed": ("law_plus/mixed",),
        "clean": ("law_plus/clean",),
    }.items():
        errors = {
            record.method: record.mean_error
            for record in load(*folders)
            if record.method != "law_plus" or all(record.settings[key] == value for key, value in selected.items())
        }
        rows.append((title, *(f"{errors[method]:.1f}" for method in LAW_PLUS_PEERS)))
    head = ("error in %", *(TITLES[method] for method in LAW_PLUS_PEERS))
    return f"{markdown_table(head, rows)}\n\n{_reported('tuning-law_plus', 'ablation-law_plus', 'law_plus')}"


def reliability_table(
    name: str,
    head: Sequence[str],
    rows: Callable[[list[dict[str, Any]]], Iterable[Sequence[Any]]],
    more: Callable[[dict[str, Any]], str] | None = None,
) -> str:
    """A table of a record of ``python -m benchmarks reliability``.

    Args:
        name: name of the command.
        head: names of the columns.
        rows: makes the rows of the table from those of the record.
        more: makes text below the table from the record.
    """
    path = f"bench/reliability-{name}.json"
    record = json.loads((RESULTS / path).read_text(encoding="utf-8"))
    text = f"\n\n{more(record)}" if more else ""
    return f"{markdown_table(head, rows(record['rows']))}{text}\n\n{_origin(path, record)}"


def guard_streams_table() -> str:
    """Error in the last tenth of streams on which adaptation collapses, with and without the guard."""

    def rows(found: list[dict[str, Any]]) -> Iterable[Sequence[Any]]:
        for with_guard in (row for row in found if row["guard"]):
            keys = "stream", "method"
            without = next(row for row in found if not row["guard"] and all(row[k] == with_guard[k] for k in keys))
            actions = ", ".join(f"{count} {name}" for name, count in with_guard["actions"].items())
            yield (
                f"{with_guard['stream']}, {TITLES[with_guard['method']]}",
                f"{with_guard['source_last_tenth']:.1f}",
                *(f"{row['last_tenth']:.1f}" for row in (without, with_guard)),
                *(f"{row['error']:.1f}" for row in (without, with_guard)),
                actions or "none",
            )

    tenth = "last tenth: source", "without guard", "with guard"
    return reliability_table("streams", ("stream", *tenth, "all: without", "with", "actions"), rows)


def bad_images_table(name: str = "bad-images") -> str:
    """Predictions of good images that bad images in the same batch change, over all methods and shares."""

    def rows(found: list[dict[str, Any]]) -> Iterable[Sequence[Any]]:
        for kind in dict.fromkeys(row["kind"] for row in found):
            chosen = [row for row in found if row["kind"] == kind]
            shares = ", ".join(f"{share:.0%}" for share in dict.fromkeys(row["share"] for row in chosen))
            methods = len({row["method"] for row in chosen})
            yield kind, methods, shares, *(sum(row[key] for row in chosen) for key in ("good", "unequal"))

    head = ("bad images", "methods", "shares of a batch", "good images", "with other logits")
    return reliability_table(name, head, rows)


def attack_table() -> str:
    """Predictions that hostile images in the same batch change, with and without the guard."""

    def rows(found: list[dict[str, Any]]) -> Iterable[Sequence[Any]]:
        for one in (row for row in found if row["guard"]):
            keys = "method", "attack", "share"
            other = next(row for row in found if not row["guard"] and all(row[key] == one[key] for key in keys))
            flipped = (f"{row[key]:.1f}" for key in ("flipped", "flipped_later") for row in (other, one))
            yield f"{TITLES[one['method']]}, {one['attack']}, {one['share']:.0%}", *flipped

    head = ("method, attack, share", "same batch: without guard", "with guard", "next batch: without", "with")
    return reliability_table("attack", head, rows)


def guard_cost_table() -> str:
    """Time of a step with the guard, relative to a step without it."""

    def rows(found: list[dict[str, Any]]) -> Iterable[Sequence[Any]]:
        for row in found:
            times = f"{1000 * row['seconds_per_step']:.0f}", f"{row['ratio']:.3f}", f"{row['ratio_of_medians']:.3f}"
            yield TITLES[row["method"]], row["batch_size"], row["steps"], *times

    head = ("method", "images per batch", "steps", "ms per step without guard", "ratio", "ratio of medians")
    return reliability_table("cost", head, rows)


def kill_table() -> str:
    """Commands that were killed and started again."""
    keys = ("command", "kills", "differing", "temporary_files")
    head = ("command", "kills", "different results", "runs that left temporary files")
    return reliability_table("kill", head, lambda found: [[row[key] for key in keys] for row in found])


def watch_table() -> str:
    """``driftlaw watch`` on a folder that was being filled, with kills."""

    def rows(found: list[dict[str, Any]]) -> Iterable[Sequence[Any]]:
        for row in found:
            _, (early, low), *_, (late, high) = row["memory_mib"].items()  # the first value is of a process that starts
            memory = f"{low} after {early}, {high} after {late}"
            damaged = f"{row['reported']} of {row['damaged']}"
            yield row["images"], row["kills"], row["missing"], row["repeated"], damaged, memory

    head = ("images", "kills", "without a line", "with two", "damaged ones reported", "memory in MiB")
    return reliability_table("watch", head, rows)


def fuzz_table() -> str:
    """Calls with unusual arguments and damaged files."""
    keys = ("target", "calls", "refused", "distinct_failures")
    head = ("target", "calls", "refused with a clear error", "distinct failures")
    return reliability_table("fuzz", head, lambda found: [[row[key] for key in keys] for row in found])


def _clean_requests(record: dict[str, Any]) -> str:
    memory = record["memory_mib"]
    return (
        f"Clean requests: {record['clean']:,}, of which {record['wrong_clean']} got other predictions. Memory: "
        f"{memory['start']} MiB at the start, {memory['tenth']} after a tenth of the requests, {memory['end']} at "
        "the end."
    )


def serve_hostile_table(name: str = "serve-hostile") -> str:
    """Requests that the server must refuse."""
    keys = ("kind", "requests", "failures")
    head = ("kind of request", "requests", "accepted, status 500, or no answer")
    return reliability_table(name, head, lambda found: [[row[key] for key in keys] for row in found], _clean_requests)


def serve_schema_table() -> str:
    """Requests that were generated from the OpenAPI document of the server."""

    def rows(found: list[dict[str, Any]]) -> Iterable[Sequence[Any]]:
        unknown = [row for row in found if list(row["statuses"]) == ["405"]]
        for row in found:
            if row not in unknown:
                codes = ", ".join(f"{count} × {code}" for code, count in row["statuses"].items())
                yield f"`{row['operation']}`", codes, row["requests"], sum(row["failures"].values())
        counts = (sum(row["requests"] for row in unknown), sum(sum(row["failures"].values()) for row in unknown))
        yield "other methods of the same paths", f"{counts[0]} × 405", *counts

    return reliability_table("serve-schema", ("operation", "statuses", "requests", "failures"), rows, _clean_requests)


def serve_overload_table() -> str:
    """More requests than the server can predict."""

    def rows(found: list[dict[str, Any]]) -> Iterable[Sequence[Any]]:
        for row in found:
            codes, memory = row["statuses"], row["memory_mib"]
            yield "requests per second: capacity, sent", f"{row['capacity']:.1f}, {row['sent_per_second']:.1f}"
            yield "seconds", row["seconds"]
            yield (
                "predicted, refused (429), deadline passed (504)",
                ", ".join(str(codes.get(code, 0)) for code in ("200", "429", "504")),
            )
            yield "other outcomes", sum(count for code, count in codes.items() if code not in ("200", "429", "504"))
            yield (
                "time to refuse, ms: median, 99 %, longest",
                ", ".join(str(row["refused"][key]) for key in ("p50_ms", "p99_ms", "max_ms")),
            )
            yield "refused within 100 ms", f"{100 * row['refused_within_100_ms']:.2f} %"
            yield "memory in MiB: start, after 10 s, end", ", ".join(str(value) for value in memory.values())

    def more(record: dict[str, Any]) -> str:
        many = record["at_once"]
        return (
            f"At the same time: {many['requests']:,} requests, {many['statuses'].get('200', 0):,} answers, "
            f"{many['wrong']} of them not the logits of their image, {many['seconds']} s."
        )

    return reliability_table("serve-overload", ("overload", ""), rows, more)


def serve_kill_table() -> str:
    """Kills of the server under load."""

    def rows(found: list[dict[str, Any]]) -> Iterable[Sequence[Any]]:
        for row in found:
            times = row["first_answer"]
            yield (
                *(row[key] for key in ("kills", "answers", "not_logged", "wrong_start", "lost_steps")),
                f"{times['p50_ms'] / 1000:.1f}, {times['max_ms'] / 1000:.1f}",
            )

    head = ("kills", "answers", "answers not in the log", "restarts not from the newest snapshot")
    more = ("steps lost at most", "seconds to the first answer: median, longest")
    return reliability_table("serve-kill", (*head, *more), rows)


def serve_speed_table(name: str = "serve-speed") -> str:
    """Throughput and latency of the server beside a plain handler."""
    keys = ("label", "concurrency", "images_per_second", "p50_ms", "p99_ms")
    head = ("server", "requests at a time", "images per second", "median, ms", "99 %, ms")
    return reliability_table(name, head, lambda found: [[row[key] for key in keys] for row in found])


def pool_table() -> str:
    """Memory and switches of many streams in a pool."""
    path = "bench/scale-pool.json"
    record = json.loads((RESULTS / path).read_text(encoding="utf-8"))
    rows = []
    for row in record["rows"]:
        method, _, settings = row["variant"].partition(" ")
        title = f"{TITLES[method]}, `{settings}`" if settings else TITLES[method]
        sizes = [f"{row['bytes_per_stream'][place] / 1000:,.0f}" for place in ("device", "host", "disk")]
        share = max(row["peak_bytes"][place] / row["budget_bytes"][place] for place in ("device", "host"))
        times = [row["switch"][place] for place in ("device", "host", "disk")]
        rows.append(
            (
                title,
                f"{row['equal_calls']} of {row['calls']}",
                *sizes,
                f"{100 * share:.1f} %",
                *(f"{time['median_ms']:.1f}, {time['p99_ms']:.1f}" for time in times),
            )
        )
    head = ["method", "equal predictions", *(f"kB per stream: {place}" for place in ("device", "host", "disk"))]
    head += [
        "largest use of a limit",
        *(f"ms per switch from {place}: median, 99 %" for place in ("device", "host", "disk")),
    ]
    return f"{markdown_table(head, rows)}\n\n{_origin(path, record)}"


def shards_table() -> str:
    """Memory and speed of streams from shards and folders, and runs on shards that were killed."""
    path = "bench/scale-shards.json"
    record = json.loads((RESULTS / path).read_text(encoding="utf-8"))
    rows = []
    for row in record["rows"]:
        side = 32 if row["kind"] == "shards" else record["folder_side"]
        memory, others = (", ".join(str(value) for value in row[key].values()) for key in ("memory_mib", "workers_mib"))
        data = f"{row['kind']}, {row['images']:,} images of {side} × {side}"
        rows.append((data, row["workers"], f"{row['images_per_second']:,}", memory, others if row["workers"] else ""))
    shares = ", ".join(share.replace("%", " %") for share in record["rows"][0]["memory_mib"])
    head = ("data", "workers", "images per second", f"MiB after {shares} of the stream", "MiB of all workers")
    kill = record["kill"]
    killed = (
        f"A run on {record['kill_images']:,} of these images was killed {kill['kills']} times at random moments and "
        f"started again: {kill['differing']} records differ from that of an undisturbed run."
    )
    return f"{markdown_table(head, rows)}\n\n{killed}\n\n{_origin(path, record)}"


def ray_table() -> str:
    """Runs on a Ray cluster compared with one process, with and without kills, and what was retried."""
    path = "bench/scale-ray.json"
    record = json.loads((RESULTS / path).read_text(encoding="utf-8"))
    keys = ("case", "runs", "finished", "equal", "seconds")
    rows = [[*(row[key] for key in keys), len(row["retried"])] for row in record["rows"]]
    table = markdown_table(("", "runs", "finished", "equal records", "seconds", "retries"), rows)
    log = "\n".join(note for row in record["rows"] for note in row["retried"])
    return f"{table}\n\nThe retries in the log:\n\n```text\n{log}\n```\n\n{_origin(path, record)}"


def ray_overhead_table() -> str:
    """Seconds of runs in one process and on Ray, and their difference per run."""
    path = "bench/scale-ray-overhead.json"
    record = json.loads((RESULTS / path).read_text(encoding="utf-8"))
    head = (f"seconds of {record['runs']} runs in one process", "on a Ray with one CPU", "difference per run")
    table = markdown_table(head, [[f"{value:.2f}" for value in row.values()] for row in record["rows"]])
    load = f"The load average was {record['load_average']:.1f}."
    return f"{table}\n\n{load} {_origin(path, record)}"


def ranks_table() -> str:
    """Differences of several ranks from one process."""
    path = "bench/scale-ranks.json"
    record = json.loads((RESULTS / path).read_text(encoding="utf-8"))
    keys = [key for key in record["rows"][0] if key.startswith(("logits_", "state_"))]
    rows = []
    for row in record["rows"]:
        method, _, settings = row["variant"].partition(" ")
        title = f"{TITLES[method]}, `{settings}`" if settings else TITLES[method]
        same = "yes" if row["same_state"] else "no"
        rows.append((title, row["updates"], f"{row['changed']:.1g}", *(f"{row[key]:.0e}" for key in keys), same))
    head = ["method", "updates", "change", *(f"{key.replace('_', ', ')} ranks" for key in keys)]
    return f"{markdown_table([*head, 'same state on all ranks'], rows)}\n\n{_origin(path, record)}"


def ranks_kill_table() -> str:
    """Kills of a rank under torchrun."""
    path = "bench/scale-ranks-kill.json"
    record = json.loads((RESULTS / path).read_text(encoding="utf-8"))
    rows = [
        (
            f"{row['rank']} of {record['ranks']}",
            f"{row['after_batches']} of {record['batches']}",
            row["restarts"],
            "differs" if row["differing"] else "equal",
        )
        for row in record["rows"]
    ]
    head = ("killed rank", "batches before the kill", "restarts", "record")
    return f"{markdown_table(head, rows)}\n\n{_origin(path, record)}"


def capacity_table() -> str:
    """What one machine holds or does per hour, computed from the records of ``benchmarks scale``."""
    names = "scale-ray", "scale-shards", "scale-pool"
    records = {name: json.loads((RESULTS / f"bench/{name}.json").read_text(encoding="utf-8")) for name in names}
    ray = records["scale-ray"]["rows"][0]
    rows = [("runs per hour", "two Ray nodes with one CPU each", f"{3600 * ray['runs'] / ray['seconds']:,.0f}")]
    for row in records["scale-shards"]["rows"]:
        setting = f"{row['kind']}, {row['workers']} workers, without a model"
        rows.append(("images per hour", setting, f"{3600 * row['images_per_second']:,}"))
    for row in records["scale-pool"]["rows"]:
        method, _, settings = row["variant"].partition(" ")
        title = f"{TITLES[method]}, `{settings}`" if settings else TITLES[method]
        for place, size in row["bytes_per_stream"].items():
            setting = f"{title}, {size / 1000:,.0f} kB per stream"
            rows.append((f"streams per GB: {place}", setting, f"{1e9 / size:,.0f}"))
    table = markdown_table(("capacity", "measured with", "number"), rows)
    return "\n\n".join([table, *(_origin(f"bench/{name}.json", record) for name, record in records.items())])


TABLES = {
    "scale-capacity": capacity_table,
    "scale-ray": ray_table,
    "scale-ray-overhead": ray_overhead_table,
    "scale-pool": pool_table,
    "scale-shards": shards_table,
    "scale-ranks": ranks_table,
    "scale-ranks-kill": ranks_kill_table,
    "serve-hostile": serve_hostile_table,
    "serve-hostile-each": functools.partial(serve_hostile_table, "serve-hostile-each"),
    "serve-schema": serve_schema_table,
    "serve-overload": serve_overload_table,
    "serve-kill": serve_kill_table,
    "serve-speed": serve_speed_table,
    "serve-speed-gpu": functools.partial(serve_speed_table, "serve-speed-h200"),
    "fuzz": fuzz_table,
    "guard-attack": attack_table,
    "guard-bad-images": bad_images_table,
    "guard-bad-images-gpu": functools.partial(bad_images_table, "bad-images-h200"),
    "guard-cost": guard_cost_table,
    "guard-streams": guard_streams_table,
    "kill": kill_table,
    "watch": watch_table,
    "cifar10": cifar10_table,
    "cifar10-methods": cifar10_methods_table,
    "embedded": embedded_table,
    "batch-sizes": batch_size_table,
    "streams": stream_table,
    "rounds": rounds_table,
    "speed-gpu": speed_gpu_table,
    "speed-cpu": speed_cpu_table,
    "memory": memory_table,
    "segmentation": segmentation_table,
    "camvid-corruptions": functools.partial(camvid_table, "corruptions"),
    "camvid-videos": functools.partial(camvid_table, "videos"),
    "fast": fast_table,
    "law_plus-ablation": law_plus_ablation_table,
    "law_plus-streams": law_plus_streams_table,
}

if __name__ == "__main__":
    print(TABLES[sys.argv[1]]())
