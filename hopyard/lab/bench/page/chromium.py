"""A headless Chromium that a program drives: Debian's `chromium` and `chromium-driver`, found on the path."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from hopyard.failures import Failure, NotInstalled

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
    "--lang=en",
)
PROGRAMS = ("chromium", "chromedriver")
PATIENCE_S = 60.0

T = TypeVar("T")


@contextmanager
def browser(profile: Path, width: int = 1280, height: int = 900) -> Iterator[Chrome]:
    """`profile`: a new, empty folder."""
    options = ChromeOptions()
    program, driven_by = map(found, PROGRAMS)
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        driver = Chrome(options, Service(driven_by))
    except WebDriverException as error:
        raise Failure(f"no browser: {str(error.msg).splitlines()[0]}") from None
    try:
        size(driver, width, height)
        yield driver
    finally:
        driver.quit()


def found(program: str) -> str:
    """Raises NotInstalled."""
    path = shutil.which(program)
    if path is None:
        raise NotInstalled(f"{program} is not on the path: apt-get install chromium chromium-driver")
    return path


def size(driver: Chrome, width: int, height: int) -> None:
    """Set the size of the visible page, without the window's frame."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def scheme(driver: Chrome, name: str) -> None:
    """Set the preferred colour scheme: light or dark."""
    features = [{"name": "prefers-color-scheme", "value": name}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def until(driver: Chrome, fine: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """Wait until the script `fine` returns something true. Raises Failure."""
    try:
        return WebDriverWait(driver, patience_s, 0.05).until(lambda _: fine())
    except TimeoutException:
        raise Failure(f"not in the page after {patience_s:g} s: {what}") from None


def text(driver: Chrome, selector: str) -> str:
    """The text of the first matching element, as in the document; empty without one."""
    return str(js(driver, "return document.querySelector(arguments[0])?.textContent ?? ''", selector))


def js(driver: Chrome, script: str, *values: object) -> Any:  # noqa: ANN401 - whatever the script returns
    return driver.execute_script(script, *values)


def complaints(driver: Chrome) -> list[str]:
    """Errors and warnings in the console since the last call."""
    log: list[dict[str, str]] = driver.execute("getLog", {"type": "browser"})["value"]
    return [each["message"] for each in log if each["level"] in ("SEVERE", "WARNING")]
