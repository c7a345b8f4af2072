"""``python -m vit_tutorial.train``: the command ``vit-tutorial train``."""

import sys

from vit_tutorial_cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
