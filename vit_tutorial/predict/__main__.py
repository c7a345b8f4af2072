"""``python -m vit_tutorial.predict``: the command ``vit-tutorial predict``."""

import sys

from vit_tutorial_cli import main

if __name__ == "__main__":
    main(["predict", *sys.argv[1:]])
