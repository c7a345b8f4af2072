"""``python -m vit_tutorial.explorer``."""

import sys

from vit_tutorial.explorer.command import main

if __name__ == "__main__":
    main(sys.argv[1:])
