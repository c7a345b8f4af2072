"""How a page is put together, shown by a notebook and saved."""

from vit_tutorial.pages.page import (
    Page,
    assemble,
    base64_of,
    colour_map,
    figure,
    script,
)

__all__ = [
    "Page",
    "assemble",
    "base64_of",
    "colour_map",
    "figure",
    "script",
]
