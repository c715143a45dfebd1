"""An open session with the inputs that it is run with, in turn. Runs inside the worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from time import perf_counter
from typing import Any

import onnxruntime as ort

from ..deployment import Deployment
from ..feeds import Feeds, ModelInput
from ..narrow_floats import NARROW, runner
from ..runtimes.opening import open_session
from ..session_runs import Values, run_model
from ..sessions.cuda_graphs import CudaGraphSession
from ..timing import LONG_S, Clock, warm_up
from .recipes import Recipes
from .rotation import Accepts, Rotation

_CUDA_WARMUP = 3  # cuDNN picks its algorithms in the first run, the memory arena settles in the second.
_FIRST_WARMUP = 2
"""Untimed runs that a new session has at least. ONNX Runtime plans the memory of intermediate results in the first run,
and takes it from the system in the second: with huge pages that run of a rewritten ResNet3D-18 takes 0.63 s instead of
0.36 s (Intel Xeon)."""

MakeRotation = Callable[[Sequence[ModelInput], Accepts], Rotation]
"""Gives the inputs for a model that has these, and a function that runs it."""


class Runner:
    """A session with its inputs at hand: each run takes the next ones. On CUDA inputs and outputs stay on the device
    and a run is synchronised.

    Args:
        feeds: recipes of inputs, or a function that gives inputs that are made already.

    Raises:
        ValueError: inputs cannot be made, or the model has others than those that are made.
    """

    def __init__(self, path: str, deployment: Deployment, feeds: Recipes | MakeRotation) -> None:
        self.path = path
        self.cuda = deployment.provider == "cuda"
        self.session: Any = open_session(path, deployment, measuring=True)
        self.inputs = [ModelInput(item.name, item.type, tuple(item.shape)) for item in self.session.get_inputs()]
        make = feeds if callable(feeds) else partial(_rotation, recipes=feeds)
        self.rotation = make(self.inputs, self._accepts)
        if foreign := self.rotation.lacks(self.inputs):
            listed = ", ".join(f"{item.name} {item.type}{list(item.shape)}" for item in foreign)
            raise ValueError(f"{os.path.basename(path)} has inputs that the baseline has not: {listed}")
        self._is_new, self._answered_s = True, 0.0
        turns = [self.rotation.feeds(number, self.inputs) for number in range(self.rotation.count)]
        if self.cuda and self._is_bindable():
            self._device: DeviceRuns | None = DeviceRuns(self.session, turns)
            self._turns: list[Callable[[], Any]] = self._device.turns
        else:
            self._device, made = None, dict[int, ort.OrtValue]()
            self._turns = [runner(self.session, None, feeds, made) for feeds in turns]
        self.turn_to(0)

    @property
    def feeds(self) -> Feeds:
        """The first inputs."""
        return self.rotation.feeds(0, self.inputs)

    def _accepts(self, feeds: Feeds) -> bool:
        try:
            runner(self.session, None, feeds)()
        except Exception:  # whatever a model does that gets a length or a divisor of no use to it
            return False
        return True

    def _is_bindable(self) -> bool:
        """Tell whether all inputs and outputs are tensors that can be bound to places of the device."""
        types = [item.type for item in (*self.inputs, *self.session.get_outputs())]
        return all(type.startswith("tensor(") and type[7:-1] not in NARROW for type in types)

    def turn_to(self, number: int) -> None:
        """Let the next run take the inputs of this number, and those after it the following ones."""
        number %= len(self._turns)
        self._next = cycle(self._turns[number:] + self._turns[:number]).__next__
        if self._device is not None:
            self._device.turn_to(number)

    def run(self) -> None:
        self._next()()

    def answers(self, feeds: Sequence[Feeds], clock: Clock = perf_counter) -> list[Values]:
        """The outputs on some inputs, in turn. A session that has answered often enough needs no other runs to warm
        up."""
        found = []
        for one in feeds:
            began = clock()
            found.append(run_model(self.session, one))
            seconds = clock() - began
        if not self.cuda and len(found) >= _FIRST_WARMUP:
            self._is_new, self._answered_s = False, seconds
        return found

    def warm_up(self, runs: int, clock: Clock = perf_counter, first: int = 0) -> float:
        """`warm_up` of this session, on the inputs before those of number `first`, with which the next run begins. A
        new session has two runs at least, and on CUDA always several; one that has answered long questions has none."""
        if self._answered_s >= LONG_S:
            self.turn_to(first)
            return self._answered_s
        least = _CUDA_WARMUP if self.cuda else _FIRST_WARMUP if self._is_new else 1
        runs, self._is_new = max(runs, least), False
        self.turn_to(first - runs)
        seconds = warm_up(self.run, runs, clock, least)
        self.turn_to(first)
        return seconds


def _rotation(inputs: Sequence[ModelInput], accepts: Accepts, recipes: Recipes) -> Rotation:
    return Rotation(inputs, recipes, accepts)


class DeviceRuns:
    """Runs of a session on values that lie on a device.

    A session that replays a CUDA graph reads its inputs from fixed places. What changes there is copied by `turn_to`,
    which is not timed; runs in a row then have the same inputs.

    Args:
        turns: inputs, in turn.
        device: where they are to lie: `cuda`; tests take `cpu`.
    """

    def __init__(self, session: ort.InferenceSession, turns: Sequence[Feeds], device: str = "cuda") -> None:
        self._session, self._feeds = session, turns
        self._binding = session.io_binding()
        self._places = _places(turns[0], device) if isinstance(session, CudaGraphSession) else {}
        values: dict[int, ort.OrtValue] = {}
        bound = [list(self._places.items())] if self._places else [_moved(feeds, values, device) for feeds in turns]
        self._bind(bound[0])
        for output in session.get_outputs():
            self._binding.bind_output(output.name, device, 0)
        if isinstance(session, CudaGraphSession):
            self.turn_to(0)
            session.fix_outputs(self._binding)
        self.turns: list[Callable[[], Any]] = (
            [self._run] * len(turns) if len(bound) == 1 else [self._runs_on(one) for one in bound]
        )

    def turn_to(self, number: int) -> None:
        """Copy the inputs of a turn to the fixed places, where there are such."""
        for name, place in self._places.items():
            place.update_inplace(self._feeds[number][name])

    def _bind(self, values: Sequence[tuple[str, ort.OrtValue]]) -> None:
        for name, value in values:
            self._binding.bind_ortvalue_input(name, value)

    def _run(self) -> None:
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()

    def _runs_on(self, values: Sequence[tuple[str, ort.OrtValue]]) -> Callable[[], None]:
        def run() -> None:
            self._bind(values)
            self._run()

        return run


def _places(feeds: Feeds, device: str) -> dict[str, ort.OrtValue]:
    return {
        name: ort.OrtValue.ortvalue_from_shape_and_type(list(value.shape), value.dtype.type, device, 0)
        for name, value in feeds.items()
    }


def _moved(feeds: Feeds, known: dict[int, ort.OrtValue], device: str) -> list[tuple[str, ort.OrtValue]]:
    """Return values on a device; `known` are those that are there already, by the `id` of the array."""
    for value in feeds.values():
        if id(value) not in known:
            known[id(value)] = ort.OrtValue.ortvalue_from_numpy(value, device, 0)
    return [(name, known[id(value)]) for name, value in feeds.items()]
