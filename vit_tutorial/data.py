"""Pictures that are already on disk. (Lesson 07 brings the data sets.)"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vit_tutorial.patches import Size, as_pair


def photograph(size: Size = 224) -> Tensor:
    """The photograph of Grace Hopper that ships with matplotlib (US Navy, public domain), cropped from the top.

    Args:
        size: H = W, or (H, W), in pixels.

    Returns:
        (3, H, W), float32, in [0, 1].
    """
    from matplotlib import cbook
    from PIL import Image

    height, width = as_pair(size, "size")
    with Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)) as picture:
        scale = min(picture.width / width, picture.height / height)
        left = (picture.width - width * scale) / 2
        box = (left, 0.0, left + width * scale, height * scale)
        pixels = np.array(picture.convert("RGB").resize((width, height), Image.Resampling.BICUBIC, box=box))
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255  # (H, W, 3) -> (3, H, W)
