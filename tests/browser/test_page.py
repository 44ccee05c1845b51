"""The page in a real browser, over a real stack that asks for a token.

One stack and one browser for all: a test begins by opening the page again.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.actions import interaction
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from hopyard.lab.bench.page.chromium import browser, complaints, js, scheme, size, text, until
from schemas.ids import JobId
from services.admission import problems
from services.admission.http.authorization import FAILURES_MAX
from shared.domain.states import JobState
from tests.browser.running import RunningStack, proxy, stack

pytestmark = pytest.mark.browser

READING = (Path(__file__).parent / "reading.js").read_text("utf-8")
WATCH_LINK = """
const link = document.getElementById("link");
window.states = [];
new MutationObserver(() => states.push(link.dataset.state)).observe(link, {attributes: true});
"""
ANSWERED = """
const [path, status, answer] = arguments;
const asked = window.fetch;
window.fetch = (url, ...rest) =>
  url === path ? Promise.resolve(new Response(JSON.stringify(answer), {status})) : asked(url, ...rest);
"""
"""makes the page find this answer at a path of the API"""
SEEN = """
Object.defineProperty(document, "hidden", {value: !arguments[0], configurable: true});
document.dispatchEvent(new Event("visibilitychange"));
"""
LATER = """
const [view] = arguments;
const asked = window.fetch;
window.fetch = (url, ...rest) => {
  window.again ||= url === "v1/timeline?after=0";
  const changes = url.startsWith("v1/timeline?after=") && !window.again;
  return changes ? Promise.resolve(new Response(JSON.stringify(view))) : asked(url, ...rest);
};
"""
"""makes the page find this view in place of what has changed"""
REFUSED_ON = """
const [begin] = arguments;
window.asked = window.fetch;
window.fetch = (url, ...rest) =>
  url.startsWith(begin) ? Promise.resolve(new Response("{}", {status: 422})) : asked(url, ...rest);
"""
TIMELINE = """
const [view] = arguments;
const asked = window.fetch;
window.fetch = (url, ...rest) =>
  url.startsWith("v1/timeline") ? Promise.resolve(new Response(JSON.stringify(view))) : asked(url, ...rest);
"""
"""makes the page find this view as the whole timeline"""
DRAWN = """
const [inside] = arguments;
const {fillText, clearRect, fillRect} = CanvasRenderingContext2D.prototype;
const again = (wiped) => function (...box) {
  if (this.canvas.closest(inside) && box[2] >= this.canvas.clientWidth && box[3] > 90) window.drawn = [];
  return wiped.apply(this, box);
};
Object.assign(CanvasRenderingContext2D.prototype, {
  clearRect: again(clearRect),
  fillRect: again(fillRect),
  fillText(text, ...place) {
    if (this.canvas.closest(inside)) window.drawn?.push(text);
    return fillText.call(this, text, ...place);
  },
});
"""
"""notes the texts on a canvas since it was wiped"""
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with stack(tmp_path_factory.mktemp("stack")) as running:
        running.submit_all()
        yield running


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def page(cluster: RunningStack, chrome: Chrome) -> Chrome:
    """The page with its token, live, in the usual size; and nothing to complain about yet."""
    open_with_token(chrome, cluster.url, cluster.token)
    return chrome


def open_page(driver: Chrome, url: str) -> None:
    """Anew, without what it has kept."""
    size(driver, 1280, 900)
    scheme(driver, "light")
    driver.get(url)
    js(driver, "sessionStorage.clear()")
    driver.get("about:blank")
    driver.get(url)


def open_with_token(driver: Chrome, url: str, token: str) -> None:
    open_page(driver, url)
    until(driver, lambda: driver.find_element(By.ID, "token").is_displayed(), "the form for the token")
    show_token(driver, token)
    until(driver, lambda: state(driver) == "live", "a live page")
    until(driver, lambda: driver.find_element(By.ID, "cluster").is_displayed(), "the cluster")
    complaints(driver)  # the browser's own line for the refusal that asked for the token


def show_token(driver: Chrome, token: str) -> None:
    field = driver.find_element(By.ID, "token")
    field.clear()
    field.send_keys(token, Keys.ENTER)


def said(driver: Chrome, selector: str, part: str) -> bool:
    return part in text(driver, selector)


def state(driver: Chrome) -> str:
    return text(driver, "#link")


def jobs_listed(driver: Chrome) -> str:
    return text(driver, "#jobs-table tbody")


def choose(driver: Chrome, which: str) -> None:
    """By key: what a pointer aims at may move while the page grows."""
    tab = driver.find_element(By.CSS_SELECTOR, f"[data-which={which}]")
    tab.send_keys(Keys.ENTER)
    assert tab.get_attribute("aria-pressed") == "true"


def drag(driver: Chrome, element: WebElement, right: int) -> None:
    """With the mouse, by so many pixels."""
    held = ActionChains(driver).move_to_element_with_offset(element, -right // 2, 0).click_and_hold()
    held.move_by_offset(right, 0).release().perform()


def swipe(driver: Chrome, element: WebElement, right: int) -> None:
    """With a finger, by so many pixels."""
    finger = PointerInput(interaction.POINTER_TOUCH, "finger")  # type: ignore[no-untyped-call]
    swiped = ActionChains(driver, devices=[finger]).move_to_element_with_offset(element, -right // 2, 0)
    swiped.click_and_hold().move_by_offset(right, 0).release().perform()


def go(driver: Chrome, place: str) -> None:
    js(driver, "location.hash = arguments[0]", place)


# ---- the token


def test_without_the_token_nothing_is_shown_and_a_wrong_one_is_refused(
    cluster: RunningStack, chrome: Chrome
) -> None:
    open_page(chrome, cluster.url)
    until(chrome, lambda: chrome.find_element(By.ID, "ask").is_displayed(), "the form")
    assert not chrome.find_element(By.ID, "cluster").is_displayed()
    for wrong, why in (("wrong", "not valid here"), (f"“{cluster.token}”", "no header can carry")):
        show_token(chrome, wrong)
        until(chrome, partial(said, chrome, "#ask-error", why), "the refusal")
        go(chrome, "#/jobs/any")
        go(chrome, "#/")
        assert not chrome.find_element(By.ID, "cluster").is_displayed()
    show_token(chrome, cluster.token)
    until(chrome, lambda: chrome.find_element(By.ID, "cluster").is_displayed(), "the cluster")
    chrome.refresh()
    until(chrome, lambda: state(chrome) == "live", "a token that outlives a new reading of the page")
    assert js(chrome, "return localStorage.length") == 0
    assert cluster.token not in js(chrome, "return document.cookie + location.href")


def test_after_too_many_wrong_tokens_the_page_still_asks_for_one(
    cluster: RunningStack, chrome: Chrome
) -> None:
    """The page showed no form, and its own readings with the wrong token kept the address refused."""
    for _ in range(FAILURES_MAX + 1):
        cluster.refused("v1/me", "wrong")
    open_page(chrome, cluster.url)
    until(chrome, lambda: chrome.find_element(By.ID, "ask").is_displayed(), "the form")
    show_token(chrome, "wrong")
    until(chrome, lambda: "wrong tokens came from this address" in text(chrome, "#ask-error"), "why")
    assert chrome.find_element(By.ID, "ask").is_displayed()
    show_token(chrome, cluster.token)
    until(chrome, lambda: state(chrome) == "live", "a live page")


# ---- what it shows


def test_the_page_follows_jobs_from_their_submission_to_their_end(
    cluster: RunningStack, page: Chrome
) -> None:
    with cluster.drained():
        began = time.monotonic()
        name = cluster.submit("seen", samples=1e9)
        until(page, lambda: name in jobs_listed(page), "the new job among those that wait")
        print(f"a submitted job was seen after {time.monotonic() - began:.2f} s")
    choose(page, "running")
    until(page, lambda: name in jobs_listed(page), "the job among those that run")
    on_gpus = "return document.getElementById('canvas').getAttribute('aria-label')"
    assert "on their GPUs" in js(page, on_gpus)
    cluster.call("DELETE", f"v1/jobs/{name}")
    choose(page, "ended")
    until(page, lambda: name in jobs_listed(page), "the job among those that have ended")
    assert "hops" in text(page, "#policy")
    assert "solved" in text(page, "#plans-table")
    assert all(service in text(page, "#services-table") for service in ("planner", "monitor"))
    assert complaints(page) == []


def test_a_jobs_page_shows_its_places_its_throughput_and_its_facts(
    cluster: RunningStack, page: Chrome
) -> None:
    name = cluster.submit("looked-at")
    go(page, f"#/jobs/{name}")
    until(page, lambda: text(page, "#job-title") == name, "the job's page")
    until(page, lambda: text(page, "#job .badge") == "completed", "its end")
    until(page, lambda: "job completed" in text(page, "#job [aria-label=Facts]"), "its last fact")
    places = text(page, "#job [aria-label=Places] tbody")
    assert "GPU" in places
    assert "%" in places, "predicted beside measured"
    assert page.find_elements(By.CSS_SELECTOR, "#job .uplot canvas")
    page.back()
    until(page, lambda: page.find_element(By.ID, "cluster").is_displayed(), "the cluster again")
    assert complaints(page) == []


def test_a_jobs_page_says_how_its_processes_are_started(cluster: RunningStack, page: Chrome) -> None:
    launch = {"command": f"python train.py '{HOSTILE}'", "environment": {"DATA": HOSTILE}, "memory": "8GiB"}
    job = {
        "name": "commanded",
        "workload": {"model": "resnet18", "dataset": "cifar10", "batch_size": 256},
        "gpus": [1, 2],
        "samples": 1e5,
        "time_limit": "2h",
        "preemptible": False,
    }
    name = str(cluster.call("POST", "v1/jobs", job | launch)["job_id"])
    go(page, f"#/jobs/{name}")
    until(page, lambda: "Command" in text(page, "#job dl"), "its command")
    about = text(page, "#job dl")
    assert f"python train.py '{HOSTILE}'" in about
    assert f"DATA={HOSTILE}" in about
    assert "8 GiB of memory" in about
    assert "of 2 h at most" in about
    assert js(page, "return document.querySelectorAll('main img, main script').length") == 0
    until(page, lambda: text(page, "#job .badge") == "completed", "its end")
    assert "–100," in text(page, "#job [aria-label=Places] tbody"), "from its first sample to its last"
    assert complaints(page) == []


def test_what_ended_unseen_and_is_no_longer_kept_is_not_shown_as_going_on(
    cluster: RunningStack, page: Chrome
) -> None:
    """As in a tab that was hidden for long: workers whose end the API had dropped held GPUs for ever."""
    later = cluster.call("GET", "v1/timeline") | {"complete_from": 1e9, "revision": 1_000_000, "holdings": []}
    js(page, LATER, later)
    until(page, lambda: js(page, "return window.again"), "all of the timeline, read anew")


def test_the_past_is_not_shown_as_now_and_there_is_nothing_to_see_far_ahead(
    cluster: RunningStack, page: Chrome
) -> None:
    view = cluster.call("GET", "v1/timeline")
    node = min(view["nodes"], key=lambda node: (node["gpu_type"], node["node_id"]))
    held = {
        "job_id": "past", "placement_id": "past", "node_id": node["node_id"], "end": "completed",
        "gpu_indices": list(range(node["gpus"])), "since": view["at"] - 7000, "until": view["at"] - 1000,
    }  # fmt: skip
    js(page, TIMELINE, view | {"revision": 0, "holdings": [held], "spells": [], "planned": []})
    until(page, lambda: text(page, "#use-text").startswith("0 of"), "a timeline on which nothing runs now")
    canvas = page.find_element(By.ID, "canvas")
    drag(page, canvas, 500)
    assert text(page, "#use-text").startswith("0 of")
    drag(page, canvas, -1000)
    first_row = 55 - canvas.size["height"] // 2
    columns = itertools.cycle((-100, -101))

    def pointed_at() -> str:
        """The pointer moves each time: once it stands still, what the page draws later changes no words."""
        ActionChains(page).move_to_element_with_offset(canvas, next(columns), first_row).perform()
        return text(page, "#readout")

    until(page, lambda: pointed_at().startswith("past"), "what ran, where it was")


def test_gpus_are_counted_in_whole_numbers(cluster: RunningStack, page: Chrome) -> None:
    """The chart of a cluster of four was marked at 0 and 2.5."""
    view = cluster.call("GET", "v1/timeline")
    node = view["nodes"][0] | {"gpus": 4}
    js(page, DRAWN, "#use")
    empty = {"nodes": [node], "revision": 0, "holdings": [], "spells": [], "planned": []}
    js(page, TIMELINE, view | empty)
    until(page, lambda: text(page, "#use-text").startswith("0 of 4"), "a cluster of four")
    until(page, lambda: {"0", "2", "4"} <= set(js(page, "return window.drawn ?? []")), "marks")
    assert "2.5" not in js(page, "return window.drawn")


@pytest.mark.parametrize("move", [drag, swipe])
def test_the_timeline_moves_by_mouse_and_by_finger(
    page: Chrome, move: Callable[[Chrome, WebElement, int], None]
) -> None:
    js(page, DRAWN, "#lanes")
    canvas = page.find_element(By.ID, "canvas")
    until(page, lambda: "now" in js(page, "return window.drawn ?? []"), "the line of now")
    move(page, canvas, 500)
    until(page, lambda: "now" not in js(page, "return window.drawn"), "what is past alone")
    move(page, canvas, -1000)
    until(page, lambda: "now" in js(page, "return window.drawn"), "the line of now again")


def test_what_is_not_the_whole_is_not_shown_as_100_per_cent(page: Chrome) -> None:
    text_js = "import(new URL('page/text.js', document.baseURI))"
    said = f"return {text_js}.then((text) => arguments[0].map(text.percent))"
    assert js(page, said, [0.99996, 1.0, 1.0 - 1e-12]) == ["99.9 %", "100 %", "100 %"]


def test_on_a_phone_names_are_cut_but_not_the_signs_before_them(cluster: RunningStack, page: Chrome) -> None:
    js(page, DRAWN, "#lanes")
    size(page, 360, 800)
    nodes = len(cluster.call("GET", "v1/nodes")["nodes"])

    def signed() -> list[str]:
        return [each for each in js(page, "return window.drawn ?? []") if each.startswith("◌ ")]

    with cluster.drained():
        until(page, lambda: len(signed()) == nodes, "a sign before every name")
        assert any(each.startswith("◌ …") for each in signed())


def test_no_two_marks_of_a_charts_time_axis_read_the_same(cluster: RunningStack, page: Chrome) -> None:
    """The chart of a job that ran for half a minute said 9:16 four times."""
    name = cluster.submit("short")
    js(page, DRAWN, "#job")
    go(page, f"#/jobs/{name}")
    until(page, lambda: text(page, "#job .badge") == "completed", "its end")
    marks = until(
        page, lambda: [each for each in js(page, "return window.drawn ?? []") if ":" in each], "marks"
    )
    assert len(marks) == len(set(marks)), marks


def test_of_a_jobs_page_that_was_left_nothing_is_kept(cluster: RunningStack, page: Chrome) -> None:
    """Each one that was opened was kept by the listener of its chart, until the tab was closed."""
    names = [cluster.submit("kept"), cluster.submit("left")]

    def visit(times: int) -> None:
        for name in names * times:
            go(page, f"#/jobs/{name}")
            until(page, partial(said, page, "#job-title", name), "the job's page")
            until(page, partial(said, page, "#job .badge", "completed"), "its end")
            # an element that was found would be kept by the driver
            until(page, lambda: js(page, "return !!document.querySelector('#job .uplot')"), "its chart")

    def listeners() -> int:
        page.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        return int(page.execute_cdp_cmd("Memory.getDOMCounters", {})["jsEventListeners"])

    visit(1)
    first = listeners()
    visit(5)
    until(page, lambda: listeners() <= first, "no more listeners")  # tables come and go meanwhile


def test_a_plan_says_what_it_placed_and_left_out(page: Chrome) -> None:
    until(page, lambda: page.find_elements(By.CSS_SELECTOR, "#plans-table button"), "a plan")
    js(page, "document.querySelector('#plans-table button').click()")
    until(page, lambda: "Left out" in text(page, "#plan"), "what it decided")
    assert "Placed" in text(page, "#plan")


def test_hostile_text_stays_text(cluster: RunningStack, page: Chrome) -> None:
    with cluster.drained():
        name = cluster.submit("hostile", user=HOSTILE, optimizer=HOSTILE)
        until(page, lambda: name in jobs_listed(page), "the job")
    go(page, f"#/jobs/{name}")
    until(page, lambda: HOSTILE in text(page, "#job dl"), "its user")
    go(page, "#/jobs/" + js(page, "return encodeURIComponent(arguments[0])", HOSTILE))
    until(page, lambda: text(page, "#job-title") == HOSTILE, "a page about a hostile id")
    assert "owned" not in page.title
    assert js(page, "return document.querySelectorAll('main img, main script').length") == 0
    own = js(page, "return performance.getEntriesByType('resource').map((each) => new URL(each.name).origin)")
    assert set(own) == {cluster.url.rstrip("/")}


def test_every_instance_of_a_service_has_a_row(cluster: RunningStack, page: Chrome) -> None:
    status = cluster.call("GET", "v1/status")
    (planner,) = [each for each in status["services"] if each["name"] == "planner"]
    second = planner | {"instance": 2, "state": "gone"}
    js(page, ANSWERED, "v1/status", 200, status | {"services": [second, planner]})
    until(page, lambda: "planner-2" in text(page, "#services-table"), "the second instance")
    assert text(page, "#services-table tbody tr:nth-child(1)").startswith("planner-2gone")
    assert text(page, "#services-table tbody tr:nth-child(2)").startswith("plannerup")


def test_of_a_job_that_is_no_longer_kept_the_page_shows_the_reason_and_the_facts(
    cluster: RunningStack, page: Chrome
) -> None:
    name = cluster.submit("forgotten")
    problem = msgspec.to_builtins(problems.forgotten(JobId(name), JobState.COMPLETED))
    js(page, ANSWERED, f"v1/jobs/{name}", 410, problem)
    go(page, f"#/jobs/{name}")
    until(page, lambda: "no longer keeps it" in text(page, "#job .lead"), "the reason")
    assert not page.find_element(By.CSS_SELECTOR, "#job progress").is_displayed(), "it says nothing of it"
    assert not page.find_element(By.CSS_SELECTOR, "#job .badge").is_displayed()
    until(page, lambda: "job completed" in text(page, "#job [aria-label=Facts]"), "its facts")
    assert not page.find_element(By.ID, "problem").is_displayed()


def test_a_jobs_facts_are_read_once_the_api_is_there_again(cluster: RunningStack, page: Chrome) -> None:
    name = cluster.submit("unread")
    path = f"v1/events?job={name}&newest=100"
    js(page, ANSWERED + "setTimeout(() => (window.fetch = asked), 3000);", path, 503, {"detail": "starting"})
    go(page, f"#/jobs/{name}")
    until(page, lambda: "does not answer (starting)" in text(page, "#problem"), "the complaint")
    until(page, lambda: "job submitted" in text(page, "#job [aria-label=Facts]"), "its facts")


# ---- the link


def test_the_page_connects_again_by_itself_after_admission_was_killed(
    cluster: RunningStack, page: Chrome
) -> None:
    js(page, WATCH_LINK)
    cluster.kill("admission")
    until(page, lambda: "wait" in js(page, "return window.states"), "the page sees that the link is gone")
    until(page, lambda: state(page) == "live", "the link again")
    with cluster.drained():
        name = cluster.submit("after")
        until(page, lambda: name in jobs_listed(page), "a job after")


def test_a_tab_that_nobody_sees_leaves_the_connections_to_others(cluster: RunningStack, page: Chrome) -> None:
    """Six tabs had all that a browser makes to one server: none of them could read anything."""
    name = cluster.submit("looked-at", samples=1e9)
    go(page, f"#/jobs/{name}")
    until(page, lambda: "job submitted" in text(page, "#job [aria-label=Facts]"), "its facts")
    js(page, SEEN, False)
    until(page, lambda: state(page) == "connecting again", "no link")
    cluster.call("DELETE", f"v1/jobs/{name}")
    js(page, SEEN, True)
    until(page, lambda: state(page) == "live", "the link again")
    until(page, lambda: "job cancelled" in text(page, "#job [aria-label=Facts]"), "what came meanwhile")


def test_the_page_begins_again_with_another_log(cluster: RunningStack, page: Chrome) -> None:
    """As after the restore of an older backup: what it had read is not of the log that there is now."""
    js(page, REFUSED_ON, "v1/events?follow=true&after=")
    js(page, WATCH_LINK)
    with cluster.drained():
        name = cluster.submit("seen")
        until(page, lambda: name in jobs_listed(page), "the job, and so its first fact")
    cluster.kill("admission")
    until(page, lambda: "wait" in js(page, "return window.states"), "the page sees that the link is gone")
    until(page, lambda: state(page) == "live", "the link again")


def test_the_page_works_behind_a_proxy_with_a_prefix(cluster: RunningStack, chrome: Chrome) -> None:
    with proxy(cluster.port, "/gpus/here/") as url:
        open_with_token(chrome, url, cluster.token)
        with cluster.drained():
            name = cluster.submit("proxied")
            until(chrome, lambda: name in jobs_listed(chrome), "a job through the proxy")
        assert complaints(chrome) == []
        chrome.get("about:blank")


# ---- who reads it


def test_everything_is_reached_by_keys(page: Chrome) -> None:
    page.refresh()  # so that keys begin at the top
    until(page, lambda: page.find_elements(By.CSS_SELECTOR, "#plans-table button"), "plans")
    reached: list[str] = []
    for _ in range(60):
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.append(js(page, "return document.activeElement.id || document.activeElement.textContent"))
    wanted = ["Skip to the content", "Timeline", "range", "nearer", "now", "lanes", "Running", "find-id"]
    assert [
        each for each in dict.fromkeys(reached) if each in wanted
    ] == wanted  # after the last comes the first


def test_the_timeline_is_walked_and_opened_by_keys(page: Chrome) -> None:
    lanes = page.find_element(By.ID, "lanes")
    for _ in range(3):
        lanes.send_keys(Keys.ARROW_DOWN)
    lanes.send_keys("+", "+", "-", Keys.END, Keys.ARROW_LEFT, Keys.ARROW_RIGHT)
    until(page, lambda: " of " in text(page, "#readout"), "what is chosen, in words")
    assert page.find_element(By.ID, "readout").get_attribute("aria-live") == "polite"
    name = text(page, "#readout a")
    lanes.send_keys(Keys.ENTER)
    until(page, lambda: text(page, "#job-title") == name, "the job's page")


@pytest.mark.parametrize("width", [1280, 768, 420, 320])
@pytest.mark.parametrize("preferred", ["light", "dark"])
def test_the_page_can_be_read_in_every_size_and_colour_scheme(
    page: Chrome, width: int, preferred: str
) -> None:
    size(page, width, 900)
    scheme(page, preferred)
    js(page, "document.getElementById('nodes-fold').open = true")
    until(page, lambda: text(page, "#nodes tbody"), "the table of nodes")
    choose(page, "ended")
    until(page, lambda: jobs_listed(page), "jobs")
    assert js(page, READING) == []
    go(page, "#/jobs/" + text(page, "#jobs-table tbody a"))
    until(page, lambda: text(page, "#job [aria-label=Facts] tbody"), "a job's facts")
    assert js(page, READING) == []
