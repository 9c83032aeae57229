"""Files of the live page: headers, and what the script must not do. Its behaviour is tested in a browser."""

import re
from pathlib import Path

import pytest

import driftlaw

FOLDER = Path(driftlaw.__file__).parent / "serving" / "page_files"


@pytest.mark.parametrize(
    ("path", "kind"), [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]
)
def test_files_need_no_token_and_have_a_strict_policy(run_server, path, kind):
    pytest.importorskip("fastapi", reason="needs the extra 'serve'")
    answer = run_server(tokens=("client", "administrator")).client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_html_has_no_inline_script_or_style_and_no_outside_host():
    text = (FOLDER / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|<script(?! src)|\sstyle=|\son\w+=|https?:|//", text)
    assert re.findall(r'(?:src|href)="([^"]*)"', text) == ["data:,", "page.css", "page.js"]


def test_script_sets_data_as_text_only_and_stores_nothing():
    text = (FOLDER / "page.js").read_text(encoding="utf-8")
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert forbidden not in text
    for forbidden in ("localStorage", "sessionStorage", "cookie", "indexedDB"):
        assert forbidden not in text


def test_script_uses_ids_that_the_page_has():
    used = set(re.findall(r'get\("([\w-]+)"\)', (FOLDER / "page.js").read_text(encoding="utf-8")))
    defined = re.findall(r'id="([\w-]+)"', (FOLDER / "page.html").read_text(encoding="utf-8"))
    assert len(defined) == len(set(defined))
    assert used <= set(defined)
