"""``driftlaw corrupt``, called through the command line."""

import json

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from driftlaw.cli.corrupt import corrupt
from driftlaw.errors import UsageError


@pytest.fixture
def call():
    app = typer.Typer()
    app.command()(corrupt)

    def run_command(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run_command


@pytest.fixture
def folder(tmp_path):
    """Three images of three formats and sizes, one in a sub-folder, and a file that is not an image."""
    rng = np.random.default_rng(0)
    root = tmp_path / "in"
    (root / "cats").mkdir(parents=True)
    for name, size in (("a.png", (32, 32)), ("b.jpg", (70, 90)), ("cats/c.bmp", (20, 41))):
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(root / name)
    (root / "notes.txt").write_text("not an image")
    return root


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_folder_is_corrupted_with_its_sub_folders(call, folder, tmp_path):
    out = tmp_path / "out"
    result = call(folder, out, "--name", "fog", "--severity", 3, "--json")
    assert files(out) == ["a.png", "b.png", "cats/c.png"]
    document = json.loads(result.stdout)
    assert document["pictures"] == 3
    assert len(document["written"]) == 3
    assert pixels(out / "b.png").shape == (70, 90, 3)
    assert not np.array_equal(pixels(out / "a.png"), pixels(folder / "a.png"))


def test_the_seed_determines_the_bytes(call, folder, tmp_path):
    for out, seed in (("one", 1), ("again", 1), ("two", 2)):
        call(folder, tmp_path / out, "--name", "gaussian_noise", "--seed", seed)
    one, again, two = ((tmp_path / out / "cats" / "c.png").read_bytes() for out in ("one", "again", "two"))
    assert one == again != two


def test_all_writes_one_folder_per_corruption_and_severity(call, folder, tmp_path):
    out = tmp_path / "out"
    call(folder / "a.png", out, "--all")
    assert len(files(out)) == 19 * 5
    assert (out / "jpeg_compression" / "5" / "a.png").is_file()


def test_large_images_are_encoded_unless_refused(call, folder, tmp_path):
    for name, options in {"auto": [], "none": ["--no-encoding"]}.items():
        result = call(folder, tmp_path / name, "--name", "contrast", "--json", *options)
        assert json.loads(result.stdout)["encoding"] == name
    differs = [(pixels(tmp_path / "auto" / f) != pixels(tmp_path / "none" / f)).any() for f in ("a.png", "b.png")]
    assert differs == [False, True]


def test_a_contact_sheet_is_written_to_the_given_file(call, folder, tmp_path):
    call(folder / "a.png", tmp_path / "sheet.png", "--contact-sheet")
    assert pixels(tmp_path / "sheet.png").shape[1] > 1500


def test_results_of_an_earlier_call_inside_the_folder_are_not_corrupted_again(call, folder):
    for _ in range(2):
        call(folder, folder / "out", "--name", "contrast")
    assert files(folder / "out") == ["a.png", "b.png", "cats/c.png"]


def test_images_with_palette_alpha_or_one_channel_are_read_as_rgb(call, tmp_path):
    for mode in ("L", "RGBA", "P"):
        Image.new(mode, (10, 12)).save(tmp_path / f"{mode}.png")
        call(tmp_path / f"{mode}.png", tmp_path / "out", "--name", "brightness")
        assert pixels(tmp_path / "out" / f"{mode}.png").shape == (12, 10, 3)


def test_unreadable_images_are_named_and_nothing_is_written(call, folder, tmp_path):
    (folder / "broken.png").write_bytes(b"not an image")
    (folder / "cut.jpg").write_bytes((folder / "b.jpg").read_bytes()[:700])
    with pytest.raises(UsageError) as error:
        call(folder, tmp_path / "out", "--name", "fog")
    assert "broken.png" in str(error.value)
    assert "cut.jpg" in str(error.value)
    assert error.value.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_two_images_with_the_same_output_file_are_refused(call, folder, tmp_path):
    Image.new("RGB", (9, 9)).save(folder / "a.bmp")
    with pytest.raises(UsageError, match=r"a\.png"):
        call(folder, tmp_path / "out", "--name", "fog")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--name", "fogg"], "Did you mean 'fog'"),
        (["--name", "fog", "--severity", "6"], "1 to 5"),
        ([], "--name"),
        (["--name", "fog", "--all"], "exactly one of --name, --all and --contact-sheet"),
        (["--all", "--contact-sheet"], "exactly one"),
        (["--contact-sheet"], "one image"),
    ],
)
def test_wrong_options_are_refused(call, folder, tmp_path, arguments, word):
    with pytest.raises(UsageError, match=word):
        call(folder, tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_an_empty_a_missing_and_the_same_folder_are_refused(call, folder, tmp_path):
    (tmp_path / "empty").mkdir()
    for source, out, word in (
        (tmp_path / "empty", tmp_path / "out", "no images"),
        (tmp_path / "missing", tmp_path / "out", "does not exist"),
        (folder, folder, "same folder"),
    ):
        with pytest.raises(UsageError, match=word):
            call(source, out, "--name", "fog")
