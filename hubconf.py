"""For ``torch.hub``: ``torch.hub.load("OWNER/vit_tutorial", "vit", "cifar10")``, without installing this package."""

from __future__ import annotations

from typing import Any

dependencies = ["torch", "numpy", "PIL", "safetensors", "tqdm"]


def vit(name: str = "cifar10", **changes: Any) -> Any:
    """A trained model in evaluation mode; ``model.preprocess`` makes a picture its input.

    Args:
        name: whatever ``vit_tutorial.load`` takes: a model that comes with the package, a folder, a file.
        **changes: the keywords of ``vit_tutorial.load``, such as ``num_classes``.
    """
    from vit_tutorial import load

    return load(name, **changes).model
