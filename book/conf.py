"""Sphinx's settings for the book; ``build.py`` starts it."""

import base64
import dataclasses
import functools
import hashlib
import json
import os
import re
import textwrap
import typing
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon.docstring import GoogleDocstring

import vit_tutorial
from vit_tutorial.options import export, live, predict, recipe, train

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
OPTIONS = "FOLDER|NAME|Positional"  # how tyro calls what a command takes
nitpick_ignore_regex = [
    ("py:.*", rf"({LIBRARIES})\..*|{TYPES}|{TYPE_VARIABLES}|{OPTIONS}"),
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


def find_in_package(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.TextElement
) -> nodes.Element | None:
    """Link a docstring's :class:`ViT` from any module; a name that is defined and has no entry stays plain text."""
    if node.get("refdomain") != "py":
        return None
    target, python = node["reftarget"], env.domains.python_domain
    places = [name for name in python.objects if name.endswith(f".{target}")]
    if len(places) == 1:
        return python.resolve_xref(env, node["refdoc"], app.builder, "obj", places[0], node, text)
    return text if target.rpartition(".")[2] in defined_names() else None


@functools.cache
def defined_names() -> set[str]:
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(vit_tutorial.__file__).parent.rglob("*.py"))
    return set(re.findall(r"^(?: *def | *class |)(\w+)(?=\(|:)", source, re.MULTILINE))


INITIAL = re.compile(r"^( +\w+: )([A-Z]\.)", re.MULTILINE)
RETURNS = re.compile(r"^Returns:((?:\n(?: +.*|(?=\n +)))+)", re.MULTILINE)


def default_factories(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """A dataclass's ``<factory>`` as ``...``, which can be parsed, and so be typeset."""
    return signature and signature.replace("<factory>", "..."), returns


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


def before_napoleon(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep "Returns: words: more" from being read as a type and its text, and "dim: D." as a list from D on."""
    text = INITIAL.sub(r"\1\\\2", "\n".join(lines))
    lines[:] = RETURNS.sub(lambda found: f":returns:{textwrap.indent(found[1], '    ')}\n", text).splitlines()


def whole_attribute(self: GoogleDocstring) -> tuple[str, list[str]]:
    """An attribute's docstring has no type in front: "Of the numbers in the model: fp32." is a sentence."""
    return "", self.__class__(self._dedent(self._consume_to_end()), self._config).lines()


GoogleDocstring._consume_inline_attribute = whole_attribute


def plain_types_of_options() -> None:
    """The reference shows an option's type without what the command line needs to know of it."""
    for module in (export, live, predict, recipe, train):
        for value in vars(module).values():
            if dataclasses.is_dataclass(value) and isinstance(value, type):
                plain = typing.get_type_hints(value)
                value.__annotations__ = plain
                value.__init__.__annotations__ = plain


def setup(app: Sphinx) -> None:
    plain_types_of_options()
    app.connect("doctree-read", add_alternative_text, priority=100)
    app.connect("autodoc-process-docstring", before_napoleon, priority=100)
    app.connect("missing-reference", find_in_package)
    app.connect("autodoc-process-signature", default_factories)
