"""The command line of train.py, and the one that goes on from a run."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from agents.commands.common import ModelArguments
from agents.core.config import Config, ConfigError, load_config


@dataclass(frozen=True, slots=True)
class TrainArguments(ModelArguments):
    """Fine-tune the universal policy on a model and optimise the model with it, or train one for all models."""

    whole_graph: bool = False
    """Train a policy of the model's own, in episodes of rewrites of the whole graph, as X-RLflow does. So do --n-envs,
    --total-timesteps, --episodes and --eval-freq, and --config paper."""
    n_envs: int | None = None
    """Environments that collect experience side by side; their measurements take turns."""
    total_timesteps: int | None = None
    """Steps of the environment to train for."""
    episodes: int | None = None
    """Train for about this many full episodes instead (of training.episode_steps or env.horizon steps)."""
    device: str = "cpu"
    """PyTorch device of the policy: cpu or cuda."""
    resume: Path | None = None
    """A run folder or checkpoint folder to go on from. A policy of windows may be of another model."""
    tensorboard_log: Path | None = None
    """Folder for TensorBoard files; by default inside the run's folder."""
    eval_freq: int | None = None
    """Steps between deterministic evaluation episodes; 0 for none."""
    runs: Path = Path("runs")
    """Folder in which run folders are made."""
    windows: bool = False
    """Train the universal policy on a table of windows, in place of a policy on one model."""
    table: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """With --windows: a table to learn from (python -m benchmarks.learning.window_table makes one), such as one of each
    processor; may be repeated; by default the one that ships."""
    without: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """With --windows: an architecture whose windows are left out; may be repeated."""
    from_experience: bool = False
    """With --windows: go on with the universal policy, or that of --resume, on what searches on this machine have
    timed, of any model."""
    experience: Path | None = None
    """With --from-experience: a store or an export; by default the store that searches append to."""

    def on_whole_graph(self, resumed: bool) -> bool:
        """Return whether a training on a model is to be one of whole graphs.

        Args:
            resumed: the policy that is gone on with was trained so.
        """
        given = (self.n_envs, self.total_timesteps, self.episodes, self.eval_freq)
        asked = self.whole_graph or any(value is not None for value in given)
        return resumed or asked or self.configure().training.whole_graph

    def learning_config(self) -> Config:
        """Return the configuration of learning on windows, for as long as a training on the model takes."""
        config = load_config("windows", self.config, self.set)
        seconds = self.load().training.seconds
        return dataclasses.replace(config, training=dataclasses.replace(config.training, seconds=seconds))

    def configure(self) -> Config:
        """The configuration with this command line's settings on top."""
        config = load_config("windows", self.config, self.set) if self.windows else self.load()
        training = config.training
        if self.n_envs is not None:
            if self.n_envs < 1:
                raise ConfigError(f"--n-envs must be 1 or more, not {self.n_envs}")
            training = dataclasses.replace(training, n_envs=self.n_envs)
        if self.episodes is not None:
            training = dataclasses.replace(training, total_timesteps=self.episodes * _episode_steps(config))
        if self.total_timesteps is not None:
            training = dataclasses.replace(training, total_timesteps=self.total_timesteps)
            if self.from_experience:
                tuning = dataclasses.replace(config.fine_tuning, timesteps=self.total_timesteps)
                config = dataclasses.replace(config, fine_tuning=tuning)
        if self.eval_freq is not None:
            training = dataclasses.replace(training, eval_freq=self.eval_freq)
        return dataclasses.replace(config, training=training)


def resume_command(arguments: TrainArguments, run: Path) -> str:
    """The command line that goes on from a run, with all that was set in this one."""
    words = ["python", "train.py"] if Path(sys.argv[0]).name == "train.py" else ["rewritegym", "train"]
    plain = TrainArguments()
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        if field.name == "resume" or value == getattr(plain, field.name):
            continue
        flag = f"--{field.name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag)
        else:
            words += [word for item in (value if isinstance(value, tuple) else (value,)) for word in (flag, str(item))]
    return shlex.join([*words, "--resume", str(run)])


def _episode_steps(config: Config) -> int:
    """Return the steps of a full episode."""
    longest = config.training.episode_steps or config.env.horizon
    return min(longest, config.env.horizon)
