# Tangled from book/workshop/command.md
"""Workers that are processes: sums over all of them by torch.distributed."""

from __future__ import annotations

import atexit
import importlib
import os
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm.models.addition import Workers


class TorchWorkers(Workers):
    """One of the processes that torchrun has started. ImportError without torch, KeyError without
    torchrun's environment."""

    def __init__(self) -> None:
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            os.environ[name]  # KeyError names what is missing
        self._torch: Any = importlib.import_module("torch")
        self._group: Any = importlib.import_module("torch.distributed")
        self._torch.set_num_threads(1)
        self._group.init_process_group("gloo", timeout=timedelta(seconds=120))
        # its threads must end before Python does, or now and then they abort a process that is done
        atexit.register(self._group.destroy_process_group)
        self.rank, self.count = self._group.get_rank(), self._group.get_world_size()

    def all_reduce(self, array: NDArray[Any]) -> NDArray[Any]:
        """The sum over all workers of arrays of one shape [...]: the same array in each."""
        tensor = self._torch.from_numpy(np.array(array))  # a copy, which becomes the sum
        self._group.all_reduce(tensor)
        total: NDArray[Any] = tensor.numpy()
        return total
