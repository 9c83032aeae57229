"""``select``: choose settings that are good on several held-out streams and nowhere worse than BN-1."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from driftlaw.cli import options as opt
from driftlaw.errors import UsageError
from driftlaw.records import RunRecord, find_records, read_record
from driftlaw.reports.protocol import protocol_key

DomainErrors = dict[str, float]


def select(
    folders: Annotated[list[Path], typer.Argument(help="Folders with the records of `tune` and `driftlaw run`.")],
    method: Annotated[str, typer.Option(help="Method whose settings are chosen.")] = "law_plus",
    baseline: Annotated[str, typer.Option(help="Method that no domain may be worse than.")] = "norm",
    margin: Annotated[float, typer.Option(help="Percentage points that a domain may be above the baseline.")] = 0.5,
    out: Annotated[Path | None, typer.Option(help="JSON file for the result.")] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Choose the settings of a method from records on several streams of held-out corruptions, for each network.

    The mean error over one stream favours settings that drift. This command takes the settings with the lowest mean
    over all streams among those that are on no domain of any stream more than --margin points above the baseline.
    Settings must have been run on every stream of a network, and so must the baseline. Streams with one of the
    benchmark's fifteen corruptions are an error.

    Example: python -m benchmarks select results/tuning-law_plus --out results/tuning-law_plus/selection.json
    """
    from driftlaw.cli.console import command_line
    from driftlaw.files import atomic_path

    document = {"command": command_line(), **choose(map(read_record, find_records(folders)), method, baseline, margin)}
    text = json.dumps(document, indent=1) + "\n"
    if out is not None:
        with atomic_path(out) as path:
            path.write_text(text, encoding="utf-8")
    print(text if as_json else describe(document), end="")


def choose(records: Iterable[RunRecord], method: str, baseline: str, margin: float) -> dict[str, Any]:
    """Return the candidates and the choice for every network, as JSON data.

    Args:
        records: runs on streams of held-out corruptions; other methods and unfinished runs are left out.
        method: method whose settings are chosen.
        baseline: method that no domain may be worse than.
        margin: percentage points that a domain may be above the baseline.
    """
    from benchmarks.tune.search import check_held_out

    # By network, stream and settings; an entry has one record per seed.
    runs: dict[str, dict[str, dict[str, list[RunRecord]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    titles: dict[str, str] = {}
    for record in records:
        if record.method not in (method, baseline) or not record.finished:
            continue
        check_held_out(record.header["stream"], f"The record {record.path}")
        stream, model = protocol_key(record), record.header["model"]
        titles[stream] = _title(record.header["stream"])
        settings = baseline if record.method == baseline else json.dumps(record.settings, sort_keys=True)
        runs[str(model.get("weights") or model["name"])][stream][settings].append(record)
    if not runs:
        raise UsageError(f"There is no finished record of {method} or {baseline}. Run `tune` first.")
    networks = [_choose_for(network, streams, titles, baseline, margin) for network, streams in sorted(runs.items())]
    return {"method": method, "baseline": baseline, "margin": margin, "networks": networks}


def _choose_for(
    network: str,
    streams: Mapping[str, Mapping[str, Sequence[RunRecord]]],
    titles: Mapping[str, str],
    baseline: str,
    margin: float,
) -> dict[str, Any]:
    missing = [titles[stream] for stream, runs in streams.items() if baseline not in runs]
    if missing:
        raise UsageError(f"{network}: {baseline} was not run on {'; '.join(missing)}. Run it on the same stream.")
    bounds = {stream: _domain_errors(runs[baseline]) for stream, runs in streams.items()}
    complete = set.intersection(*(set(runs) for runs in streams.values())) - {baseline}
    candidates = []
    for settings in sorted(complete):
        errors = {stream: _domain_errors(runs[settings]) for stream, runs in streams.items()}
        excess = {
            f"{titles[stream]}, {domain}": error - bounds[stream][domain]
            for stream, by_domain in errors.items()
            for domain, error in by_domain.items()
        }
        worst = max(excess, key=lambda domain: excess[domain])
        means = {titles[stream]: round(fmean(by_domain.values()), 4) for stream, by_domain in errors.items()}
        candidates.append(
            {
                "settings": json.loads(settings),
                "mean_error": round(fmean(means.values()), 4),
                "mean_error_by_stream": means,
                "largest_excess": round(excess[worst], 4),
                "where": worst,
                "allowed": excess[worst] <= margin,
                "seeds": min(len(runs[settings]) for runs in streams.values()),
            }
        )
    candidates.sort(key=lambda candidate: candidate["mean_error"])
    names = {name for candidate in candidates for name in candidate["settings"]}
    varied = [name for name in sorted(names) if len({str(c["settings"].get(name)) for c in candidates}) > 1]
    return {
        "network": network,
        "baseline": {titles[stream]: round(fmean(errors.values()), 4) for stream, errors in bounds.items()},
        "varied": varied,
        "choice": next((candidate["settings"] for candidate in candidates if candidate["allowed"]), None),
        "candidates": candidates,
        "incomplete": len({key for runs in streams.values() for key in runs} - complete - {baseline}),
    }


def _domain_errors(records: Sequence[RunRecord]) -> DomainErrors:
    """Return the error of every corruption and severity, the mean over rounds and seeds."""
    found: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for segment in record.segments:
            assert segment.error is not None
            found[f"{segment.name} {segment.severity}".removesuffix(" 0")].append(segment.error)
    return {domain: fmean(errors) for domain, errors in found.items()}


def _title(stream: Mapping[str, Any]) -> str:
    rounds = f" {stream['rounds']} rounds" if stream.get("rounds", 1) > 1 else ""
    order = "" if stream.get("order") == "shuffled" else f", {stream['order']}"
    return f"{stream['dataset']['name']}, {stream['schedule']}{rounds}{order}, batches of {stream['batch_size']}"


def describe(document: Mapping[str, Any]) -> str:
    """Return the candidates of every network as text, the lowest mean error first, the choice marked with a star."""
    lines = []
    for network in document["networks"]:
        lines.append(f"{network['network']}: {document['baseline']} {json.dumps(network['baseline'])}")
        for candidate in network["candidates"]:
            mark = "*" if candidate["settings"] == network["choice"] else " " if candidate["allowed"] else "x"
            values = ", ".join(f"{name}={candidate['settings'].get(name)}" for name in network["varied"])
            excess = f"{candidate['largest_excess']:+.2f} on {candidate['where']}"
            lines.append(f"{mark} {candidate['mean_error']:6.2f}  {excess}  {values}")
        if network["choice"] is None:
            lines.append(f"No settings are within {document['margin']} points of {document['baseline']} everywhere.")
        if network["incomplete"]:
            lines.append(f"Settings that were not run on every stream: {network['incomplete']}.")
    return "\n".join(lines) + "\n"
