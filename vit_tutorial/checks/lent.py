"""The old name of ``snapshot``, until lessons 06, 07 and 10 use the new one."""

from vit_tutorial.checks.snapshot import AS_IT_WAS, ModelSnapshot

Lent = ModelSnapshot
__all__ = ["AS_IT_WAS", "Lent"]
