"""The model itself in a page: draw, watch each step, and change the model (``vit-tutorial live``).

``vit-tutorial live --weights digits --out live.html``

The weights are in the page, and the forward pass is plain JavaScript whose functions have the package's names. So
nothing is asked of a network, a server or a kernel: a notebook, an exported page and a USB stick will all do.
"""

from vit_tutorial.live.command import shipped
from vit_tutorial.live.matches import matches_page
from vit_tutorial.live.page import MOST, Live, page

__all__ = ["MOST", "Live", "matches_page", "page", "shipped"]
