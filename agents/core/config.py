"""Configuration: dataclasses with a docstring per field, filled from YAML files and `key=value` settings."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import yaml

from agents.core.paths import configs
from graph_rewrite import zoo
from graph_rewrite.errors import UserError
from graph_rewrite.rewriting.enumerator import Granularity


@dataclass(frozen=True, slots=True)
class EnvConfig:
    """The environment that the agent learns in and acts in."""

    horizon: int = 128
    """Actions on the longest path. The best known results take up to 106."""
    feedback_every: int = 1
    """N of X-RLflow: latency is measured every N steps."""
    granularity: Granularity = "both"
    """Offer rewrites per `site`, per `class` of sites, or `both`."""
    rules: str = "default"
    """Rule sets, separated by commas: default, generated, taso, or all."""
    features: Literal["plain", "full"] = "plain"
    """What is observed: `plain`, or `full` with attributes of operators, times and the deployment."""
    max_candidates: int = 512
    max_nodes: int = 8192
    max_edges: int = 16384


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The graph encoder of a policy (`agents.ppo.encoder`)."""

    hidden: int = 64
    """Width of node embeddings."""
    layers: int = 3
    """Number k of graph attention layers; the paper has 5 (appendix A)."""
    attention_heads: int = 4
    """Heads per attention layer; `hidden` is divided among them."""
    pooling: str = "mean"
    """Aggregation of nodes: `sum` as in equation 8, or `mean`, which carries over to other depths."""
    bidirectional: bool = True
    """Also pass messages against the direction of the data, so that a node sees who reads its result."""
    residual: bool = True
    """Add each attention layer's input to its output."""


@dataclass(frozen=True, slots=True)
class PPOConfig:
    """Arguments of sb3-contrib's MaskablePPO."""

    learning_rate: float = 5e-4
    n_steps: int = 96
    """Steps per environment between updates."""
    batch_size: int = 16
    n_epochs: int = 4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    head_layers: tuple[int, ...] = (256, 64)
    """Widths of the policy and the value head."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """The length of training, and the model for it."""

    model: Mapping[str, int] = field(default_factory=dict)
    """Parameters of the zoo model changed for training on the whole graph only: few layers, deploy on many."""
    whole_graph: bool = False
    """Train a policy in episodes of rewrites of the whole graph, as X-RLflow does, in place of fine-tuning the
    universal policy."""
    total_timesteps: int = 3000
    seconds: float = 480.0
    """Wall-clock limit of training; whichever limit comes first ends it."""
    n_envs: int = 1
    episode_steps: int = 0
    """Steps that an episode takes from where it begins, which may be on the best path; 0 for `env.horizon` alone."""
    restarts: float = 0.0
    """Share of the episodes that begin on the best path found so far, 0 to 1."""
    imitation_steps: int = 0
    """Gradient steps per update towards the actions of the best path found so far."""
    eval_freq: int = 0
    """Steps between deterministic evaluation episodes; 0 for none."""
    checkpoint_freq: int = 100
    """Steps between checkpoints; a new best is saved at once."""


@dataclass(frozen=True, slots=True)
class PretrainingConfig:
    """Learning from a table of windows before PPO (`train.py --windows`): the best chains are imitated, and what each
    step saves is predicted."""

    epochs: int = 20
    """Passes over the states of the table."""
    states: int = 32
    """States of a batch."""
    learning_rate: float = 1e-3
    """Falls to a tenth of this from the first epoch to the last."""
    temperature: float = 0.03
    """Difference in the share saved below which two actions are imitated about alike: single timings of windows differ
    by more. 0 imitates the best one alone."""
    least_saved: float = 0.01
    """Share of the window's time that a step must save to be better than to stop."""
    effect_weight: float = 0.3
    """Weight of the loss of predicted effects beside that of imitation."""


@dataclass(frozen=True, slots=True)
class FineTuningConfig:
    """Learning from what was timed on this machine (`train.py --model`, `train.py --windows --from-experience`): what a
    policy that was trained before still learns."""

    search_seconds: float = 60.0
    """Seconds of the search by windows with which each round begins."""
    epochs: int = 4
    """Passes over the states of the table in each round."""
    learning_rate: float = 3e-4
    """Of imitation, falling to a tenth of this from the first pass to the last, and of PPO."""
    timesteps: int = 512
    """Steps of PPO on the table in each round."""
    rehearsed: int = 200
    """Windows of the table that ships whose decisions are repeated in every pass."""


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """The budget of one optimisation, the same for every agent."""

    measurements: int = 100
    seconds: float = 60.0
    applications: int | None = None
    """Candidates applied to a graph; none for no limit."""


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. `model` holds parameters of the zoo model: layers, seq_len, ..."""

    model: Mapping[str, int] = field(default_factory=dict)
    env: EnvConfig = field(default_factory=EnvConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    pretraining: PretrainingConfig = field(default_factory=PretrainingConfig)
    fine_tuning: FineTuningConfig = field(default_factory=FineTuningConfig)
    search: SearchConfig = field(default_factory=SearchConfig)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for YAML and JSON."""
        return dataclasses.asdict(self)


class ConfigError(UserError):
    """A setting that does not exist or has the wrong type; the message says where and what would be right."""


_POSITIVE = {"env.horizon", "ppo.n_steps", "ppo.batch_size", "ppo.n_epochs", "training.n_envs"}
"""Settings that are 1 or more."""


def load_config(model: str = "", path: str | Path | None = None, settings: Iterable[str] = ()) -> Config:
    """Load default.yaml, then the model's own file if there is one, then `path`, then the parameters in the model's
    URI, then `key=value` settings.

    Raises:
        ConfigError: an unknown key, a value of the wrong type, or a file that cannot be read.
    """
    merged: dict[str, Any] = {}
    folder = configs()
    name = zoo.name_in(model)
    sources = [folder / "default.yaml", folder / f"{name}.yaml"]
    if path is not None:
        sources.append(_existing(Path(path), folder))
    for source in sources:
        if source.is_file():
            _merge(merged, _read(source))
    _merge(merged, {"model": {key: yaml.safe_load(value) for key, value in uri_parameters(model).items()}})
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise ConfigError(f"--set {setting}: write it as key=value, such as ppo.learning_rate=1e-4")
        _merge(merged, _nested(key.strip().split("."), yaml.safe_load(text)))
    config: Config = build_settings(Config, merged, "")
    return config


def _existing(path: Path, folder: Path) -> Path:
    for candidate in (path, folder / path, folder / f"{path}.yaml"):
        if candidate.is_file():
            return candidate
    shipped = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
    raise ConfigError(f"--config {path}: no such file; {folder} has {shipped}")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not readable as YAML, name a text file of settings: {error}") from error
    if content is not None and not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold a mapping of settings, not {type(content).__name__}")
    return content or {}


def _nested(keys: list[str], value: Any) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    nested: dict[str, Any] = value
    return nested


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def build_settings(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """Make a dataclass of settings out of plain values, each of the type of its field.

    Args:
        where: the name of the group with a dot, for messages.

    Raises:
        ConfigError: an unknown key, or a value of the wrong type.
    """
    hints = get_type_hints(kind)
    arguments = {}
    for key, value in values.items():
        place = f"{where}{key}"
        if key not in hints:
            close = difflib.get_close_matches(key, hints, n=1)
            hint = f"; did you mean {where}{close[0]}?" if close else f"; there are {', '.join(hints)}"
            raise ConfigError(f"there is no setting {place}{hint}")
        arguments[key] = _convert(hints[key], value, place)
    return kind(**arguments)


def _convert(hint: Any, value: Any, place: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{place} is a group of settings: write {place}.name=value")
        return build_settings(hint, value, f"{place}.")
    origin = get_origin(hint)
    if origin is UnionType:  # X | None
        return None if value is None else _convert(get_args(hint)[0], value, place)
    if origin is Literal:
        if value not in get_args(hint):
            raise ConfigError(f"{place} must be one of {', '.join(get_args(hint))}, not {value!r}")
        return value
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_convert(get_args(hint)[0], item, place) for item in value)
    if origin is not None and isinstance(value, Mapping):
        return {str(k): _convert(get_args(hint)[1], v, f"{place}.{k}") for k, v in value.items()}
    if hint is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError as error:
            raise ConfigError(f"{place} must be a number, not {value!r}") from error
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        if isinstance(value, int) and value < 1 and place in _POSITIVE:
            raise ConfigError(f"{place} must be 1 or more, not {value}")
        return value
    raise ConfigError(f"{place} must be {getattr(hint, '__name__', hint)}, not {value!r}")


def uri_parameters(model: str) -> dict[str, str]:
    """Return the parameters in a zoo URI's query; none for files and bare names."""
    return dict(parse_qsl(model.partition("?")[2], keep_blank_values=True)) if model.startswith("zoo://") else {}


def model_uri(model: str, parameters: Mapping[str, int]) -> str:
    """Return a model URI with zoo parameters added; a file's URI is returned unchanged.

    Raises:
        ConfigError: parameters for a model that comes from a file.
    """
    if model.endswith(".onnx") or model.startswith("file:"):
        return model
    base = zoo.name_in(model)
    known = {**uri_parameters(model), **{key: str(value) for key, value in parameters.items()}}
    return f"zoo://{base}" + ("?" + "&".join(f"{k}={v}" for k, v in sorted(known.items())) if known else "")
