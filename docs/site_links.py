"""What makes a site of these pages: the files beside `docs` become pages, and links to sources become their names.

In a clone every link leads to a file. On the site there are pages alone: a link to another file keeps its text and loses its
target. A link to a file that does not exist stays, for MkDocs to warn of.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
BESIDE = {"README.md": "overview.md"} | {
    f"{name}.md": f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "SECURITY", "CHANGELOG")
}
"""Files of the project's root → pages."""

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave out of the navigation what the root does not have."""
    assert config.nav is not None
    missing = {page for name, page in BESIDE.items() if not (ROOT / name).is_file()}
    for section in config.nav:
        for title, pages in section.items():
            if isinstance(pages, list):
                section[title] = [page for page in pages if page not in missing]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the project's root."""
    for name, page in BESIDE.items():
        if (ROOT / name).is_file():
            files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to pages, or nowhere."""
    here = PurePosixPath(page.file.src_uri)
    is_beside = page.file.src_uri in BESIDE.values()

    def linked(found: re.Match[str]) -> str:
        image, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        if "://" in target or target.startswith("mailto:") or not target:
            return found[0]
        path = _normal(PurePosixPath(target) if is_beside else PurePosixPath("docs") / here.parent / target)
        inside = str(path.relative_to("docs")) if path.is_relative_to("docs") else BESIDE.get(str(path))
        if inside is not None and (ROOT / path).is_dir():
            inside += "/README.md"
        if inside is None or files.get_file_from_path(inside) is None:
            return text if (ROOT / path).exists() else found[0]
        ups = "../" * (len(here.parts) - 1)
        return f"{image}[{text}]({ups}{inside}{anchor})"

    blocks = re.split(r"(^ *```.*?^ *```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(block if number % 2 else LINK.sub(linked, block) for number, block in enumerate(blocks))


def _normal(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return PurePosixPath(*parts)
