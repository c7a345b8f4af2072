"""``python -m vit_tutorial.live``."""

import sys

from vit_tutorial.live.command import main

if __name__ == "__main__":
    main(sys.argv[1:])
