"""Dependencies: the lock file is complete, extras have bounds and are used, and vulnerabilities are looked for."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
NOT_LOCKED = {"torch"}  # its builds differ by device; constraints.txt states its version
FOR_DEVELOPMENT = {"dev", "docs"}


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements):
    return {normalized(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}


def pinned(file_name):
    text = (ROOT / file_name).read_text(encoding="utf-8")
    return {normalized(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, flags=re.MULTILINE)}


def test_the_lock_file_contains_what_development_and_the_build_need():
    needed = names(PROJECT["project"]["dependencies"]) | names(PROJECT["build-system"]["requires"])
    needed |= names(EXTRAS["dev"]) | names(EXTRAS["docs"])
    assert needed - NOT_LOCKED <= set(pinned("requirements-dev.lock"))


def test_the_lock_file_has_the_versions_of_the_constraints():
    locked, constraints = pinned("requirements-dev.lock"), pinned("constraints.txt")
    assert set(constraints) - NOT_LOCKED <= set(locked)
    assert {name: locked[name] for name in constraints if name in locked} == {
        name: version for name, version in constraints.items() if name in locked
    }


def test_every_locked_package_has_hashes_and_no_address():
    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    entries = [entry for entry in re.split(r"\n(?=[\w#])", text) if not entry.startswith("#")]
    assert len(entries) == len(pinned("requirements-dev.lock"))
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\s*", entry), entry.partition("\n")[0]
    assert "://" not in text


@pytest.mark.parametrize(("extra", "requirement"), [(name, item) for name, items in EXTRAS.items() for item in items])
def test_extras_have_lower_and_upper_bounds(extra, requirement):
    assert re.fullmatch(r"[\w.-]+(\[\w+\])?>=[\d.]+,<[\d.]+", requirement)


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - FOR_DEVELOPMENT))
def test_extras_are_used_by_the_package(extra):
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "driftlaw").rglob("*.py"))
    for name in names(EXTRAS[extra]):
        module = name.replace("-", "_")
        assert re.search(rf'(import |from |")(torch\.utils\.)?{module}\b', code), f"nothing uses {name}"


def test_the_workflow_looks_for_known_vulnerabilities():
    assert "make audit" in (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert "pip-audit" in (ROOT / "Makefile").read_text(encoding="utf-8")
