"""The former name of :mod:`vit_tutorial.convert`; importing it works, with a DeprecationWarning."""

import warnings

from vit_tutorial.convert import *  # noqa: F403

warnings.warn("vit_tutorial.names is now called vit_tutorial.convert: import that", DeprecationWarning, stacklevel=2)
