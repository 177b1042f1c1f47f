# Tangled from book/workshop/site-tests.md
"""What the weaver costs beside plain Material, what the page of L5.3 weighs, and how long its layout takes."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGES = 200
ROUNDS = 3
PAGE = "2-transformer/L5.3-multi-head-attention.html"


WOVEN = """
import sys
from mkdocs.commands.build import build
from mkdocs.config import load_config
config = load_config(sys.argv[1], docs_dir=sys.argv[2], site_dir=sys.argv[3], strict=False)
config.plugins.on_startup(command="build", dirty=False)
build(config)
config.plugins.on_shutdown()
"""
PLAIN = """
site_name: plain
use_directory_urls: false
theme: {name: material, font: false}
plugins: [search]
markdown_extensions:
  - attr_list
  - def_list
  - footnotes
  - md_in_html
  - admonition
  - pymdownx.details
  - pymdownx.highlight: {guess_lang: false}
  - pymdownx.superfences
  - sane_lists
  - tables
  - toc: {permalink: "#", toc_depth: 3}
"""


def build(arguments, folder):
    """Processor seconds of one build."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *map(str, arguments)]
    with open(os.devnull, "w") as nowhere:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=nowhere, stderr=nowhere
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command}: ended with status {status}")
    return usage.ru_utime + usage.ru_stime


def compare(scratch):
    """Builds the generated book both ways, in turns."""
    book, plain = scratch / "book", scratch / "plain.yml"
    subprocess.run([sys.executable, HERE / "generate_book.py", book, str(PAGES)], check=True)
    (book / "assets").mkdir()
    for style in (ROOT / "book/assets").glob("*.css"):
        shutil.copy(style, book / "assets")
    (book / "index.md").write_text("# Book\n", encoding="utf-8")
    plain.write_text(PLAIN, encoding="utf-8")
    rivals = {
        "plain Material": ["-c", WOVEN, plain, book, scratch / "out"],
        "woven": ["-c", WOVEN, ROOT / "mkdocs.yml", book, scratch / "out"],
    }
    runs = {name: [] for name in rivals}
    for _ in range(ROUNDS):
        for name, arguments in rivals.items():
            runs[name].append(build(arguments, scratch))
    least = min(runs["plain Material"])
    print(f"\n{PAGES} chapters of 30 blocks, least of {ROUNDS} builds each")
    print(f"{'':<18}{'CPU s':>8}{'ratio':>8}")
    for name, seconds in runs.items():
        print(f"{name:<18}{min(seconds):>8.1f}{min(seconds) / least:>8.2f}")


def weigh(site):
    """Prints the size of pages, and of all that they load but fonts."""
    print(f"\n{'page':<52}{'kB':>8}")
    for path in (PAGE, "2-transformer/L5.3-lab.html", "index.html"):
        print(f"{path:<52}{(site / path).stat().st_size / 1000:>8.1f}")
    for kind in ("css", "js", "woff2"):
        size = sum(path.stat().st_size for path in (site / "assets").rglob(f"*.{kind}"))
        print(f"{f'all .{kind} of the site':<52}{size / 1000:>8.1f}")


def lay_out(site):
    """Prints how long Chromium takes for the page of L5.3, from a disk, with an empty cache."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ModuleNotFoundError:
        print("\nlayout was not measured: selenium is missing (pip install selenium)")
        return
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        print("\nlayout was not measured: chromium or chromedriver is missing")
        return
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    runs = []
    with webdriver.Chrome(options=options, service=Service(chromedriver)) as driver:
        driver.execute_cdp_cmd("Performance.enable", {})
        for _ in range(7):
            driver.get("about:blank")
            driver.execute_cdp_cmd("Network.clearBrowserCache", {})
            driver.get((site / PAGE).as_uri())
            measured = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            metrics = {metric["name"]: metric["value"] for metric in measured}
            loaded = driver.execute_script(
                "return performance.getEntriesByType('navigation')[0].loadEventEnd"
            )
            layout = 1000 * (metrics["LayoutDuration"] + metrics["RecalcStyleDuration"])
            runs.append((loaded, layout))
    print(f"\n{'L5.3 in Chromium, median of 7':<52}{'ms':>8}")
    print(f"{'until the page is loaded':<52}{median(one for one, _ in runs):>8.0f}")
    print(f"{'of it style and layout':<52}{median(two for _, two in runs):>8.0f}")


def main():
    print(f"the site, {platform.system()} {platform.machine()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as scratch:
        compare(Path(scratch))
        site = Path(scratch, "site")
        build(["-c", WOVEN, ROOT / "mkdocs.yml", ROOT / "book", site], ROOT)
        weigh(site)
        lay_out(site)


if __name__ == "__main__":
    main()
