"""The prose lint finds words of the former dialect and nothing else."""

import pytest

from tools.lint_prose import PATHS, PATTERN, ROOT, main


@pytest.mark.parametrize("words", [("hangs", "on"), ("at", "hand"), ("no" + "body",), ("stands", "still")])
def test_dialect_is_found(words):
    assert PATTERN.search(f"It {' '.join(words)} there.")


@pytest.mark.parametrize("text", ["a standard step", "a handle", "hangs_on"])
def test_plain_english_is_accepted(text):
    assert not PATTERN.search(text)


def test_matches_are_listed_with_path_and_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tools.lint_prose.ROOT", tmp_path)
    (tmp_path / "page.md").write_text("A plain line.\nIt is made a" + "new.\n")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("page.md:2: 'a" + "new' in: It is made")
    (tmp_path / "page.md").write_text("A plain line.\n")
    assert main([str(tmp_path)]) == 0


def test_default_paths_exist():
    assert all((ROOT / name).exists() for name in PATHS.split())
