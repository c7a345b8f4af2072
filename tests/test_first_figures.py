"""The figures of lessons 01 and 02 show the numbers that they are given."""

import numpy as np
import pytest
import torch

from vit_tutorial import plots

PHOTO = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_patch_cost_draws_the_grid_and_marks_its_size():
    costs = {16: 4e9, 8: 20e9}
    left, right = plots.patch_cost(PHOTO, 8, costs).axes
    assert left.get_title() == "4 × 4 patches"
    horizontal, vertical = (lines.get_segments() for lines in left.collections)
    assert [len(horizontal), len(vertical)] == [5, 5]
    assert [bar.get_width() for bar in right.patches] == [4, 20]
    one, other = (bar.get_facecolor() for bar in right.patches)
    assert one != other
    assert plots.patch_cost(PHOTO, 16, costs).axes[1].patches[0].get_facecolor() == other


@pytest.mark.parametrize("place", [(0, 0), (2, 5)])
def test_position_maps_share_a_scale_and_outline_the_patch(place):
    maps = {"before": torch.eye(8) / 2, "after": -torch.eye(8)}
    axes = plots.position_maps(maps, place).axes[:2]
    assert [ax.get_title() for ax in axes] == ["before", "after"]
    for ax, expected in zip(axes, maps.values(), strict=True):
        (image,) = ax.get_images()
        assert np.allclose(image.get_array(), expected)
        assert image.get_clim() == (-1, 1)
        assert ax.patches[0].get_xy() == (place[1] - 0.5, place[0] - 0.5)
