"""The live page's slider from noise to trained: what digits-patch2 was after some epochs of its training, in 16 bits.

    python benchmarks/learning_states.py       some five minutes on one thread

It repeats the training that the model's config.json tells, and keeps the weights after the epochs below in
states.safetensors beside the model, a tensor named "epoch.name" each. Another processor ends at slightly other weights
than the model's own, so the script prints how well each state does, and how many test digits the last one answers as
the model does.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import vit_tutorial as vt
from vit_tutorial.data import Data, hold_out, normalise

State = dict[str, Tensor]
FOLDER = Path(vt.__file__).parent / "weights" / "checkpoints" / "digits-patch2"
EPOCHS = (0, 4, 7, 10, 15, 30)  # about 10, 37, 62, 64, 85 and 93 % are right


def answers(model: nn.Module, digits: Data) -> Tensor:
    """The classes that a model names for the test digits: (n,)."""
    images = normalise(digits.test.batch(torch.arange(len(digits.test)))[0], digits)
    with torch.inference_mode():
        return model.eval()(images).argmax(dim=1)


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
    torch.set_num_threads(1)
    recipe = json.loads((FOLDER / "config.json").read_text("utf-8"))["recipe"]
    published = vt.load("digits-patch2").model
    torch.manual_seed(recipe["seed"])
    model = vt.ViT(published.config)
    states = train(model, recipe)
    digits = vt.data.digits()
    labels = digits.test.batch(torch.arange(len(digits.test)))[1]
    tensors: State = {}
    for epoch in EPOCHS:
        model.load_state_dict(states[epoch])
        right = (answers(model, digits) == labels).float().mean()
        print(f"after {epoch:3} epochs: {right:.1%} of the test digits are right")
        tensors |= {f"{epoch}.{name}": tensor.half() for name, tensor in states[epoch].items()}
    model.load_state_dict(states[-1])
    same = (answers(model, digits) == answers(published, digits)).float().mean()
    print(f"in the end: {same:.1%} are answered as the model does")
    save_file(tensors, FOLDER / "states.safetensors")


if __name__ == "__main__":
    main()
