"""``python -m vit_tutorial.export``: the command ``vit-tutorial export``."""

import sys

from vit_tutorial_cli import main

if __name__ == "__main__":
    main(["export", *sys.argv[1:]])
