# Tangled from book/workshop/site-tests.md
"""Makes the pictures of README from the built site: python -m weave.serve.screenshot [SITE]."""

from __future__ import annotations

import base64
import shutil
import sys
from pathlib import Path
from typing import Any

PAGE = "2-transformer/L5.3-multi-head-attention.html"
SHOWN = "fig-head-layout"  # stands in the middle
WIDTH, HEIGHT = 1280, 800


def main(site: str = "site") -> None:
    """A picture for each scheme, in the folder above this one."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    service = Service(shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as driver:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for scheme in ("light", "dark"):
            picture = shot(driver, Path(site, PAGE).resolve().as_uri(), scheme)
            path = Path(__file__).parents[1] / f"screenshot-{scheme}.webp"
            path.write_bytes(picture)
            print(f"{path}: {len(picture) / 1000:.0f} kB")


def shot(driver: Any, address: str, scheme: str) -> bytes:
    """What the window shows of the page, in WebP, which takes a third of PNG's bytes."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.get("about:blank")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    driver.get(address)
    driver.execute_async_script(
        f"""
        const [shown, done] = [document.getElementById({SHOWN!r}), arguments[0]];
        localStorage.clear();
        shown.scrollIntoView({{block: "center", behavior: "instant"}});
        setTimeout(done, 1000);  // the header fades from one title to the other
        """
    )
    options = {"format": "webp", "quality": 80}
    return base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"])


if __name__ == "__main__":
    main(*sys.argv[1:])
