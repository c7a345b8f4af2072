"""How a page is put together, shown by a notebook and saved."""

from vit_tutorial.pages.page import (
    POLICY,
    Page,
    assemble,
    base64_of,
    colour_map,
    figure,
    script,
    special_tokens,
)

__all__ = [
    "POLICY",
    "Page",
    "assemble",
    "base64_of",
    "colour_map",
    "figure",
    "script",
    "special_tokens",
]
