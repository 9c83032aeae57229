"""``driftlaw train``: make a source network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def train(
    dataset: Annotated[str, typer.Option(help="What to train on, as `driftlaw list datasets` names it.")] = "cifar10",
    model: Annotated[str, typer.Option(help="The network, such as wrn_28_10.")] = "wrn_28_10",
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training images; the recipe's 100 by default.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any number of the recipe: weight_decay=1e-4.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The .safetensors file to write; in the data folder's weights/ by default.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    seed: Annotated[int, typer.Option(help="Drives the initial weights, the order and the augmentation.")] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data lies; DRIFTLAW_DATA by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Train a source network: safetensors, and beside them the record of how they were made.

    A killed training goes on from its last checkpoint when the same command is given again.

    Example: driftlaw train --dataset cifar10 --model wrn_28_10 --epochs 150

    Example: driftlaw train --dataset cifar100 --model resnext_29_4x32 --set augmentation=augmix --set normalise=half
    """
    from driftlaw import paths as places
    from driftlaw.cli.console import command_line, progress_bar
    from driftlaw.datasets import load_dataset
    from driftlaw.errors import UsageError
    from driftlaw.hardware import pick_device
    from driftlaw.settings import merge, parse, parse_assignments
    from driftlaw.training import Recipe, Training
    from driftlaw.training import train as run_training

    values = merge({} if epochs is None else {"epochs": epochs}, parse_assignments(set_ or []))
    recipe = parse(Recipe, values, where="training")
    weights = out or places.data_dir(data_dir) / "weights" / f"{model}-{_short(dataset)}.safetensors"
    if weights.suffix != ".safetensors":
        raise UsageError(f"--out {weights}: expected a file that ends in .safetensors")
    training = Training(
        model_name=model,
        train_images=load_dataset(dataset, data_dir=data_dir, split="train"),
        test_images=load_dataset(dataset, data_dir=data_dir, split="test"),
        recipe=recipe,
        weights=weights,
        device=pick_device(device),
        seed=seed,
        command=command_line(),
    )
    with progress_bar() as bar:
        task = bar.add_task(f"{model} on {dataset}", total=training.recipe.epochs)
        closing = run_training(training, progress=lambda line: bar.update(task, completed=line["epoch"]))
    if as_json:
        print(json.dumps(closing | {"weights": str(training.weights), "record": str(training.record)}))
    else:
        print(f"{closing['accuracy']:.2f} % accuracy on {closing['test']['count']} test images: {training.weights}")


def _short(dataset: str) -> str:
    """Return the last part of a folder's path, any other dataset's name as it is."""
    return Path(dataset.removeprefix("folder:")).name
