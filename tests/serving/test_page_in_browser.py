"""The live page in a browser: it loads, moves while requests arrive, and its buttons work. Needs playwright."""

import json
import shutil
import socket
import threading
import time
import urllib.request

import pytest

import driftlaw
from driftlaw.datasets import load_dataset
from driftlaw.serving.network_input import NetworkInput
from driftlaw.serving.status import Event
from driftlaw.testing.fixtures import make_images

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="needs the extra 'serve'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright.expect.set_options(timeout=60_000)  # a loaded machine is slow
BUTTONS = ["Pause updates", "Roll back", "Reset"]


class Server:
    """A server on a port of its own, in a thread."""

    def __init__(self, folder, **options):
        from tests.serving.running import Running

        self.tokens = options.get("tokens", (None, None))
        self.running = Running(folder, **options)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.start()

    @property
    def batcher(self):
        return next(iter(self.running.server.batchers.values()))

    def start(self):
        config = uvicorn.Config(self.running.client.app, port=self.port, log_level="warning", lifespan="off")
        self.uvicorn = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.uvicorn.run, daemon=True)
        self.thread.start()
        while not self.uvicorn.started:
            time.sleep(0.01)

    def stop(self):
        self.uvicorn.should_exit = True
        self.thread.join()

    def close(self):
        if self.thread.is_alive():
            self.stop()
        self.running.server.close()

    def predict(self, seed=0, images=None, **headers):
        body = json.dumps({"images": (make_images(seed) if images is None else images).tolist()}).encode()
        headers = {"Content-Type": "application/json", **headers}
        if self.tokens[0]:
            headers["Authorization"] = f"Bearer {self.tokens[0]}"
        request = urllib.request.Request(f"{self.address}/v1/predict", body, headers)
        return json.loads(urllib.request.urlopen(request).read())


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a server; all are closed at the end."""
    started = []

    def start(**options):
        started.append(Server(tmp_path / f"snapshots-{len(started)}", **options))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def open_page(browser):
    """Return a function that opens the page of a server. Console messages and requests to other hosts are errors."""
    contexts, problems, expected = [], [], []

    def open_page(server, width=1280, height=900, expect=(), **options):
        expected.extend(expect)
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: request.url.startswith(server.address) or problems.append(request.url))
        page.goto(server.address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    problems = [text for text in problems if not text.startswith("data:")]
    assert [text for text in problems if not any(part in text for part in expected)] == []


def expect(locator):
    return playwright.expect(locator)


def heights(page):
    """Return the heights of the bars of layer weights, by the name of the layer."""
    script = "bars => Object.fromEntries(bars.map(bar => [bar.title, bar.firstElementChild.style.transform]))"
    return page.locator("#weights .bar").evaluate_all(script)


def test_page_without_data_says_so(start, open_page):
    server = start(method="law")
    page = open_page(server)
    expect(page.locator("h1")).to_have_text("tiny · law")
    expect(page.locator("#mode")).to_have_text("Adapting")
    expect(page.locator("#mode-text")).to_have_text("Waiting for the first image.")
    expect(page.locator("#weights")).to_contain_text("appear after the first update")
    expect(page.locator("#thumbnails")).to_contain_text(f"curl -F file=@photo.png {server.address}/v1/predict")
    assert page.locator("#entropy-chart").inner_text() == "No images in the last two minutes."


def test_page_moves_while_requests_arrive(start, open_page):
    server = start(method="law")
    page = open_page(server)
    expect(page.locator("#images")).to_have_text("0")
    server.predict()
    expect(page.locator("#images")).to_have_text("8")
    expect(page.locator("#steps")).to_have_text("1")
    labels = [f"class {index}" for index in range(server.running.server.status("").classes)]
    expect(page.locator("#thumbnails img")).to_have_count(8)
    assert all(name in labels for name in page.locator("#thumbnails .name").all_inner_texts())
    before = heights(page)
    assert len(before) == len(server.batcher.layer_weights)
    for seed in range(1, 4):
        server.predict(seed)
    expect(page.locator("#steps")).to_have_text("4")
    assert heights(page) != before
    expect(page.locator("#entropy-chart path.line")).to_have_count(1)
    expect(page.locator("#latency-chart path.line")).to_have_count(2)
    expect(page.locator("#classes .value").first).to_contain_text("%")


def test_weights_are_also_a_table(start, open_page):
    server = start(method="law")
    server.predict()
    page = open_page(server)
    page.get_by_text("Weights as a table").click()
    rows = page.locator("#weight-rows tr")
    expect(rows).to_have_count(len(server.batcher.layer_weights))
    name, value = next(iter(server.batcher.layer_weights.items()))
    assert rows.first.inner_text().split() == [name, f"{value:.3f}"]


def test_method_without_layer_weights_is_named(start, open_page):
    server = start(method="tent")
    server.predict()
    expect(open_page(server).locator("#weights")).to_have_text("The method 'tent' has no layer weights. LAW has.")


def test_buttons_pause_resume_reset_and_roll_back(start, open_page):
    server = start(method="tent")
    server.predict()
    server.predict(1)
    page = open_page(server)
    page.get_by_role("button", name="Pause updates").click()
    expect(page.locator("#mode")).to_have_text("Paused")
    assert server.predict(2)["step"] == 2
    page.get_by_role("button", name="Resume updates").click()
    expect(page.locator("#mode")).to_have_text("Adapting")
    page.get_by_role("button", name="Roll back").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(page.locator("#message")).to_have_text("The adapter was rolled back.")
    assert server.batcher.adapter.steps == 1
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert server.batcher.adapter.steps == 1
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("dialog").get_by_role("button", name="Reset").click()
    expect(page.locator("#message")).to_have_text("The adapter was reset.")
    assert server.batcher.adapter.steps == 0
    expect(page.get_by_role("button", name="Roll back")).to_be_disabled()
    actions = page.locator("#events .action")
    expect(actions).to_have_text(["reset", "rollback", "resume", "pause"])
    expect(page.locator("#timeline i")).to_have_count(4)


def test_page_can_be_used_with_the_keyboard(start, open_page):
    server = start(method="tent")
    server.predict()
    server.predict(1)  # then there is a snapshot from before, and the button to roll back is enabled
    page = open_page(server)
    expect(page.get_by_role("button", name="Pause updates")).to_be_enabled()
    for key in ("Tab", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#mode")).to_have_text("Paused")
    for key in ("Tab", "Tab", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).not_to_be_visible()
    assert server.batcher.adapter.steps == 2


def test_administrators_token_is_asked_for_and_kept_in_memory_only(start, open_page):
    server = start(method="tent", tokens=(None, "secret"))
    page = open_page(server, expect=["status of 401"])
    page.get_by_role("button", name="Pause updates").click()
    for entered in ("wrong", "secret"):
        expect(page.locator("#dialog-text")).to_contain_text("administrator's token")
        page.locator("#token").fill(entered)
        page.keyboard.press("Enter")
    expect(page.locator("#mode")).to_have_text("Paused")
    page.get_by_role("button", name="Resume updates").click()
    expect(page.locator("#mode")).to_have_text("Adapting")
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    assert "secret" not in page.content()


def test_client_token_is_asked_for(start, open_page):
    server = start(method="tent", tokens=("client", "secret"))
    page = open_page(server, expect=["status of 401"])
    expect(page.locator("#problem")).to_have_text("The server needs a token.")
    page.get_by_role("button", name="Enter token").click()
    page.locator("#token").fill("client")
    page.get_by_role("button", name="Use this token").click()
    expect(page.locator("h1")).to_have_text("tiny · tent")
    expect(page.locator("#banner")).not_to_be_visible()


def test_source_model_that_predicts_is_shown(start, open_page):
    server = start(method="tent")
    server.predict()
    server.batcher.adapter.guard.mode = "source"
    reason = "<b>skew</b> 0.4 > 0.25"
    server.batcher.adapter.guard.report(server.batcher.adapter, "stored_statistics", reason)
    server.batcher.events.append(Event(time.time(), 1, "stored_statistics", reason))  # as during a step
    server.predict(1)
    page = open_page(server)
    expect(page.locator("#mode")).to_have_text("Source model")
    expect(page.locator("#guard-note")).to_contain_text("1 stored statistics")
    expect(page.locator("#events .reason").first).to_contain_text(reason)


def test_server_that_is_away_and_comes_back(start, open_page):
    server = start(method="tent")
    server.predict()
    page = open_page(server, expect=["ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET"])
    expect(page.locator("#images")).to_have_text("8")
    server.stop()
    expect(page.locator("#problem")).to_contain_text("The server does not answer. The values below are from")
    expect(page.locator("#mode")).to_have_text("No connection")
    assert all(page.get_by_role("button", name=name).is_disabled() for name in BUTTONS)
    server.start()
    expect(page.locator("#mode")).to_have_text("Adapting")
    expect(page.locator("#banner")).not_to_be_visible()


def test_last_frame_of_a_segmentation_network_has_a_legend(start, open_page):
    adapter = driftlaw.adapt(driftlaw.load_model("fpn_wrn_10_1-shapes"), "source")
    server = start(adapter=adapter, image_size=NetworkInput(32, 48, is_dense=True))
    server.predict(images=load_dataset("shapes").images(range(2)).transpose(0, 3, 1, 2) / 255)
    page = open_page(server, 360)
    expect(page.get_by_role("heading", name="Last frame")).to_be_visible()
    expect(page.locator("#overlay-image")).to_be_visible()
    expect(page.locator("#legend .name")).to_have_count(5)
    expect(page.locator("#shares-note")).to_contain_text("pixels")
    assert page.locator("#overlay-image").evaluate("image => image.naturalWidth") == 48
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_every_tenant_has_its_values(start, open_page):
    server = start(method="tent", tenants=("north", "south"), separate_adapters=True)
    server.predict(**{"Driftlaw-Tenant": "south"})
    page = open_page(server)
    expect(page.locator("#images")).to_have_text("0")
    page.get_by_label("Tenant").select_option("south")
    expect(page.locator("#images")).to_have_text("8")
    page.get_by_role("button", name="Pause updates").click()
    expect(page.locator("#mode")).to_have_text("Paused")
    assert [batcher.paused for batcher in server.running.server.batchers.values()] == [False, True]


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_the_screen_in_both_themes(start, open_page, width, scheme):
    server = start(method="law")
    server.predict()
    page = open_page(server, width, color_scheme=scheme)
    expect(page.locator("#images")).to_have_text("8")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 20, 27)"}[scheme]


def test_bars_do_not_move_if_the_user_prefers_it(start, open_page):
    server = start(method="law")
    server.predict()
    page = open_page(server, reduced_motion="reduce")
    bar = page.locator("#weights .bar span").first
    bar.wait_for(state="attached")
    assert bar.evaluate("element => getComputedStyle(element).transitionDuration") == "0s"
