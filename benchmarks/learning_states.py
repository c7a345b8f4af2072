"""The live page's slider from noise to trained: what digits-patch2 was after some epochs of its training.

    python benchmarks/learning_states.py       some five minutes on one thread; writes the shipped file anew

It repeats the training that the model's config.json tells. Of the weights after the epochs below it keeps how they
differ from the epoch before, in 8 bits a number (vit_tutorial/live/states.py), in states.safetensors beside the model:
tensors named "epoch.name", and their "epoch.scales" in the order of the sorted names. It prints how well each state
does, and what 8 bits change:

    epoch  right  as in 16 bits: pictures of the page, test digits; largest difference of a share
        0  10.0%  10 of 10, 360 of 360; 0.00%
        1  27.2%  10 of 10, 359 of 360; 0.00%
        2  35.0%  10 of 10, 358 of 360; 0.01%
        4  36.4%  10 of 10, 358 of 360; 0.03%
        6  47.2%  10 of 10, 358 of 360; 0.14%
        7  57.5%  10 of 10, 360 of 360; 0.06%
        8  66.4%  10 of 10, 360 of 360; 0.11%
       11  75.3%  10 of 10, 360 of 360; 0.51%
       15  85.3%  10 of 10, 359 of 360; 0.29%
       22  92.2%  10 of 10, 360 of 360; 0.11%
       40  93.6%  10 of 10, 360 of 360; 1.09%

Another processor ends at slightly other weights than the model's own, so the last line says how many test digits the
end of this training answers as the model does: 99.4%.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import vit_tutorial as vt
from vit_tutorial.data import hold_out, normalise
from vit_tutorial.live.command import samples_of
from vit_tutorial.live.states import State, differences, restored

FOLDER = Path(vt.__file__).parent / "weights" / "checkpoints" / "digits-patch2"
EPOCHS = (0, 1, 2, 4, 6, 7, 8, 11, 15, 22, 40)  # with the trained model twelve states


def shares(model: nn.Module, state: State, images: Tensor) -> Tensor:
    """What a model in some state answers to images: (n, K)."""
    model.load_state_dict(state)
    with torch.inference_mode():
        return model.eval()(images).softmax(dim=1)


def train(model: nn.Module, recipe: dict[str, Any]) -> list[State]:
    """Train a new model, and return its weights after each epoch, those before the first included."""
    states = [copy.deepcopy(model.state_dict())]
    was_training = [False]  # in each forward pass

    def keep(part: nn.Module, _: object) -> None:
        if was_training[-1] and not part.training:  # the first batch of the test after an epoch
            states.append(copy.deepcopy(part.state_dict()))
        was_training.append(part.training)

    hook = model.register_forward_pre_hook(keep)
    vt.train.fit(model, hold_out(vt.data.digits(), 0.2), vt.train.Recipe(**recipe))
    hook.remove()
    return states


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    recipe = json.loads((FOLDER / "config.json").read_text("utf-8"))["recipe"]
    published = vt.load("digits-patch2").model
    torch.manual_seed(recipe["seed"])
    model = vt.ViT(published.config)
    states = train(model, recipe)
    digits = vt.data.digits()
    images, labels = digits.test.batch(torch.arange(len(digits.test)))
    pictures = normalise(samples_of("digits-patch2"), digits)
    tests = normalise(images, digits)

    packed = list(differences(states[epoch] for epoch in EPOCHS))
    tensors: State = {}
    for epoch, (steps, scales), small in zip(EPOCHS, packed, restored(packed), strict=True):
        tensors |= {f"{epoch}.{name}": step for name, step in steps.items()}
        tensors[f"{epoch}.scales"] = torch.stack([scales[name] for name in sorted(scales)])
        half = {name: tensor.half().float() for name, tensor in states[epoch].items()}
        right = (shares(model, half, tests).argmax(dim=1) == labels).float().mean()
        pairs = [(shares(model, half, some), shares(model, small, some)) for some in (pictures, tests)]
        same = [int((a.argmax(dim=1) == b.argmax(dim=1)).sum()) for a, b in pairs]
        away = (pairs[0][0] - pairs[0][1]).abs().max()
        print(f"    {epoch:5}  {right:5.1%}  {same[0]} of {len(pictures)}, {same[1]} of {len(tests)}; {away:.2%}")
    ends = [shares(model, state, tests).argmax(dim=1) for state in (states[-1], published.state_dict())]
    print(f"in the end: {(ends[0] == ends[1]).float().mean():.1%} are answered as the model does")
    save_file(tensors, FOLDER / "states.safetensors")


if __name__ == "__main__":
    main()
