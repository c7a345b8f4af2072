"""The pictures of lesson 19 show which patches share a token."""

import numpy as np
import pytest
import torch

from vit_tutorial import plots


@pytest.mark.parametrize("channels", [1, 3])
def test_mosaic_gives_patches_of_one_token_their_mean_colour(channels):
    image = torch.full((channels, 8, 16), 0.5)
    image[:, :4, :4], image[:, :4, 4:8] = 0.2, 0.6  # the first two patches: token 1, with one of the second row
    owner = torch.tensor([[1, 1, 0, 3], [2, 1, -1, 3]])
    drawn = plots.mosaic(image, owner)  # (3, 8, 16)
    assert drawn.shape == (3, 8, 16)
    mean = (0.2 + 0.6 + 0.5) / 3
    assert np.allclose(drawn[:, 1:4, :8], mean)  # no line within a token
    assert np.allclose(drawn[:, 1:8, 5:8], mean)
    assert np.allclose(drawn[:, 5:8, 1:4], 0.5)
    assert (drawn[:, :, 8] == 1).all()  # a line between tokens
    assert (drawn[:, 4:, 8:12] == 1).all()  # dropped
