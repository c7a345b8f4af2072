"""Lesson 08: the attention explorer, an interactive picture of where each token looks, as one piece of HTML.

``python -m vit_tutorial.explorer PHOTO... --weights torchvision/vit_b_16 --out explorer.html``

The HTML needs no kernel, no network and no extension, so it works in a notebook, in one that is opened again, in an
exported page. It is part of the page itself, not in a frame: a shadow root keeps the styles apart, and the script is
one function without global names. So it sees the page's theme, takes the height it needs, and keeps its state when a
notebook scrolls it out of sight. A notebook that isn't trusted shows the pictures and the answers alone. Any browser
of 2024 or later will do.
"""

from vit_tutorial.explorer.command import main, parser
from vit_tutorial.explorer.page import TOP, Explorer, explore, quantise

__all__ = ["TOP", "Explorer", "explore", "main", "parser", "quantise"]
