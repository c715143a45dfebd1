"""Set up every test session: one thread per process, reproducible examples, and a cache apart from the user's."""

import ctypes
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

# NumPy, PyTorch and ONNX Runtime read this when they are imported, so it is set before any of them. Test processes
# run side by side, one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Searches of tests log nothing, unless a test gives them a store of its own.
os.environ.setdefault("REWRITEGYM_EXPERIENCE", "off")

# A shell's background jobs ignore SIGINT, and so do the processes they start. Some tests interrupt their own processes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("rewritegym", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("rewritegym")

_CACHE = "REWRITEGYM_CACHE"
_OWN_CACHE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Give the session a cache of its own unless the caller chose one.

    pytest-xdist starts its workers after this, with this environment: they share the folder, so a model is
    exported once per session and not once per worker. Only the process that made the folder removes it.
    """
    if _CACHE not in os.environ:
        os.environ[_CACHE] = config.stash[_OWN_CACHE] = tempfile.mkdtemp(prefix="rewritegym-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _OWN_CACHE in config.stash:
        del os.environ[_CACHE]
        shutil.rmtree(config.stash[_OWN_CACHE], ignore_errors=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not _cuda_device_answers():
        pytest.skip("no CUDA device answers on this machine")


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A test that leaves signals ignored or blocked would break those that interrupt processes, which inherit this."""
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "the test left another handler of SIGINT"
    if hasattr(signal, "pthread_sigmask"):
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, []), "the test left signals blocked"


def _cuda_device_answers() -> bool:
    """Ask the driver: ONNX Runtime lists its CUDA provider on machines without a device as well."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return bool(driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0)
