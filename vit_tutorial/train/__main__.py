"""``python -m vit_tutorial.train``: the command ``vit-tutorial train``."""

from vit_tutorial.train.command import main

if __name__ == "__main__":
    main()
