"""A page of real photographs: point at a patch, and the patches that are like it light up in all of them.

Used by the book (book/build.py), which has it as a page of its own.
"""

from __future__ import annotations

from vit_tutorial.data import real_features
from vit_tutorial.live.html import own_page
from vit_tutorial.plots.interactive import matches_html

TITLE = "Patches and their kin"
TEXT = """
<style>body { font: 16px/1.5 system-ui, sans-serif; max-width: 1560px; margin-inline: auto; padding: 0 12px; }</style>
<h2>Patches and their kin</h2>
<p>A trained ViT, a small DINOv2, cut each photograph into 37 × 37 patches and made a token of each. Point at one, or
tap it: the brighter another patch, the more its token is like this one (squared cosine; black: 0 or below). Nobody told
the model what a face is. Guess first, then point:</p>
<ul>
<li>the astronaut’s face: what of the other three is like it?</li>
<li>an eye of the cat: does the raccoon’s eye light up, or the cat’s other eye alone?</li>
<li>the flag behind the astronaut: is there another one?</li>
<li>a patch of plain background: does its colour matter, or what it belongs to?</li>
</ul>
"""
END = """
<p>Lesson 16 measures such matches, against raw pixels and a model that wasn’t trained. Photographs: NASA (Eileen
Collins), US Navy (Grace Hopper) and pixnio (the raccoon), in the public domain; Stéfan van der Walt (the cat, CC0).</p>
"""


def matches_page() -> str:
    """The page's HTML; it loads nothing, as the photographs and their tokens are in it."""
    photographs = [real_features(name) for name in ("astronaut", "hopper", "cat", "raccoon")]
    alt = (
        "Photographs of an astronaut, of Grace Hopper, of a cat and of a raccoon; patches like the framed one are lit."
    )
    images, tokens = [one.image for one in photographs], [one.tokens for one in photographs]
    face = 9 * 37 + 16  # of the astronaut
    return own_page(TITLE, TEXT + matches_html(images, tokens, alt, start=(0, face)) + END)
