"""The state of a run in its folder."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from vit_tutorial.train.checkpoints import Checkpoint, check_free


def test_machines_without_a_shared_folder_are_told(tmp_path, refuses):
    def gather(done):
        return torch.cat([done, done + 2])  # the other machine has two epochs more

    apart = SimpleNamespace(gather=gather, device=torch.device("cpu"), is_main_process=True)
    with refuses(ValueError, str(tmp_path), "share"):
        Checkpoint(tmp_path, apart).read(resume=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("resume", [False, True])
def test_a_model_without_its_run_is_not_replaced(tmp_path, refuses, resume):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with refuses(FileExistsError, str(tmp_path), "already has a model", "another folder"):
        check_free(tmp_path, resume)
    (tmp_path / "state.pt").write_bytes(b"")
    with contextlib.suppress(FileExistsError):  # which is the run's then
        check_free(tmp_path, resume)
        assert resume


def test_the_state_in_a_folder(tmp_path, refuses):
    alone = SimpleNamespace(gather=lambda done: done, device=torch.device("cpu"), is_main_process=True)
    checkpoint, part = Checkpoint(tmp_path, alone), torch.nn.Linear(2, 2)
    assert checkpoint.restore(None, {"seed": 3}, {"model": part}) == []
    assert checkpoint.read(resume=True)["settings"] == {"seed": 3}
    with refuses(ValueError, "seed=3", "not 4"):
        checkpoint.restore({"settings": {"seed": 3, "version": 2}, "history": []}, {"seed": 4, "version": 2}, {})
    (tmp_path / "state.pt").write_bytes(b"nonsense")
    with refuses(ValueError, str(tmp_path), "damaged"):
        checkpoint.read(resume=True)
