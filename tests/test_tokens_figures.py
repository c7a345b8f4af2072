"""The figures of lesson 19 show which patches share a token, and the numbers that they were given."""

import numpy as np
import pytest
import torch

from vit_tutorial import plots


@pytest.mark.parametrize("channels", [1, 3])
def test_token_groups_colours_patches_that_share_a_token_and_no_others(channels):
    image = torch.full((channels, 4, 8), 0.5)
    owner = torch.tensor([[1, 1, 0, 3], [2, 1, -1, 3]])
    figure = plots.token_groups([image, image], [owner, owner])
    drawn = figure.axes[2].get_images()[0].get_array()[::2, ::2]  # a pixel for each patch: (2, 4, 3)
    assert np.allclose(drawn[0, 0], drawn[0, 1])
    assert np.allclose(drawn[0, 0], drawn[1, 1])
    assert np.allclose(drawn[0, 3], drawn[1, 3])
    assert not np.allclose(drawn[0, 0], drawn[0, 3], atol=0.1)
    for alone in (drawn[0, 2], drawn[1, 0]):
        assert np.ptp(alone) == 0 < alone[0] < 1  # grey
    assert (drawn[1, 2] == 1).all()
