"""``python -m vit_tutorial.export``: the command ``vit-tutorial export``."""

from vit_tutorial.export.command import main

if __name__ == "__main__":
    main()
