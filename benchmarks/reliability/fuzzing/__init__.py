"""Fuzz targets: calls of driftlaw with unusual arguments and damaged files, and the checker that judges each call."""

from benchmarks.reliability.fuzzing import api, command_line, files, records, states
from benchmarks.reliability.fuzzing.checker import Checker, Target

TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        *(api.adapt_with_settings, api.adapt_models, api.adapt_images, api.streams, api.runs, api.corruptions),
        *(states.saved_states, states.pools),
        *(command_line.command_line,),
        *(records.record_files, records.resumed_runs, records.tuning_files),
        *(files.presets, files.weights, files.image_folders, files.archives, files.shards),
    )
}
"""Targets by name. A target draws arguments and makes calls through a checker."""

__all__ = ["TARGETS", "Checker", "Target"]
