"""``python -m vit_tutorial COMMAND``: the command ``vit-tutorial``, where pip has put no script on the path."""

from vit_tutorial_cli import main

if __name__ == "__main__":
    main()
