"""What the commands can be asked for: a dataclass a command, whose docstrings are the command line's help.

Nothing here imports torch, so that a wrong argument is reported at once. ``recipe`` has the choices of a training run,
``train``, ``predict``, ``evaluate``, ``export`` and ``live`` the options of each command, ``processes`` what a
launcher says.
"""
