"""The settings of ``make slides``: a slide for each heading and each figure, without code."""

import re
from typing import Any

from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode


class Slides(Preprocessor):
    """Says of each cell whether a slide begins with it."""

    def preprocess_cell(self, cell: NotebookNode, resources: Any, index: int) -> tuple[NotebookNode, Any]:
        shows_picture = any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
        begins = shows_picture or re.match("#{1,3} ", cell.source)
        cell.metadata["slideshow"] = {"slide_type": "slide" if begins else "-"}
        return cell, resources


c = get_config()  # type: ignore[name-defined] # noqa: F821 (nbconvert defines it)
c.SlidesExporter.preprocessors = [Slides]
c.SlidesExporter.exclude_input = True
c.SlidesExporter.reveal_scroll = True
