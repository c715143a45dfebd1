"""The small edition of `tests.robustness.killing`: some moments of a short run."""

import signal
import sys
from pathlib import Path

import pytest

from tests.robustness.killing import Outcome, moments, new_trial, resumed, signalled

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
LIMIT, WHOLE = 3.0, 5.0
"""Time limit of a run, and what it about takes in all."""
KILLS = 5


@pytest.mark.slow  # seven runs of the whole command
def test_what_a_killed_run_leaves_is_whole_and_a_second_run_goes_on_from_it(tmp_path: Path) -> None:
    last: Outcome | None = None
    for i, moment in enumerate(moments(KILLS, WHOLE)):
        trial = new_trial(tmp_path / str(i), LIMIT)
        last = signalled(trial, moment, signal.SIGKILL)
    assert last is not None
    resumed(trial, last)


@pytest.mark.slow  # a run of the whole command each
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_asked_to_end_writes_its_result_or_says_that_it_was_interrupted(
    tmp_path: Path, number: signal.Signals
) -> None:
    signalled(new_trial(tmp_path / "trial", 60.0), 4.0, number)
