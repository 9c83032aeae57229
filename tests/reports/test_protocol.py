from driftlaw.reports.protocol import describe_protocol, protocol_key
from tests.reports.example_records import make_record


def test_seed_is_not_part_of_the_key():
    assert protocol_key(make_record(seed=1)) == protocol_key(make_record(seed=2))


def test_other_stream_settings_are_part_of_the_key():
    plain = protocol_key(make_record())
    for change in ({"schedule": "mixed"}, {"batch_size": 64}, {"order": "dirichlet"}, {"concentration": 0.1}):
        assert protocol_key(make_record(stream=change)) != plain


def test_weights_and_reset_rule_are_part_of_the_key():
    plain = make_record()
    weights = make_record(header={"model": {**plain.header["model"], "sha256": "f" * 64}})
    reset = make_record(header={"reset_on": "domain"})
    assert len({protocol_key(record) for record in (plain, weights, reset)}) == 3


def test_images_are_identified_by_hash_not_by_location():
    dataset = make_record().header["stream"]["dataset"]
    elsewhere = make_record(stream={"dataset": {**dataset, "origin": "a folder"}})
    other = make_record(stream={"dataset": {**dataset, "sha256": "6" * 64}})
    assert protocol_key(elsewhere) == protocol_key(make_record()) != protocol_key(other)


def test_line_contains_the_whole_description():
    records = [make_record(seed=seed, stream={"weather": "fine"}) for seed in (2, 1)]
    line = describe_protocol(records).line
    for text in (
        "cifar10-embedded test (2,000 images, package, sha256 55555555)",
        "wrn_16_1 (175,066 parameters, weights wrn_16_1-cifar10, sha256 dddddddd)",
        "continual, severity 5, 15 corruptions, 200 images per domain, batch size 100, shuffled",
        "reset: never",
        "generated (corruption seed 0)",
        "weather: fine",
        "seeds: 1, 2",
        "An Example CPU (2 threads)",
        "driftlaw 0.1.0 with torch 2.13.0",
    ):
        assert text in line


def test_gradual_stream_shows_its_range_of_severities():
    record = make_record(severities=(1, 2, 3, 2, 1), stream={"schedule": "gradual"})
    assert "gradual, severities 1 to 3," in describe_protocol([record]).line


def test_concentration_is_shown_for_dirichlet_order_only():
    assert "concentration" not in describe_protocol([make_record(stream={"concentration": 0.1})]).line
    clustered = make_record(stream={"order": "dirichlet", "concentration": 0.1})
    assert "dirichlet order with concentration 0.1" in describe_protocol([clustered]).line


def test_archive_is_identified_by_hash():
    archive = {"name": "CIFAR-10-C", "origin": "a folder", "sha256": "9" * 64, "files": {"fog.npy": "8" * 64}}
    here = make_record(stream={"pixels": "archive", "archive": archive})
    there = make_record(stream={"pixels": "archive", "archive": {**archive, "name": "c10c", "origin": "elsewhere"}})
    assert "pixels: from an archive (a folder, sha256 99999999)" in describe_protocol([here]).line
    assert "8888" not in describe_protocol([here]).line
    assert protocol_key(here) == protocol_key(there) != protocol_key(make_record())


def test_reset_rule_is_described():
    assert (
        "reset: to the source model at every domain change"
        in describe_protocol([make_record(header={"reset_on": "domain"})]).line
    )


def test_clean_images_have_no_severity_and_no_corruption_seed():
    line = describe_protocol([make_record(stream={"corruptions": ["clean"]})]).line
    assert "continual, not corrupted, 200 images per domain" in line
    assert "severity" not in line
    assert "corruption seed" not in line
