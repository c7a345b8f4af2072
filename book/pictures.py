"""The alternative text of the notebooks' figures, carried over into the book's pages."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx


def add_alternative_text(app: Sphinx, doctree: nodes.document) -> None:
    """Give each figure the text that its output carries (MyST-NB names a picture by its bytes, and drops the text)."""
    page = Path(app.env.doc2path(app.env.docname))
    if page.suffix != ".ipynb":
        return
    texts = {}
    for cell in json.loads(page.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            if png := output.get("data", {}).get("image/png"):
                name = hashlib.sha256(base64.b64decode("".join(png))).hexdigest()
                texts[name] = output["metadata"].get("image/png", {}).get("alt", "")
    for image in doctree.findall(nodes.image):
        image.setdefault("alt", texts.get(Path(image["uri"]).stem, ""))
