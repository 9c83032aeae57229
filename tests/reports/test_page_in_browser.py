"""Behaviour of the page in a browser: buttons, values at the pointer, scroll hints, themes. Needs playwright."""

import shutil

import pytest

from driftlaw.reports import build_report
from tests.reports.example_records import add_diagnostics, make_record

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ERRORS = {"source": 45, "norm": 30, "law": 20}


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    records = [add_diagnostics(make_record(name, [error] * 15)) for name, error in ERRORS.items()]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(build_report(records, "html"), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def open_page(browser, address):
    """Return a function that opens the page. Messages in the console and requests to a host are errors."""
    contexts, problems = [], []

    def open_page(width=1280, height=900, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: request.url.startswith("http") and problems.append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def move_to_chart(page, fraction):
    """Move the pointer over the first chart, to a fraction of its width."""
    chart = page.locator("[data-hover]").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + fraction * box["width"], box["y"] + box["height"] / 2)


def test_button_hides_rows_lines_and_figures_of_a_method(open_page):
    page = open_page()
    law = page.locator('[data-row="2"]')
    assert law.filter(visible=True).count() > 10
    button = page.get_by_role("button", name="LAW")
    button.click()
    assert law.filter(visible=True).count() == 0
    assert page.locator('tr[data-row="1"]').first.is_visible()
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert law.first.is_visible()


def test_pointer_shows_the_values_of_visible_methods(open_page):
    page = open_page()
    tip = page.locator(".tip")
    assert not tip.is_visible()
    move_to_chart(page, 0.5)
    assert tip.inner_text().split() == ["snow,", "batch", "15", "Source", "45.0", "BN-1", "30.0", "LAW", "20.0"]
    page.get_by_role("button", name="Source").click()
    assert not tip.is_visible()
    move_to_chart(page, 0.99)
    assert tip.inner_text().split() == ["jpeg,", "batch", "30", "BN-1", "30.0", "LAW", "20.0"]


def test_tap_shows_values_until_the_next_tap(open_page):
    page = open_page(360, 740, has_touch=True, is_mobile=True)
    chart = page.locator("[data-hover]").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.touchscreen.tap(box["x"] + 150, box["y"] + 100)
    assert page.locator(".tip").is_visible()
    page.locator("h3").nth(1).tap()
    assert not page.locator(".tip").is_visible()


@pytest.mark.parametrize(("width", "hints"), [(360, True), (1280, False)])
def test_page_fits_the_screen_and_wide_tables_have_a_hint(open_page, width, hints):
    page = open_page(width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator(".hint").first.is_visible() is hints


def test_hint_is_also_shown_without_script(open_page):
    page = open_page(360, java_script_enabled=False)
    assert page.locator(".hint").first.is_visible()
    assert page.locator("table").first.is_visible()
    assert not page.locator(".methods").is_visible()


def test_theme_follows_the_system_and_can_be_changed(open_page):
    def background(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = open_page(color_scheme="light"), open_page(color_scheme="dark")
    assert background(light) == "rgb(255, 255, 255)"
    assert background(dark) != background(light)
    dark.get_by_role("button", name="Switch to the light theme").click()
    assert background(dark) == background(light)
