"""The pictures of docs/ui.md: `python -m tests.interop.web.pictures [docs/images]` makes them from the tests' folder."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.interop.web.browser import Visitor, chromium, running_ui
from tests.interop.web.written import HOUR_MS, T, write_folder

RANGE = f"start={T + 9 * HOUR_MS}&end={T + 10 * HOUR_MS}"
DESK, PHONE = (1120, 840), (360, 700)

PICTURES = {
    "ui-records": (f"topic?topic=orders&{RANGE}", "light", DESK),
    "ui-dark": (f"topic?topic=orders&{RANGE}&record=1:193", "dark", DESK),
    "ui-find": (f"topic?topic=orders&part=lookup&at={T + 14 * HOUR_MS}", "light", (1120, 1250)),
    "ui-cut": (f"topic?topic=orders&part=cut&{RANGE}", "light", (1120, 780)),
    "ui-phone": (f"topic?topic=orders&{RANGE}", "light", PHONE),
}
"""By name: the view, the colour scheme, the window's size."""


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        write_folder(Path(place) / "shop")
        with running_ui("shop", cwd=Path(place)) as address, chromium() as browser:
            for name, (view, scheme, (width, height)) in PICTURES.items():
                visitor = Visitor(browser, address, color_scheme=scheme, viewport={"width": width, "height": height})
                visitor.open(view)
                with Image.open(io.BytesIO(visitor.page.screenshot())) as picture:
                    picture.save(folder / f"{name}.webp", quality=82, method=6)
                visitor.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
