"""``python -m vit_tutorial.live``: the command ``vit-tutorial live``."""

import sys

from vit_tutorial_cli import main

if __name__ == "__main__":
    main(["live", *sys.argv[1:]])
