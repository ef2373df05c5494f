"""A real Chromium without a window, driven by selenium, its network switched off: Debian's packages.

Where they are missing they are installed, if this process may do that (root, apt-get); else tests that need them are
skipped with the reason.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("chromium", "chromium-driver")


def installed() -> str:
    """ "" if Chromium and its driver are there, now at the latest; else why not."""
    with (Path(tempfile.gettempdir()) / "analyzer-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes side by side install it once
        if shutil.which("chromium") and shutil.which("chromedriver"):
            return ""
        if not shutil.which("apt-get") or os.geteuid():
            return f"no Chromium here: apt-get install {' '.join(PACKAGES)}"
        for command in (["update"], ["install", "--yes", "--no-install-recommends", *PACKAGES]):
            ran = subprocess.run(
                ["apt-get", "-qq", *command],
                capture_output=True, text=True, timeout=420, check=False,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            )  # fmt: skip
            if ran.returncode:
                return f"Chromium cannot be installed: {(ran.stderr.strip() or 'apt-get failed').splitlines()[-1]}"
    return ""


@contextmanager
def chromium() -> Iterator[Any]:
    """The driver. Skips the test where there is no Chromium."""
    selenium = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    if why := installed():
        pytest.skip(why)
    options = selenium.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,1000"):
        options.add_argument(argument)
    driver = selenium.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.execute_cdp_cmd("Network.enable", {})
        driver.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
        )
        driver.set_page_load_timeout(60)
        yield driver
    finally:
        driver.quit()


def until(driver: Any, script: str, *arguments: Any) -> Any:
    """The script's value once it is true. Raises AssertionError after ten seconds."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if found := driver.execute_script(script, *arguments):
            return found
        time.sleep(0.02)
    raise AssertionError(f"never true: {script}")
