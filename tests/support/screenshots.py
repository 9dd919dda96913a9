"""Take the pictures of README.md and OPERATORS.md: `python -m tests.support.screenshots --page http://127.0.0.1:9470`.

Needs a page that runs, Playwright (`make test` installs it) and a Chromium of this machine. A picture whose subject is not on
the page, such as a runbook while no alert fires, is left out and said to be.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["BROWSERS", "FLAGS", "PICTURES", "Picture", "take_pictures"]

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "pictures"
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS: Final = 15_000
SETTLE_MS: Final = 1500
"""Plots are drawn a moment after the figures."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: what is clicked after the page has come, and what must then be on it."""

    name: str
    clicks: tuple[str, ...] = ()
    awaits: str = "#latency canvas"
    width: int = 1320
    height: int = 820
    scheme: str = "light"


PICTURES: Final = (
    Picture("overview"),
    Picture("overview-dark", scheme="dark"),
    Picture("alert", ('.alert[data-state="firing"] .button',), "#panel .prose h3"),
    Picture("device", ("[data-list=talkers] tbody a",), "#device canvas"),
    Picture("topic", ("#kafka .content > div tbody a", "[data-record]"), "#panel .payload"),
    Picture("dead-letter", ("#letters [data-letter]",), "#panel .payload"),
    Picture("phone", width=360, height=740, scheme="dark"),
)


def take_pictures(page: str, folder: Path, pictures: Sequence[Picture] = PICTURES) -> list[str]:
    """Write one PNG each; the names of those whose subject was not there.

    Raises:
        FileNotFoundError: no Chromium or no Playwright on this machine.
    """
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        message = "No Chromium on this machine: `apt-get install chromium`, then run this again."
        raise FileNotFoundError(message)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        message = "Playwright is not installed: `python -m deploy.local.environment --readers`, then run this again."
        raise FileNotFoundError(message) from None
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(FLAGS))
        return [picture.name for picture in pictures if not _take(browser, page, picture, folder)]


def _take(browser: "Browser", page: str, picture: Picture, folder: Path) -> bool:
    from playwright.sync_api import TimeoutError as Late

    scheme: Any = picture.scheme
    context = browser.new_context(viewport={"width": picture.width, "height": picture.height}, color_scheme=scheme)
    try:
        tab = context.new_page()
        tab.goto(page)
        tab.wait_for_selector('html[data-live="live"]', state="attached", timeout=PATIENCE_MS)
        tab.wait_for_timeout(SETTLE_MS)
        for selector in picture.clicks:
            tab.locator(selector).first.click(timeout=PATIENCE_MS)
        tab.wait_for_selector(picture.awaits, timeout=PATIENCE_MS)
        tab.wait_for_timeout(SETTLE_MS)
        tab.screenshot(path=folder / f"{picture.name}.png")
    except Late:
        return False
    finally:
        context.close()
    return True


def main(
    page: Annotated[str, typer.Option(help="Address of the page; a token is not needed.")] = "http://127.0.0.1:9470",
    to: Annotated[Path, typer.Option(help="Folder for the PNG files.")] = FOLDER,
    only: Annotated[list[str] | None, typer.Option(help="Only the picture of this name; may be given again.")] = None,
) -> None:
    """Take the pictures of a page that runs."""
    wanted = [picture for picture in PICTURES if only is None or picture.name in only]
    try:
        missing = take_pictures(page, to, wanted)
    except FileNotFoundError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(69) from None
    for picture in wanted:
        typer.echo(
            f"{picture.name}: not on the page at present"
            if picture.name in missing
            else str(to / f"{picture.name}.png")
        )


if __name__ == "__main__":
    typer.run(main)
