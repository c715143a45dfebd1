"""NASRNN: the recurrent cell that architecture search found, unrolled; the graph of TASO's benchmark of that name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graph_rewrite.zoo.configs.sequences import NasRnnConfig

_GATES = 8


class Product(nn.Linear):
    """A product with a matrix; exported as MatMul, where PyTorch's own linear layer of two dimensions is a Gemm."""

    def __init__(self, hidden: int) -> None:
        super().__init__(hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x, self.weight.t())


class NasCell(nn.Module):
    """Eight sums of products with input and state, combined by a binary tree: [batch, hidden] twice -> the same."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.of_input = nn.ModuleList(Product(hidden) for _ in range(_GATES))
        self.of_state = nn.ModuleList(Product(hidden) for _ in range(_GATES))

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        pairs = zip(self.of_input, self.of_state, strict=True)
        gates = [of_input(x) + of_state(state) for of_input, of_state in pairs]
        relu, sigmoid, tanh = torch.relu, torch.sigmoid, torch.tanh
        first = relu(gates[0]) + sigmoid(gates[3])
        second = sigmoid(gates[1]) + tanh(gates[2])
        third = sigmoid(gates[4]) * tanh(gates[5])
        fourth = sigmoid(gates[6]) * relu(gates[7])
        left = sigmoid(second) + tanh(third)
        right = tanh(first) * tanh(fourth)
        return tanh(tanh(left) * tanh(right))


class NasRnn(nn.Module):
    """``state``, ``x0``, ``x1``, ... float32 [batch, hidden] -> ``final_state`` float32 [batch, hidden]."""

    def __init__(self, config: NasRnnConfig) -> None:
        super().__init__()
        self.steps = config.steps
        self.cells = nn.ModuleList(NasCell(config.hidden) for _ in range(1 if config.shared else config.steps))

    def forward(self, state: Tensor, **inputs: Tensor) -> Tensor:
        for step in range(self.steps):
            state = self.cells[step % len(self.cells)](inputs[f"x{step}"], state)
        return state
