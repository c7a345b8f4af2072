"""Sphinx's settings for the book; ``build.py`` starts it."""

import os
import sys
from pathlib import Path

from sphinx.application import Sphinx

import vit_tutorial

sys.path.append(str(Path(__file__).parent))
import docstrings
import pictures

project = "The Vision Transformer, from pixels to published weights"
html_title = "vit_tutorial"
copyright = "the authors of vit_tutorial; code under MIT, prose and figures under CC BY 4.0"
release = vit_tutorial.__version__
language = "en"  # British in the prose; Sphinx has no en_GB of its own

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["README.md", "to_run"]  # partly included in index.md; for download
suppress_warnings = ["config.cache", "misc.highlighting_failure"]  # pseudo-code stays plain

nb_execution_mode = "off"
nb_render_markdown_format = "myst"
nb_code_prompt_show = "Show the {type}"
nb_code_prompt_hide = "Hide the {type}"
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
smartquotes_action = "D"  # dashes; quotation marks stay as the author typed them
mathjax3_config = {"svg": {"scale": 0.9}}
mathjax_path = "mathjax/tex-svg.js"  # no fonts beside it, which some browsers don't load from the file system
copybutton_exclude = ".linenos, .gp, .go"

add_module_names = False
toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_use_type_comments = False  # there are none, and looking for them takes seconds
napoleon_use_rtype = False
napoleon_preprocess_types = False
nitpicky = True
# Other libraries' names: their inventories lie on the network.
LIBRARIES = "PIL|accelerate|argparse|collections|datasets|io|matplotlib|numpy|os|pathlib|torch|types|typing|tyro"
TYPES = r"Tensor|Module|State|Contents|Table|Json|Path|PILImage\.Image|np\.ndarray|(dict|list|tuple)\[.*"
TYPE_VARIABLES = r"[A-Z]|.*\.Model"
nitpick_ignore_regex = [
    ("py:.*", rf"({LIBRARIES})\..*|{TYPES}|{TYPE_VARIABLES}"),
    ("py:(data|obj)", ".*"),  # constants are named in docstrings, and have no entry of their own
]

html_theme = "sphinx_book_theme"
html_static_path = ["../build/book/source/static"]
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_copy_source = False
html_show_sourcelink = False
# The address of your copy, such as https://github.com/you/vit_tutorial: every page then links to it, and every lesson
# to Binder and Colab. The workflow sets it.
repository = os.environ.get("REPOSITORY_URL", "")
html_context = {"default_mode": "auto"}
html_theme_options = {
    "repository_url": repository,
    "use_repository_button": bool(repository),
    "repository_branch": "main",
    "launch_buttons": {
        "binderhub_url": "https://mybinder.org" if repository else "",
        "colab_url": "https://colab.research.google.com" if repository else "",
    },
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_prev_next": False,  # the notebooks end in such a line of their own
    "footer_content_items": ["copyright.html"],
    "show_navbar_depth": 1,
    "navbar_persistent": [],  # the search field stands in the sidebar
    "home_page_in_toc": False,
    "show_toc_level": 2,
}


def setup(app: Sphinx) -> None:
    docstrings.show_plain_types_of_options()
    app.connect("doctree-read", pictures.add_alternative_text, priority=100)
    app.connect("autodoc-process-docstring", docstrings.prepare_for_napoleon, priority=100)
    app.connect("autodoc-process-signature", docstrings.typeset_default_factories)
    app.connect("missing-reference", docstrings.find_in_package)
