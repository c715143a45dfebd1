"""Run folders: runs/<time>-<model>-<agent>/ with configuration, checkpoint, optimised model and result."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from agents.conclusion.savings import saved_ms, savings
from agents.core.base import OptimizationResult
from agents.core.config import Config
from graph_rewrite.errors import UserError
from graph_rewrite.ir.memory import memory_of
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.task.problem import Problem


def new_run(root: Path, model: str, agent: str) -> Path:
    """Make a fresh folder named by time, model and agent.

    Raises:
        UserError: it cannot be made in `root`.
    """
    name = file_name(Path(model.removeprefix("zoo://").removeprefix("file:")).name.split("?")[0])
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-{file_name(agent)}"[:200]
    for suffix in ("", *(f"-{n}" for n in range(2, 100))):
        folder = root / (stem + suffix)
        try:
            root.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
        except FileExistsError:
            if root.is_dir():
                continue
            raise UserError(f"--runs {root} is a file: name a folder for the results") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise UserError(f"--runs {root}: no folder can be made there ({reason}); name another") from error
        return folder
    raise UserError(f"--runs {root} has too many runs called {stem}: move some away")


def file_name(text: str) -> str:
    """Return a text, such as an agent with options, as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text)


def write_config(folder: Path, config: Config, command: dict[str, Any]) -> None:
    """Write the full configuration and the command line, as YAML."""
    replace_file(
        folder / "config.yaml",
        yaml.safe_dump(_plain({"command": command, "config": config.to_dict()}), sort_keys=False),
    )


def write_json(path: Path, values: object) -> None:
    """Write JSON as a whole."""
    replace_file(path, json.dumps(values, indent=2) + "\n")


def write_optimized(result: OptimizationResult, path: Path) -> Path | None:
    """Write the file of a result as it was checked, with its deployment in `metadata_props` and in a JSON file beside
    it; an original that is kept byte by byte, with the JSON file alone. None where the check failed, which happens only
    to originals that disagree with themselves, such as models that draw random numbers.

    Raises:
        UnverifiedModelError: the saved file changed after it was checked.
    """
    return result.checked.write_to(path) if result.verified else None


def rewrite_entries(result: OptimizationResult) -> list[dict[str, Any]]:
    """Return the substitutions of a result in order, as `result_entry` lists them; `saved_ms` is None where it is not
    known."""
    return [
        {"rule": a.rule, "description": a.description, "sites": a.count, "key": a.key, "saved_ms": ms}
        for a, ms in zip(result.actions, saved_ms(result), strict=True)
    ]


def result_entry(result: OptimizationResult, problem: Problem, onnx_path: Path | None) -> dict[str, Any]:
    """Return an entry of `results`, as `evaluate.py --json` prints it; `memory` is in bytes, `latency_ms` None where no
    time was left to measure it."""
    return {
        "agent": result.agent,
        "speedup": result.latency.speedup,
        "speedup_ci95": list(result.latency.ci95),
        "latency_ms": result.latency.ms if math.isfinite(result.latency.ms) else None,
        "seconds": round(result.seconds, 3),
        "measurements": result.measurements,
        "verified": result.verified,
        "max_rel_error": result.max_rel_error,
        "rewrites": rewrite_entries(result),
        "savings": _plain([asdict(saving) for saving in savings(result)]),
        "deployment": result.checked.deployment.to_json(),
        "onnx_path": None if onnx_path is None else str(onnx_path),
        "message": result.message,
        "failed_measurements": result.trials.failed,
        "first_error": result.trials.first_error or None,
        "tried_measurements": result.trials.count,
        "tradeoff": _plain([asdict(point) for point in result.tradeoff]),
        "trajectory": [list(point) for point in result.trajectory],
        "applications": result.applications,
        "improvements": [asdict(point) for point in result.improvements],
        "growth": [asdict(point) for point in result.growth],
        "rule_histogram": result.rule_histogram,
        "rules_applied": len(result.rule_histogram),
        "rule_faults": result.rule_faults,
        "rule_fault_examples": {
            rule: trace.strip().splitlines()[-1] for rule, trace in result.faults.tracebacks.items()
        },
        "memory": {
            "before": asdict(memory_of(problem.model.original)),
            "after": asdict(memory_of(result.graph)),
        },
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
