"""A headless Chromium that a test drives: Debian's `chromium` and `chromium-driver`, found on the path."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

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
PATIENCE_S = 60.0

T = TypeVar("T")


@contextmanager
def browser(profile: Path, width: int = 1280, height: int = 900) -> Iterator[Chrome]:
    """`profile`: a new, empty folder."""
    options = ChromeOptions()
    options.binary_location = found("chromium")
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options, Service(found("chromedriver")))
    try:
        size(driver, width, height)
        yield driver
    finally:
        driver.quit()


def found(program: str) -> str:
    path = shutil.which(program)
    assert path is not None, f"{program} is not installed: apt-get install chromium chromium-driver"
    return path


def size(driver: Chrome, width: int, height: int) -> None:
    """The size of what is shown, whatever a window adds to it."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def scheme(driver: Chrome, name: str) -> None:
    """What the reader prefers: light or dark."""
    features = [{"name": "prefers-color-scheme", "value": name}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def until(driver: Chrome, fine: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """Wait until `fine` says something true."""
    return WebDriverWait(driver, patience_s, 0.05).until(lambda _: fine(), f"not in time: {what}")


def text(driver: Chrome, selector: str) -> str:
    """Of the first element, as it is in the document; empty without one."""
    return str(js(driver, "return document.querySelector(arguments[0])?.textContent ?? ''", selector))


def js(driver: Chrome, script: str, *values: object) -> Any:  # noqa: ANN401 - whatever the script returns
    return driver.execute_script(script, *values)


def complaints(driver: Chrome) -> list[str]:
    """What the console has of errors and warnings since it was asked last."""
    log: list[dict[str, str]] = driver.execute("getLog", {"type": "browser"})["value"]
    return [each["message"] for each in log if each["level"] in ("SEVERE", "WARNING")]
