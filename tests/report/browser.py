"""A real browser for pages: Debian's Chromium without a screen, driven by selenium."""

import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator


def missing() -> str:
  """Why there is no browser here; empty if there is one."""
  if not (shutil.which("chromium") and shutil.which("chromedriver")):
    return "chromium or chromedriver is not installed: apt-get install chromium chromium-driver"
  if not importlib.util.find_spec("selenium"):
    return "selenium is not installed: pip install -e '.[test]'"
  return ""


@contextlib.contextmanager
def opened() -> Iterator:
  """A driver with logs of the console and of the network, and a profile of its own."""
  from selenium import webdriver

  options = webdriver.ChromeOptions()
  options.binary_location = shutil.which("chromium")
  options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
  with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
    for option in ("headless", "no-sandbox", "disable-gpu", "no-first-run",
                   "disable-background-networking", "disable-component-update", "disable-sync",
                   "disable-dev-shm-usage", "window-size=1100,1000", f"user-data-dir={profile}"):
      options.add_argument(f"--{option}")
    driver = webdriver.Chrome(options, webdriver.ChromeService(
        shutil.which("chromedriver"), env=os.environ | {"HOME": profile}))
    try:
      driver.set_page_load_timeout(60)
      yield driver
    finally:
      driver.quit()
