"""A labelled dataset as a drifting stream."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.base import Domain
from driftlaw.corruptions import corrupt, list_corruptions
from driftlaw.datasets import ArrayImages, load_dataset, open_archive
from driftlaw.errors import DataError, UsageError
from driftlaw.streams import CorruptedStream, StreamSettings, make_archive, make_stream
from driftlaw.streams import image_cache as pixels_room
from driftlaw.streams.image_cache import Pixels

NAMES = ("gaussian_noise", "fog", "glass_blur")
CLEAN = 23


@pytest.fixture(scope="module")
def source():
    embedded = load_dataset("cifar10-embedded")
    return ArrayImages("few", embedded.images(np.arange(CLEAN)), embedded.labels[:CLEAN], embedded.class_names)


def made(source, **settings):
    settings = StreamSettings(**{"corruptions": NAMES, "batch_size": 10, **settings})
    archive = open_archive(settings.archive) if settings.archive else None
    return CorruptedStream(settings, Pixels(source, archive, settings.corruption_seed, "cpu"))


def pixels(stream):
    return torch.cat([batch.images for batch in stream])


def labels(stream):
    return torch.cat([batch.labels for batch in stream])


def segments(stream):
    """Return (name, severity, round, images) of every stretch, from its batches."""
    found = []
    for batch in stream:
        if batch.starts_domain:
            found.append([batch.domain.name, batch.domain.severity, batch.domain.round, 0])
        found[-1][3] += len(batch.images)
    return [tuple(segment) for segment in found]


def same_bits(one, two):
    pairs = list(zip(one, two, strict=True))
    return all(
        torch.equal(a.images, b.images)
        and torch.equal(a.labels, b.labels)
        and (a.domain, a.index, a.starts_domain) == (b.domain, b.index, b.starts_domain)
        for a, b in pairs
    )


def test_images_given_in_place_of_a_preset_are_told_where_they_belong():
    with pytest.raises(UsageError, match=r"not from a TensorDataset; .*source=dataset"):
        make_stream(torch.utils.data.TensorDataset(torch.rand(2, 3, 4, 4)))


def test_a_batch_is_what_the_contract_says(source):
    stream = made(source)
    batches = list(stream)
    assert len(batches) == len(stream) == 9
    assert [batch.index for batch in batches] == list(range(9))
    assert [len(batch.images) for batch in batches] == [10, 10, 3] * 3
    assert [batch.starts_domain for batch in batches] == [True, False, False] * 3
    assert batches[0].images.dtype == torch.float32
    assert batches[0].images.shape == (10, 3, 32, 32)
    assert batches[0].labels.dtype == torch.int64
    assert 0 <= pixels(stream).min() < pixels(stream).max() <= 1
    assert stream.num_classes == 10


def test_images_are_the_corrupted_ones_of_their_numbers(source):
    stream = made(source, severity=3, corruption_seed=4)
    numbers = stream.numbers
    clean = torch.from_numpy(source.images(numbers)).permute(0, 3, 1, 2).contiguous()
    bad = corrupt(clean, "fog", 3, seed=4, indices=torch.from_numpy(numbers))
    assert torch.equal(pixels(stream)[CLEAN : 2 * CLEAN], bad.float() / 255)
    assert labels(stream)[:CLEAN].tolist() == source.labels[numbers].tolist()


def test_the_same_permutation_comes_in_every_domain(source):
    stream = made(source)
    first, *others = labels(stream).split(CLEAN)
    assert all(torch.equal(first, other) for other in others)
    one, two = pixels(made(source, corruptions=("clean",) * 2)).split(CLEAN)
    assert torch.equal(one, two)
    assert first.tolist() != source.labels.tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"schedule": "continual"}, [(name, 5, 0, CLEAN) for name in NAMES]),
        ({"schedule": "reset", "severity": 2}, [(name, 2, 0, CLEAN) for name in NAMES]),
        (
            {"schedule": "gradual", "corruptions": ("contrast", "fog")},
            [(name, s, 0, CLEAN) for name in ("contrast", "fog") for s in (1, 2, 3, 4, 5, 4, 3, 2, 1)],
        ),
        (
            {"schedule": "recurring", "rounds": 2, "corruptions": ("contrast", "clean")},
            [(name, s, r, CLEAN) for r in (0, 1) for name, s in (("contrast", 5), ("clean", 0))],
        ),
        ({"schedule": "single", "corruptions": ("fog",), "limit": 12}, [("fog", 5, 0, 12)]),
        ({"schedule": "mixed"}, [("mixed", 5, 0, 3 * CLEAN)]),
    ],
)
def test_every_schedule_gives_its_segments(source, settings, expected):
    stream = made(source, **settings)
    assert segments(stream) == expected
    assert len(stream) == len(list(stream))


def test_the_gradual_benchmark_has_135_segments(source):
    stream = made(source, schedule="gradual", corruptions="benchmark", batch_size=CLEAN)
    assert len(stream) == 135


def test_only_the_reset_schedule_takes_an_adapter_back(source):
    asked = {name: made(source, schedule=name).reset_on for name in ("continual", "gradual", "reset", "mixed")}
    assert asked == {"continual": "never", "gradual": "never", "reset": "domain", "mixed": "never"}


def test_a_mixed_stream_holds_every_image_of_every_domain_once(source):
    mixed, apart = made(source, schedule="mixed"), made(source)
    assert [batch.starts_domain for batch in mixed] == [True] + [False] * 6

    def both(stream):
        return pixels(stream), labels(stream)

    def contents(stream):
        return sorted((image.numpy().tobytes(), int(label)) for image, label in zip(*both(stream), strict=True))

    assert contents(mixed) == contents(apart)
    assert not torch.equal(pixels(mixed), pixels(apart))
    assert not torch.equal(pixels(mixed), pixels(made(source, schedule="mixed", seed=2)))


def test_single_needs_exactly_one_corruption(source):
    with pytest.raises(UsageError, match="a single schedule takes one corruption, found 3"):
        made(source, schedule="single")


def test_clean_images_come_as_they_are(source):
    stream = made(source, corruptions=("clean",), order="as-is")
    assert torch.equal(pixels(stream), torch.from_numpy(source.images(range(CLEAN))).permute(0, 3, 1, 2) / 255)
    assert next(iter(stream)).domain == Domain("clean", 0)


@pytest.mark.parametrize("schedule", ["continual", "mixed"])
def test_two_passes_give_the_same_bits(source, schedule):
    stream = made(source, schedule=schedule)
    assert same_bits(stream, stream)
    torch.manual_seed(1)
    np.random.seed(1)
    assert same_bits(stream, made(source, schedule=schedule))


@pytest.mark.parametrize("schedule", ["continual", "mixed"])
def test_the_batch_size_changes_no_image(source, schedule):
    whole = made(source, schedule=schedule, batch_size=1000)
    assert len(whole) == (1 if schedule == "mixed" else 3)
    for size in (1, 7, CLEAN):
        assert torch.equal(pixels(made(source, schedule=schedule, batch_size=size)), pixels(whole))


@pytest.mark.parametrize("order", ["shuffled", "dirichlet"])
def test_the_order_changes_no_image(source, order):
    stream, as_is = made(source, order=order, seed=7), made(source, order="as-is")
    for ours, plain in zip(pixels(stream).split(CLEAN), pixels(as_is).split(CLEAN), strict=True):
        assert torch.equal(ours, plain[torch.from_numpy(stream.numbers)])


def test_a_limit_changes_no_image(source):
    few, all_ = made(source, limit=5), made(source)
    assert torch.equal(pixels(few)[:5], pixels(all_)[:5])
    assert len(pixels(few)) == 15


def test_seeds_drive_order_and_corruption_apart(source):
    plain = made(source)
    reordered, redrawn = made(source, seed=2), made(source, corruption_seed=1)
    assert not torch.equal(labels(reordered), labels(plain))
    assert torch.equal(labels(redrawn), labels(plain))
    assert not torch.equal(pixels(redrawn), pixels(plain))


@pytest.mark.parametrize("schedule", ["continual", "mixed"])
@pytest.mark.parametrize("first", [0, 1, 2, 3, 5, 6, 99])
def test_starting_later_gives_the_rest_of_the_stream(source, schedule, first):
    stream = made(source, schedule=schedule)
    assert same_bits(list(stream.iter_from(first)), list(stream)[first:])


def test_what_is_skipped_is_never_made(source, monkeypatch):
    stream = made(source)
    asked = []
    monkeypatch.setattr(
        pixels_room, "corrupt", lambda images, name, *rest, **more: asked.append((name, len(images))) or images
    )
    assert len(list(stream.iter_from(4))) == 5
    assert asked == [("fog", 10), ("fog", 3), ("glass_blur", 10), ("glass_blur", 10), ("glass_blur", 3)]


@pytest.mark.parametrize("at_once", [2, 3, 100])
def test_corrupting_several_batches_at_once_changes_nothing(source, at_once):
    plain = list(made(source))
    stream = made(source)
    stream.batches_at_once = at_once
    assert same_bits(list(stream), plain)
    assert same_bits(list(stream.iter_from(4)), plain[4:])


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    place = tmp_path_factory.mktemp("archive") / "CIFAR-10-C"
    make_archive(source, place, names=NAMES, seed=0)
    return place


@pytest.mark.parametrize("settings", [{}, {"schedule": "gradual"}, {"schedule": "mixed"}, {"order": "dirichlet"}])
def test_on_the_fly_equals_the_archive_bit_for_bit(source, folder, settings):
    live, stored = made(source, **settings), made(source, archive=str(folder), **settings)
    assert same_bits(live, stored)
    assert live.recipe()["pixels"] == "generated"
    assert stored.recipe()["pixels"] == "archive"


def test_an_archive_serves_clean_images_from_the_dataset(source, folder):
    stream = made(source, corruptions=("clean", "fog"), archive=str(folder))
    assert same_bits(stream, made(source, corruptions=("clean", "fog")))


@pytest.fixture
def pictures(source, tmp_path):
    """The same few images as a folder of pictures, so that make_stream can find them by name."""
    for number, image in enumerate(source.images(range(CLEAN))):
        place = tmp_path / "pictures" / source.class_names[source.labels[number]]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number}.png")
    return f"folder:{tmp_path / 'pictures'}"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"schedule": "mixed", "seed": 3},
        {"schedule": "recurring", "rounds": 2, "order": "dirichlet", "concentration": 0.5, "limit": 15},
        {"corruptions": ["clean", "contrast"], "severity": 2, "corruption_seed": 9},
    ],
)
def test_a_recipe_survives_json_and_makes_the_same_stream(pictures, changes):
    stream = make_stream({"dataset": pictures, "corruptions": ["fog"], "batch_size": 10} | changes)
    recipe = json.loads(json.dumps(stream.recipe()))
    again = make_stream(recipe)
    assert same_bits(stream, again)
    assert again.recipe() == recipe == stream.recipe()


def test_a_recipe_finds_its_archive_again(pictures, tmp_path):
    make_archive(load_dataset(pictures), tmp_path / "deep" / "CIFAR-10-C", names=NAMES)
    archive = str(tmp_path / "deep" / "CIFAR-10-C")
    stream = make_stream({"dataset": pictures, "archive": archive, "corruptions": ["fog", "clean"], "batch_size": 10})
    recipe = json.loads(json.dumps(stream.recipe()))
    assert recipe["archive"]["name"] == archive
    assert set(recipe["archive"]["files"]) == {"fog.npy", "labels.npy"}
    assert recipe["archive"]["recipe"]["seed"] == 0
    assert same_bits(stream, make_stream(recipe))


def test_a_recipe_says_what_the_data_is(source):
    recipe = made(source, limit=12).recipe()
    assert recipe["dataset"] == source.facts()
    assert recipe["images_per_domain"] == 12
    assert recipe["corruptions"] == list(NAMES)
    assert {"schedule", "severity", "order", "batch_size", "seed", "corruption_seed"} <= set(recipe)


def test_a_preset_names_a_stream_and_changes_lie_on_top():
    stream = make_stream("embedded", limit=40, batch_size=20, corruptions=["fog"])
    assert stream.source.name == "cifar10-embedded"
    assert len(stream) == 2
    assert stream.settings.severity == 5
    assert same_bits(stream, make_stream(stream.settings))


def test_kinds_of_corruptions_stand_for_their_names():
    assert StreamSettings().corruptions == tuple(list_corruptions("benchmark"))
    assert StreamSettings(corruptions="held_out").corruptions == tuple(list_corruptions("held_out"))
    assert StreamSettings(corruptions="fog").corruptions == ("fog",)


def test_all_that_is_wrong_with_a_stream_is_told_at_once():
    wrong = {"severty": 3, "severity": 6, "corruptions": ["fogg", "snow", "forst"], "batch_size": 0, "schedule": "x"}
    with pytest.raises(UsageError) as caught:
        make_stream({**wrong, "seed": -1})
    told = str(caught.value)
    assert told.startswith("Invalid settings for the stream:")
    assert "Unknown setting 'severty'. Did you mean 'severity'?" in told
    assert "severity = 6" in told
    assert "Did you mean 'fog'?" in told
    assert "Did you mean 'frost'?" in told
    assert "batch_size = 0" in told
    assert "schedule = 'x'" in told
    assert "seed = -1" in told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"corruptions": []}, "at least one corruption"),
        ({"corruptions": "fogg"}, "Did you mean 'fog'"),
        ({"limit": 0}, "limit = 0"),
        ({"concentration": 0.0}, "concentration = 0.0"),
        ({"rounds": 0}, "rounds = 0"),
        ({"dataset": "cifar10-embeded"}, "Did you mean 'cifar10-embedded'"),
    ],
)
def test_a_wrong_setting_is_told(changes, told):
    with pytest.raises(UsageError, match=told):
        make_stream("embedded", **changes)


def test_an_unknown_preset_names_its_neighbour():
    with pytest.raises(UsageError, match="Did you mean 'embedded'"):
        make_stream("embeddedd")


def test_an_archive_of_other_images_is_refused(folder):
    with pytest.raises(UsageError, match=r"23 images a severity\) does not go with the dataset cifar10-embedded"):
        make_stream("embedded", archive=str(folder))


def test_an_archive_without_the_corruption_is_refused_before_the_stream_starts(pictures, tmp_path):
    make_archive(load_dataset(pictures), tmp_path / "own", names=["fog"])
    with pytest.raises(UsageError, match=r"has no snow, frost: .*take of its corruptions fog"):
        make_stream({"dataset": pictures, "archive": str(tmp_path / "own"), "corruptions": ["snow", "fog", "frost"]})


def test_an_archive_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match=r"labels\.npy is missing"):
        make_stream("embedded", archive=str(tmp_path / "none"))


def test_a_dataset_without_images_is_refused():
    empty = ArrayImages("empty", np.zeros((0, 32, 32, 3), dtype=np.uint8), [], ["a", "b"])
    with pytest.raises(UsageError, match="the dataset empty holds no image"):
        made(empty)


@pytest.fixture
def imagenet_c(tmp_path):
    """A folder in ImageNet-C's layout; brightness tells corruption, severity and class."""
    for place, name in enumerate(("fog", "frost")):
        for severity in range(1, 6):
            for label in range(4):
                folder = tmp_path / "ImageNet-C" / name / str(severity) / f"n{label:08d}"
                folder.mkdir(parents=True)
                for number in range(3):
                    value = 100 * place + 10 * severity + label
                    Image.new("RGB", (16, 16), (value,) * 3).save(folder / f"{number}.JPEG", quality=100)
    return tmp_path


@pytest.mark.parametrize("named", ["imagenet-c", "archive:"])
def test_an_archive_alone_is_a_stream_without_clean_images(imagenet_c, named):
    dataset = named if named == "imagenet-c" else f"archive:{imagenet_c / 'ImageNet-C'}"
    settings = {"dataset": dataset, "corruptions": ["frost", "fog"], "severity": 3, "batch_size": 5}
    stream = make_stream(settings, data_dir=imagenet_c)
    assert segments(stream) == [("frost", 3, 0, 12), ("fog", 3, 0, 12)]
    for batch in stream:
        expected = (batch.labels + (130 if batch.domain.name == "frost" else 30)).float() / 255
        torch.testing.assert_close(batch.images.mean((1, 2, 3)), expected, atol=0.6 / 255, rtol=0)
    recipe = stream.recipe()
    assert (recipe["dataset"]["name"], recipe["archive"]["name"], recipe["pixels"]) == (dataset, dataset, "archive")
    assert "3 a class" in recipe["dataset"]["origin"]
    assert json.loads(json.dumps(recipe)) == recipe
    assert same_bits(stream, make_stream(recipe, data_dir=imagenet_c))


def test_an_archive_alone_has_no_clean_images_and_no_second_archive(imagenet_c):
    with pytest.raises(UsageError, match="holds no clean images"):
        make_stream({"dataset": "imagenet-c", "corruptions": ["fog", "clean"]}, data_dir=imagenet_c)
    with pytest.raises(UsageError, match="is an archive itself"):
        make_stream({"dataset": "imagenet-c", "corruptions": ["fog"], "archive": "cifar10-c"}, data_dir=imagenet_c)
    with pytest.raises(UsageError, match="has no snow"):
        make_stream({"dataset": "imagenet-c", "corruptions": ["snow"]}, data_dir=imagenet_c)


def test_folders_of_corrupted_pictures_go_with_the_clean_ones_they_were_made_from(imagenet_c):
    for label in range(4):
        folder = imagenet_c / "clean" / f"n{label:08d}"
        folder.mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (16, 16), (200 + label,) * 3).save(folder / f"{number}.png")
    settings = {"dataset": f"folder:{imagenet_c / 'clean'}", "archive": "imagenet-c", "corruptions": ["clean", "fog"]}
    clean, fog = make_stream(settings, data_dir=imagenet_c)
    assert torch.equal((clean.images[:, 0, 0, 0] * 255).round().long(), 200 + clean.labels)
    assert (fog.images[:, 0, 0, 0] * 255 - 50 - fog.labels).abs().max() <= 1


def test_large_pictures_are_decoded_once_for_all_domains(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    (tmp_path / "cat").mkdir()
    for number in range(3):
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(tmp_path / "cat" / f"{number}.png")
    settings = {"dataset": f"folder:{tmp_path}", "corruptions": ["contrast", "brightness", "clean"]}
    stream = make_stream(settings)
    asked = []
    real = stream.source.images
    monkeypatch.setattr(stream.source, "images", lambda indices: asked.extend(indices) or real(indices))
    first = pixels(stream)
    assert sorted(asked) == [0, 1, 2]
    monkeypatch.setattr(pixels_room, "KEPT_BYTES", 0)
    assert torch.equal(pixels(make_stream(settings)), first)
