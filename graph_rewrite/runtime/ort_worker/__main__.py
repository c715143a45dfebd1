"""Start the measurement worker: `python -m ort_worker`."""

from .worker import main

main()
