"""Calls everything."""

import numpy as np

from tinyllm.nn import Dropout, Linear, Module, ModuleList, Sequential, linear, randn
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor


class Net(Module):
    def __init__(self):
        self.body = Sequential(Linear(3, 4), Dropout(0.5), Linear(4, 2))
        self.rest = ModuleList([Linear(2, 2)])
        self.register_buffer("mean", np.zeros(2))

    def forward(self, x):
        return self.rest[0](self.body(x)) + self.mean


def test_runs():
    net = Net()
    net(randn(5, 3)).backward(np.ones((5, 2)))
    net.zero_grad()
    net.train().eval().astype("f8")
    net.load_state_dict(net.state_dict())
    net.load_rng_state(net.rng_state())
    net.seed_generators(PCG32(1)).apply(lambda m: m.training)
    assert list(net.modules())
    assert list(net.named_parameters())
    assert list(net.named_buffers())
    assert repr(net)
    linear(Tensor(np.ones((2, 3))), Tensor(np.ones((4, 3))))
