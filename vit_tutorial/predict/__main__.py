"""``python -m vit_tutorial.predict``: the command ``vit-tutorial predict``."""

from vit_tutorial.predict.command import main

if __name__ == "__main__":
    main()
