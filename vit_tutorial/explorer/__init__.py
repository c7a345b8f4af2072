"""Lesson 08: the attention explorer, an interactive picture of where each token looks, as one piece of HTML.

``python -m vit_tutorial.explorer PHOTO... --weights torchvision/vit_b_16 --out explorer.html``

The HTML needs no kernel, no network and no extension, so it works in a notebook, in one that is opened again, in an
exported page. It stands in the page itself, not in a frame: a shadow root keeps the styles apart, the script is one
function without global names, and so it sees the page's theme, takes the height it needs, and keeps its state when a
notebook scrolls it out of sight. A notebook that isn't trusted shows the pictures and the answers alone. Any browser
of 2024 or later will do.
"""

from vit_tutorial.explorer.command import main, parser
from vit_tutorial.explorer.page import POLICY, SPECIAL, TOP, Explorer, explore, quantise

__all__ = ["POLICY", "SPECIAL", "TOP", "Explorer", "explore", "main", "parser", "quantise"]
