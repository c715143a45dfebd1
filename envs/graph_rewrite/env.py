"""The environment `rewritegym/GraphRewrite-v0`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from envs.feature_sets import FeatureSet
from envs.graph_rewrite.episode import EpisodeSettings
from envs.graph_rewrite.episode_env import EpisodeEnv
from envs.graph_rewrite.meta_graph import MetaGraphObserver
from envs.graph_rewrite.viewer import viewer_of
from envs.observation import ObservationLimits
from envs.options import check_keywords, fields_given
from envs.problems import ProblemOptions, ProblemSource
from envs.reward import RewardFunction, XRLflowReward


class GraphRewriteOptions(ProblemOptions, total=False):
    """Keywords of `GraphRewriteEnv`, beside those of `ProblemOptions` that say how its models are opened."""

    # Of EpisodeSettings.
    horizon: int
    """Steps after which an episode is truncated; 40."""
    feedback_every: int
    """N of X-RLflow: steps from one measurement to the next; 5."""
    measure_last: bool
    """Measure the last state; without it, only every `feedback_every` steps; True."""
    given_feedback: bool
    """Measure nothing; the caller hands measurements over with `give_feedback`; False."""
    step_scale: int | None
    """Steps at which the observed `step` is 1, which it does not exceed; None for `horizon`."""
    # Of MetaGraphObserver and its limits.
    max_candidates: int
    max_nodes: int
    max_edges: int
    """Sizes that observations are padded to; 512, 4096 and 8192. Candidates that don't fit are cut from the end,
    counted in `info["candidates_cut"]`, and cannot be chosen."""
    features: FeatureSet
    """The set of features: `plain`, or `full`, which adds entries to the observation (`envs.feature_sets`); `plain`."""
    full_meta_graph: bool
    """Observe each candidate's whole graph, as the paper does; needs large limits and much time; False."""
    # Parts.
    reward_fn: RewardFunction | None
    """Computes the reward of a step; `XRLflowReward()`."""
    render_mode: str | None
    """`ansi` (a table of the steps) or `rgb_array` (a drawing); None."""


class GraphRewriteEnv(EpisodeEnv):
    """Rewrite the graph of an ONNX model, one verified substitution at a time, to make it faster.

    **Observation**: X-RLflow's meta-graph (section 3.3.2) as a dictionary of arrays, padded to the limits. `C` is
    `max_candidates`, `V` `max_nodes`, `E` `max_edges`; `envs.graph_rewrite.meta_graph` says how the
    meta-graph is built.

    | entry | dtype, shape | content |
    |---|---|---|
    | `node_op` | int32 [V] | index in `envs.vocabulary.operator_vocabulary()`; 0 is padding |
    | `node_features` | float32 [V, 10] | `envs.features.NODE_FEATURES` |
    | `node_candidate` | int32 [V] | -1 padding, 0 the current graph, k + 1 the replacement of candidate k |
    | `edge_index` | int32 [2, E] | source and target node of each edge |
    | `edge_shape` | float32 [E, 4] | shape of the tensor on the edge, divided by 4096 |
    | `candidate_rule` | int32 [C + 1] | index in `envs.vocabulary.rule_vocabulary()`; 0 is padding |
    | `candidate_features` | float32 [C + 1, 10] | `envs.observation.CANDIDATE_FEATURES` |
    | `globals` | float32 [8] | `envs.observation.GLOBAL_FEATURES` |
    | `sizes` | int32 [3] | nodes, edges and candidates in use |

    With `features="full"` there are four entries more: `node_attributes` [V, 24], `candidate_family` [C + 1],
    `candidate_details` [C + 1, 4] and `context`, whose columns `envs.attributes` and `envs.feature_sets` explain.

    **Action**: `Discrete(C + 1)`. Action k takes `env.candidates[k]`; the last one, C, is the No-Op, which is always
    legal and ends the episode. `action_masks()` is true where an action is legal: candidates that lead back to a graph
    visited in this episode are not, so inverse rules don't loop. An illegal action leaves the graph unchanged, costs
    1 and ends the episode.

    **Reward**: `reward_fn` of a `RewardContext`, by default X-RLflow's (section 3.3.3): with RT the latency,
    (RT[t-1] - RT[t]) / RT[0] * 100 on measured steps, where RT[t-1] is the last measured one; 0.1 on the steps between;
    -10 where the new graph cannot be built or run. Latency is measured every `feedback_every` steps, and always in the
    episode's last state. Latencies are relative to the original model's and are measured once per graph.

    **End**: terminated by the No-Op, by an illegal action, when no legal candidate is left, or when the new graph
    cannot be run; truncated after `horizon` steps. The result is `best_graph`, the fastest measured one.

    **Info**: `model`, `step`, `rule`, `match`, `kind`, `measured`, `latency_ms` and `speedup` (of the last measurement;
    0.0 and 1.0 before the first), `best_speedup`, `graph_hash`, `candidates`, `candidates_cut`, `illegal_action`,
    `failure` (empty, or why the new graph cannot be run: `build`, `crash`, `hang`, `oom` or `error`).

    Args:
        model: URI of a model (`zoo://bert?layers=2`, `file:model.onnx`), or several, of which `reset` draws one;
            `reset(options={"model": uri})` chooses.
        options: keywords, listed with their meaning and default in `GraphRewriteOptions` and `ProblemOptions`.

    Scripts, configurations and `gymnasium.make` pass plain keywords, so this class takes them, and sorts them into the
    parts that `EpisodeEnv` is made of: `ProblemSource`, `EpisodeSettings`, `MetaGraphObserver`, a reward function and
    an `EpisodeViewer`. To replace a part by another, make an `EpisodeEnv`.

    Raises:
        UserError: no such model, or a value that a keyword does not take.
        TypeError: there is no such keyword.

    Example:
        >>> env = GraphRewriteEnv(model="zoo://bert-tiny", horizon=5)
        >>> observation, info = env.reset(seed=0)
        >>> done = False
        >>> while not done:
        ...     action = env.np_random.choice(np.flatnonzero(env.action_masks()))
        ...     observation, reward, terminated, truncated, info = env.step(action)
        ...     done = terminated or truncated
        >>> info["best_speedup"]  # doctest: +SKIP
    """

    def __init__(self, model: str | Sequence[str] = "zoo://bert", **options: Unpack[GraphRewriteOptions]) -> None:
        check_keywords("GraphRewriteEnv", options, GraphRewriteOptions.__optional_keys__)
        viewer = viewer_of(options.get("render_mode"))
        limits = ObservationLimits(**fields_given(options, ObservationLimits))
        settings = EpisodeSettings(**fields_given(options, EpisodeSettings))
        observer = MetaGraphObserver(limits, **fields_given(options, MetaGraphObserver))
        reward_fn = options.get("reward_fn") or XRLflowReward()
        super().__init__(ProblemSource.from_options(model, options), settings, observer, reward_fn, viewer)
