"""``python -m benchmarks train``: train a source model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.options import command_line
from driftlaw.cli.options import AsJson, CheckpointSeconds, DataDir, Device


def train(
    dataset: Annotated[str, typer.Option(help="Dataset, one of `driftlaw list datasets`.")] = "cifar10",
    model: Annotated[str, typer.Option(help="Architecture, one of `driftlaw list models`.")] = "wrn_28_10",
    task: Annotated[str, typer.Option(help="Task: classification or segmentation.")] = "classification",
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images (default: 100).")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of the recipe: weight_decay=1e-4. Repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The .safetensors file to write (default: in weights/ of the data directory).")
    ] = None,
    device: Device = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the initial weights, the order and the augmentation.")] = 0,
    data_dir: DataDir = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
    as_json: AsJson = False,
) -> None:
    """Train a source model and write its weights (safetensors) and the record of the training.

    An interrupted training resumes from its last checkpoint when the same command is run again.

    Example: python -m benchmarks train --dataset cifar10 --model wrn_28_10 --epochs 150

    Example: python -m benchmarks train --model wrn_40_2 --set augmentation=augmix --set normalise=half

    Example: python -m benchmarks train --task segmentation --dataset shapes --model fpn_wrn_10_1
    """
    from benchmarks.train import Recipe, Training
    from benchmarks.train import train as run_training
    from benchmarks.train.segmentation import SegmentationRecipe
    from driftlaw import paths
    from driftlaw.cli import INTERRUPTED, TERMINATED
    from driftlaw.cli.console import progress_bar
    from driftlaw.datasets import load_dataset
    from driftlaw.errors import UsageError, unknown_name
    from driftlaw.hardware import pick_device
    from driftlaw.settings import merge, parse, parse_assignments

    values = merge({} if epochs is None else {"epochs": epochs}, parse_assignments(set_ or []))
    recipes = {"classification": Recipe, "segmentation": SegmentationRecipe}
    if task not in recipes:
        raise unknown_name("task", task, list(recipes))
    recipe = parse(recipes[task], values, where="training")
    size = getattr(recipe, "size", None)
    short_name = Path(dataset.removeprefix("folder:")).name  # of a folder the last part
    weights = out or paths.data_dir(data_dir) / "weights" / f"{model}-{short_name}.safetensors"
    if weights.suffix != ".safetensors":
        raise UsageError(f"--out is {weights}. Expected a file that ends in .safetensors.")
    train_images = load_dataset(dataset, data_dir=data_dir, split="train", size=size)
    test_images = load_dataset(dataset, data_dir=data_dir, split="test", size=size)
    if (task == "segmentation") != hasattr(train_images, "label_maps"):
        raise UsageError(f"The dataset {dataset} does not fit --task {task}. Segmentation needs label maps.")
    training = Training(
        model,
        train_images,
        test_images,
        recipe,
        weights,
        pick_device(device),
        seed,
        command=command_line(),
        checkpoint_seconds=checkpoint_seconds,
        data_dir=data_dir,
    )
    try:
        with progress_bar() as bar:
            task = bar.add_task(f"{model} on {dataset}", total=recipe.epochs)
            closing = run_training(training, progress=lambda line: bar.update(task, completed=line["epoch"]))
    except (KeyboardInterrupt, SystemExit) as stop:
        typer.echo("benchmarks: Interrupted. Run the same command to resume.", err=True)
        raise typer.Exit(TERMINATED if isinstance(stop, SystemExit) else INTERRUPTED) from None
    if as_json:
        print(json.dumps(closing | {"weights": str(weights), "record": str(training.record)}))
    else:
        iou = f", {closing['mean_iou']:.2f} % mIoU" if "mean_iou" in closing else ""
        print(f"{closing['accuracy']:.2f} % accuracy{iou} on {closing['test']['count']} test images: {weights}")
