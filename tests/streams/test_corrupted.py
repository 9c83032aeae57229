"""CorruptedStream and make_stream."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.base import Domain
from driftlaw.corruptions import corrupt, list_corruptions
from driftlaw.datasets import ArrayImages, load_dataset, open_archive
from driftlaw.errors import DataError, UsageError
from driftlaw.streams import CorruptedStream, StreamSettings, image_cache, make_stream
from driftlaw.streams.image_cache import CorruptedImageCache
from tools.make_archive import make_archive

NAMES = ("gaussian_noise", "fog", "glass_blur")
COUNT = 23


@pytest.fixture(scope="module")
def dataset():
    embedded = load_dataset("cifar10-embedded")
    return ArrayImages("few", embedded.images(np.arange(COUNT)), embedded.labels[:COUNT], embedded.class_names)


def make(dataset, **settings):
    settings = StreamSettings(**{"corruptions": NAMES, "batch_size": 10, **settings})
    archive = open_archive(settings.archive) if settings.archive else None
    return CorruptedStream(settings, CorruptedImageCache(dataset, archive, settings.corruption_seed, "cpu"))


def pixels(stream):
    return torch.cat([batch.images for batch in stream])


def labels(stream):
    return torch.cat([batch.labels for batch in stream])


def segments(stream):
    """Return (name, severity, round, images) of every segment, from its batches."""
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


def test_batches_have_the_documented_shape_and_type(dataset):
    stream = make(dataset)
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


def test_images_are_corrupted_by_their_dataset_index(dataset):
    stream = make(dataset, severity=3, corruption_seed=4)
    indices = stream.indices
    clean = torch.from_numpy(dataset.images(indices)).permute(0, 3, 1, 2).contiguous()
    bad = corrupt(clean, "fog", 3, seed=4, indices=torch.from_numpy(indices))
    assert torch.equal(pixels(stream)[COUNT : 2 * COUNT], bad.float() / 255)
    assert labels(stream)[:COUNT].tolist() == dataset.labels[indices].tolist()


def test_every_domain_has_the_same_order(dataset):
    stream = make(dataset)
    first, *others = labels(stream).split(COUNT)
    assert all(torch.equal(first, other) for other in others)
    one, two = pixels(make(dataset, corruptions=("clean",) * 2)).split(COUNT)
    assert torch.equal(one, two)
    assert first.tolist() != dataset.labels.tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"schedule": "continual"}, [(name, 5, 0, COUNT) for name in NAMES]),
        ({"schedule": "reset", "severity": 2}, [(name, 2, 0, COUNT) for name in NAMES]),
        (
            {"schedule": "gradual", "corruptions": ("contrast", "fog")},
            [(name, s, 0, COUNT) for name in ("contrast", "fog") for s in (1, 2, 3, 4, 5, 4, 3, 2, 1)],
        ),
        (
            {"schedule": "recurring", "rounds": 2, "corruptions": ("contrast", "clean")},
            [(name, s, r, COUNT) for r in (0, 1) for name, s in (("contrast", 5), ("clean", 0))],
        ),
        ({"schedule": "single", "corruptions": ("fog",), "limit": 12}, [("fog", 5, 0, 12)]),
        ({"schedule": "mixed"}, [("mixed", 5, 0, 3 * COUNT)]),
    ],
)
def test_segments_of_every_schedule(dataset, settings, expected):
    stream = make(dataset, **settings)
    assert segments(stream) == expected
    assert len(stream) == len(list(stream))


def test_gradual_benchmark_has_135_segments(dataset):
    stream = make(dataset, schedule="gradual", corruptions="benchmark", batch_size=COUNT)
    assert len(stream) == 135


def test_only_the_reset_schedule_resets(dataset):
    reset_on = {name: make(dataset, schedule=name).reset_on for name in ("continual", "gradual", "reset", "mixed")}
    assert reset_on == {"continual": "never", "gradual": "never", "reset": "domain", "mixed": "never"}


def test_mixed_stream_contains_every_image_of_every_domain_once(dataset):
    mixed, separate = make(dataset, schedule="mixed"), make(dataset)
    assert [batch.starts_domain for batch in mixed] == [True] + [False] * 6

    def both(stream):
        return pixels(stream), labels(stream)

    def contents(stream):
        return sorted((image.numpy().tobytes(), int(label)) for image, label in zip(*both(stream), strict=True))

    assert contents(mixed) == contents(separate)
    assert not torch.equal(pixels(mixed), pixels(separate))
    assert not torch.equal(pixels(mixed), pixels(make(dataset, schedule="mixed", seed=2)))


def test_rounds_of_a_mixed_stream_repeat_every_image(dataset):
    once, twice = make(dataset, schedule="mixed"), make(dataset, schedule="mixed", rounds=2)
    labels = [torch.cat([batch.labels for batch in stream]) for stream in (once, twice)]
    assert torch.bincount(labels[1]).tolist() == (2 * torch.bincount(labels[0])).tolist()
    assert len({segment.domain.name for segment in twice._segments}) == 1


def test_single_needs_exactly_one_corruption(dataset):
    with pytest.raises(UsageError, match="needs exactly one corruption, found 3"):
        make(dataset, schedule="single")


def test_clean_images_are_unchanged(dataset):
    stream = make(dataset, corruptions=("clean",), order="as-is")
    assert torch.equal(pixels(stream), torch.from_numpy(dataset.images(range(COUNT))).permute(0, 3, 1, 2) / 255)
    assert next(iter(stream)).domain == Domain("clean", 0)


@pytest.mark.parametrize("schedule", ["continual", "mixed"])
def test_two_passes_give_the_same_bits(dataset, schedule):
    stream = make(dataset, schedule=schedule)
    assert same_bits(stream, stream)
    torch.manual_seed(1)
    np.random.seed(1)
    assert same_bits(stream, make(dataset, schedule=schedule))


@pytest.mark.parametrize("schedule", ["continual", "mixed"])
def test_batch_size_does_not_change_images(dataset, schedule):
    whole = make(dataset, schedule=schedule, batch_size=1000)
    assert len(whole) == (1 if schedule == "mixed" else 3)
    for size in (1, 7, COUNT):
        assert torch.equal(pixels(make(dataset, schedule=schedule, batch_size=size)), pixels(whole))


@pytest.mark.parametrize("order", ["shuffled", "dirichlet"])
def test_order_does_not_change_images(dataset, order):
    stream, as_is = make(dataset, order=order, seed=7), make(dataset, order="as-is")
    for ordered, plain in zip(pixels(stream).split(COUNT), pixels(as_is).split(COUNT), strict=True):
        assert torch.equal(ordered, plain[torch.from_numpy(stream.indices)])


def test_limit_does_not_change_images(dataset):
    few, all_ = make(dataset, limit=5), make(dataset)
    assert torch.equal(pixels(few)[:5], pixels(all_)[:5])
    assert len(pixels(few)) == 15


def test_seeds_of_order_and_corruption_are_independent(dataset):
    plain = make(dataset)
    reordered, redrawn = make(dataset, seed=2), make(dataset, corruption_seed=1)
    assert not torch.equal(labels(reordered), labels(plain))
    assert torch.equal(labels(redrawn), labels(plain))
    assert not torch.equal(pixels(redrawn), pixels(plain))


@pytest.mark.parametrize("schedule", ["continual", "mixed"])
@pytest.mark.parametrize("first", [0, 1, 2, 3, 5, 6, 99])
def test_iter_from_gives_the_rest_of_the_stream(dataset, schedule, first):
    stream = make(dataset, schedule=schedule)
    assert same_bits(list(stream.iter_from(first)), list(stream)[first:])


def test_skipped_batches_are_not_computed(dataset, monkeypatch):
    stream = make(dataset)
    requested = []
    monkeypatch.setattr(
        image_cache, "corrupt", lambda images, name, *rest, **more: requested.append((name, len(images))) or images
    )
    assert len(list(stream.iter_from(4))) == 5
    assert requested == [("fog", 10), ("fog", 3), ("glass_blur", 10), ("glass_blur", 10), ("glass_blur", 3)]


@pytest.mark.parametrize("batches", [2, 3, 100])
def test_chunks_of_several_batches_do_not_change_images(dataset, batches):
    plain = list(make(dataset))
    stream = make(dataset)
    stream.batches_per_chunk = batches
    assert same_bits(list(stream), plain)
    assert same_bits(list(stream.iter_from(4)), plain[4:])


@pytest.fixture(scope="module")
def folder(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive") / "CIFAR-10-C"
    make_archive(dataset, folder, names=NAMES, seed=0)
    return folder


@pytest.mark.parametrize("settings", [{}, {"schedule": "gradual"}, {"schedule": "mixed"}, {"order": "dirichlet"}])
def test_generated_images_equal_the_archive(dataset, folder, settings):
    generated, stored = make(dataset, **settings), make(dataset, archive=str(folder), **settings)
    assert same_bits(generated, stored)
    assert generated.recipe()["pixels"] == "generated"
    assert stored.recipe()["pixels"] == "archive"


def test_clean_images_come_from_the_dataset_beside_an_archive(dataset, folder):
    stream = make(dataset, corruptions=("clean", "fog"), archive=str(folder))
    assert same_bits(stream, make(dataset, corruptions=("clean", "fog")))


@pytest.fixture
def image_folder(dataset, tmp_path):
    """Folder with the same images, so that make_stream can find them by name."""
    for number, image in enumerate(dataset.images(range(COUNT))):
        class_folder = tmp_path / "images" / dataset.class_names[dataset.labels[number]]
        class_folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(class_folder / f"{number}.png")
    return f"folder:{tmp_path / 'images'}"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"schedule": "mixed", "seed": 3},
        {"schedule": "recurring", "rounds": 2, "order": "dirichlet", "concentration": 0.5, "limit": 15},
        {"corruptions": ["clean", "contrast"], "severity": 2, "corruption_seed": 9},
    ],
)
def test_recipe_is_json_and_rebuilds_the_stream(image_folder, changes):
    stream = make_stream({"dataset": image_folder, "corruptions": ["fog"], "batch_size": 10} | changes)
    recipe = json.loads(json.dumps(stream.recipe()))
    again = make_stream(recipe)
    assert same_bits(stream, again)
    assert again.recipe() == recipe == stream.recipe()


@pytest.fixture(scope="module")
def large_folder(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    for number, image in enumerate(dataset.images(range(4))):
        (folder / str(number % 2)).mkdir(exist_ok=True)
        Image.fromarray(image).resize((70, 66)).save(folder / str(number % 2) / f"{number}.png")
    return f"folder:{folder}"


def test_recipe_of_large_images_names_their_encoding_and_the_photographs(large_folder):
    settings = {"dataset": large_folder, "corruptions": ["contrast", "frost"], "batch_size": 4}
    encoded, plain = make_stream(settings), make_stream(settings | {"encoding": "none"})
    assert (encoded.recipe()["encoding"], plain.recipe()["encoding"]) == ("jpeg85", "none")
    assert encoded.recipe()["frost_photographs"] == "full size"
    assert not same_bits(encoded, plain)
    assert same_bits(make_stream(encoded.recipe()), encoded)
    assert same_bits(make_stream(plain.recipe()), plain)
    assert make_stream(settings | {"encoding": "none"}, like=encoded).cache is not encoded.cache


def test_recipe_without_an_encoding_is_of_images_that_were_not_encoded(large_folder):
    stream = make_stream({"dataset": large_folder, "corruptions": ["contrast"], "batch_size": 4, "encoding": "none"})
    old = {name: value for name, value in stream.recipe().items() if name != "encoding"}
    assert make_stream(old).recipe() == stream.recipe() != old


def test_recipes_of_small_and_of_clean_images_have_no_encoding(dataset, large_folder):
    assert "encoding" not in make(dataset, encoding="auto").recipe()
    clean = make_stream({"dataset": large_folder, "corruptions": ["clean"]})
    assert "encoding" not in clean.recipe()
    assert make_stream(clean.recipe(), corruptions=["fog"]).recipe()["encoding"] == "jpeg85"


def test_recipe_contains_its_archive(image_folder, tmp_path):
    make_archive(load_dataset(image_folder), tmp_path / "deep" / "CIFAR-10-C", names=NAMES)
    archive = str(tmp_path / "deep" / "CIFAR-10-C")
    stream = make_stream(
        {"dataset": image_folder, "archive": archive, "corruptions": ["fog", "clean"], "batch_size": 10}
    )
    recipe = json.loads(json.dumps(stream.recipe()))
    assert recipe["archive"]["name"] == archive
    assert set(recipe["archive"]["files"]) == {"fog.npy", "labels.npy"}
    assert recipe["archive"]["recipe"]["seed"] == 0
    assert same_bits(stream, make_stream(recipe))


def test_recipe_describes_the_data(dataset):
    recipe = make(dataset, limit=12).recipe()
    assert recipe["dataset"] == dataset.metadata()
    assert recipe["images_per_domain"] == 12
    assert recipe["corruptions"] == list(NAMES)
    assert {"schedule", "severity", "order", "batch_size", "seed", "corruption_seed"} <= set(recipe)


def test_preset_with_changes():
    stream = make_stream("embedded", limit=40, batch_size=20, corruptions=["fog"])
    assert stream.dataset.name == "cifar10-embedded"
    assert len(stream) == 2
    assert stream.settings.severity == 5
    assert same_bits(stream, make_stream(stream.settings))


def test_corruption_groups_are_expanded():
    assert StreamSettings().corruptions == tuple(list_corruptions("benchmark"))
    assert StreamSettings(corruptions="held_out").corruptions == tuple(list_corruptions("held_out"))
    assert StreamSettings(corruptions="fog").corruptions == ("fog",)


def test_all_invalid_settings_are_reported_together():
    wrong = {"severty": 3, "severity": 6, "corruptions": ["fogg", "snow", "forst"], "batch_size": 0, "schedule": "x"}
    with pytest.raises(UsageError) as caught:
        make_stream({**wrong, "seed": -1})
    message = str(caught.value)
    assert message.startswith("Invalid settings for the stream:")
    assert "Unknown setting 'severty'. Did you mean 'severity'?" in message
    assert "severity = 6" in message
    assert "Did you mean 'fog'?" in message
    assert "Did you mean 'frost'?" in message
    assert "batch_size = 0" in message
    assert "schedule = 'x'" in message
    assert "seed = -1" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corruptions": []}, "at least one corruption"),
        ({"corruptions": "fogg"}, "Did you mean 'fog'"),
        ({"limit": 0}, "limit = 0"),
        ({"concentration": 0.0}, "concentration = 0.0"),
        ({"rounds": 0}, "rounds = 0"),
        ({"rounds": 2**63}, "rounds = "),
        ({"batch_size": 2**63}, "batch_size = "),
        ({"dataset": "cifar10-embeded"}, "Did you mean 'cifar10-embedded'"),
    ],
)
def test_invalid_setting_raises(changes, message):
    with pytest.raises(UsageError, match=message):
        make_stream("embedded", **changes)


def test_unknown_preset_raises():
    with pytest.raises(UsageError, match="Did you mean 'embedded'"):
        make_stream("embeddedd")


def test_archive_of_other_images_raises(folder):
    with pytest.raises(
        UsageError, match=r"23 images per severity\) and the dataset cifar10-embedded .* different labels"
    ):
        make_stream("embedded", archive=str(folder))


def test_archive_without_the_corruption_raises_before_the_stream_starts(image_folder, tmp_path):
    make_archive(load_dataset(image_folder), tmp_path / "own", names=["fog"])
    with pytest.raises(UsageError, match=r"does not contain snow, frost\. .*use its corruptions: fog"):
        make_stream(
            {"dataset": image_folder, "archive": str(tmp_path / "own"), "corruptions": ["snow", "fog", "frost"]}
        )


def test_missing_archive_raises(tmp_path):
    with pytest.raises(DataError, match=r"labels\.npy is missing"):
        make_stream("embedded", archive=str(tmp_path / "none"))


def test_empty_dataset_raises():
    empty = ArrayImages("empty", np.zeros((0, 32, 32, 3), dtype=np.uint8), [], ["a", "b"])
    with pytest.raises(UsageError, match="The dataset empty contains no images"):
        make(empty)


@pytest.fixture
def imagenet_c(tmp_path):
    """Folder in the ImageNet-C layout; the brightness encodes corruption, severity and class."""
    for position, name in enumerate(("fog", "frost")):
        for severity in range(1, 6):
            for label in range(4):
                folder = tmp_path / "ImageNet-C" / name / str(severity) / f"n{label:08d}"
                folder.mkdir(parents=True)
                for number in range(3):
                    value = 100 * position + 10 * severity + label
                    Image.new("RGB", (16, 16), (value,) * 3).save(folder / f"{number}.JPEG", quality=100)
    return tmp_path


@pytest.mark.parametrize("named", ["imagenet-c", "archive:"])
def test_archive_can_be_used_without_clean_images(imagenet_c, named):
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


def test_invalid_settings_of_an_archive_without_clean_images_raise(imagenet_c):
    with pytest.raises(UsageError, match="has no clean images"):
        make_stream({"dataset": "imagenet-c", "corruptions": ["fog", "clean"]}, data_dir=imagenet_c)
    with pytest.raises(UsageError, match=r"is an archive\. Remove archive="):
        make_stream({"dataset": "imagenet-c", "corruptions": ["fog"], "archive": "cifar10-c"}, data_dir=imagenet_c)
    with pytest.raises(UsageError, match="does not contain snow"):
        make_stream({"dataset": "imagenet-c", "corruptions": ["snow"]}, data_dir=imagenet_c)


def test_folder_archive_beside_its_clean_images(imagenet_c):
    for label in range(4):
        folder = imagenet_c / "clean" / f"n{label:08d}"
        folder.mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (16, 16), (200 + label,) * 3).save(folder / f"{number}.png")
    settings = {"dataset": f"folder:{imagenet_c / 'clean'}", "archive": "imagenet-c", "corruptions": ["clean", "fog"]}
    clean, fog = make_stream(settings, data_dir=imagenet_c)
    assert torch.equal((clean.images[:, 0, 0, 0] * 255).round().long(), 200 + clean.labels)
    assert (fog.images[:, 0, 0, 0] * 255 - 50 - fog.labels).abs().max() <= 1


def test_image_files_are_decoded_once_for_all_domains(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    (tmp_path / "cat").mkdir()
    for number in range(3):
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(tmp_path / "cat" / f"{number}.png")
    settings = {"dataset": f"folder:{tmp_path}", "corruptions": ["contrast", "brightness", "clean"]}
    stream = make_stream(settings)
    requested = []
    real = stream.dataset.images
    monkeypatch.setattr(stream.dataset, "images", lambda indices: requested.extend(indices) or real(indices))
    first = pixels(stream)
    assert sorted(requested) == [0, 1, 2]
    monkeypatch.setattr(image_cache, "CACHE_BYTES", 0)
    assert torch.equal(pixels(make_stream(settings)), first)


def test_corruptions_can_be_combined():
    stream = make_stream("embedded", corruptions=["fog+frost", "clean"], limit=20, batch_size=20)
    combined, clean = stream
    assert (combined.domain.name, clean.domain.name) == ("fog+frost", "clean")
    indices = torch.as_tensor(stream.indices)
    expected = corrupt((clean.images * 255).round().to(torch.uint8), "fog+frost", 5, indices=indices)
    assert torch.equal((combined.images * 255).round().to(torch.uint8), expected)


@pytest.mark.parametrize("name", ["fog+frog", "clean+fog"])
def test_an_unknown_part_of_a_combination_is_refused(name):
    with pytest.raises(UsageError, match=r"Unknown corruption '(frog|clean)'"):
        make_stream("embedded", corruptions=[name])
