"""The policy at work: what it sees of any model's windows, what it may choose, and the agent that acts with it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents import policy_agent
from agents.core.base import Budget, Search
from agents.core.config import EnvConfig
from agents.core.registry import make_agent
from agents.effects.prior import LearntPrior, StepObserver
from agents.effects.samples import samples_of
from agents.effects.step_means import StepMeans
from agents.mcts.agent import MCTSAgent
from agents.mcts.savings import SavingsGuide
from agents.mcts.states import EnvState
from agents.policy_agent import PolicyAgent
from agents.ppo.acting import acting_env
from agents.ppo.agent import PPOAgent
from agents.ppo.checkpoint import load_checkpoint
from agents.ppo.description import CheckpointError
from agents.regional.agent import RegionalAgent
from agents.regional.prior import ProposingPrior, prior_of, proposing
from agents.universal.observations import unmeasured
from agents.universal.opinion import Opinion
from agents.universal.prior import UniversalPrior
from envs.feature_sets import CONTEXT
from envs.observation import Observation, ObservationLimits
from envs.vocabulary import rule_vocabulary
from envs.window import WindowTable, WindowTableEnv
from envs.window.tabulation import tabulate
from graph_rewrite.errors import UserError
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.site_windows import SiteClass, site_classes
from tests.agents.regional.exact_timer import ExactTimer
from tests.agents.toys import chain_problem, costs_of_all, graph_cost
from tests.envs.window.drawn import DrawnTimer, convolutions, drawn_labels
from tests.repository import run_python


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """A few convolutions."""
    return convolutions(tmp_path_factory.mktemp("convolutions"))


@pytest.fixture(scope="module")
def prior(trained: Path) -> UniversalPrior:
    return UniversalPrior(load_checkpoint(trained), Deployment())


def first_steps(problem: Problem) -> list[list[Candidate]]:
    """The first steps of each window."""
    groups: dict[frozenset[int], list[SiteClass]] = {}
    for one in site_classes(problem.rewriter, problem.model.graph):
        groups.setdefault(frozenset(one.window.nodes), []).append(one)
    return [[Candidate("site", same[0].window, one.sites[:1]) for one in same] for same in groups.values()]


def described(observation: Observation) -> tuple[Any, ...]:
    """Parts that two observations have in common whose steps are in another order."""
    nodes, _, steps = observation["sizes"]
    own = observation["node_candidate"][:nodes] == 0
    rows = sorted(zip(observation["candidate_rule"][:steps].tolist(), observation["candidate_family"].tolist()))  # noqa: B905
    details = np.sort(observation["candidate_details"][:steps], axis=0).round(4).tolist()
    return (
        observation["sizes"].tolist(), observation["node_op"][:nodes][own].tolist(), rows, details,
        observation["globals"].round(5).tolist(), observation["context"].round(5).tolist(),
    )  # fmt: skip


def test_at_work_it_sees_what_it_saw_in_training(problem: Problem, tmp_path: Path) -> None:
    table = tabulate(drawn_labels(problem, tmp_path, DrawnTimer()), problem.rewriter).table
    learnt = [
        described(unmeasured(sample.observation, sample.depth)) for sample in samples_of(table) if sample.depth == 0
    ]
    observer, seen = StepObserver(Deployment()), []
    for steps in first_steps(problem):
        _, sample = observer.observed(steps, 0.0, 0)
        assert sample is not None
        seen.append(described(unmeasured(sample.observation, 0)))
    assert len(seen) > 2
    assert all(one in learnt for one in seen)


def test_cores_of_the_machine_are_not_seen(table: WindowTable) -> None:
    """Tables are timed on one core: of a machine with more, a policy would see what it never saw."""
    sample, cores = next(samples_of(table)), CONTEXT.index("cores")
    context = sample.observation["context"].copy()
    context[cores] = 0.6
    one, other = (
        unmeasured(seen, 0)["context"] for seen in (sample.observation, {**sample.observation, "context": context})
    )
    assert one.tolist() == other.tolist()
    assert context[cores] == np.float32(0.6)


def test_nothing_that_was_measured_is_seen(shipped: WindowTable, table: WindowTable) -> None:
    """Two tables that differ only in what was measured look the same along any path."""
    from agents.universal.observations import UnmeasuredWindows

    one, other = (UnmeasuredWindows(WindowTableEnv(each)) for each in (shipped, table))
    rewards, steps = [], 0
    for seed in range(60):
        seen, same = one.reset(seed=seed)[0], other.reset(seed=seed)[0]
        done = False
        while not done:
            assert all(np.array_equal(seen[name], same[name]) for name in seen)
            action = int(np.random.default_rng([seed, steps]).choice(np.flatnonzero(one.action_masks())))
            seen, mine, *ended, _ = one.step(action)
            same, its, *_ = other.step(action)
            rewards.append((float(mine), float(its)))
            done, steps = any(ended), steps + 1
    assert steps > 60
    assert any(mine != its for mine, its in rewards)


def test_opinions_are_probabilities_of_rules_that_training_offered(problem: Problem, trained: Path) -> None:
    checkpoint = load_checkpoint(trained)
    assert checkpoint.description.offered is not None
    everything = {step.rule for steps in first_steps(problem) for step in steps}
    for offered in (("<no-op>", *everything), ("<no-op>", "Winograd2x2")):
        policy = UniversalPrior(
            replace(checkpoint, description=replace(checkpoint.description, offered=offered)), Deployment()
        )  # fmt: skip
        for steps in first_steps(problem):
            seen = policy.opinion(steps, 0)
            assert seen is not None
            assert seen.probabilities.sum() == pytest.approx(1.0)
            assert len(seen.probabilities) == len(steps) + 1 == len(seen.effects) + 1
            for step, probability in zip(steps, seen.probabilities[:-1], strict=True):
                assert (probability > 0.0) == (step.rule in offered)
    assert set(rule_vocabulary()) > set(checkpoint.description.offered)


def test_hopes_are_predicted_savings(problem: Problem, prior: UniversalPrior) -> None:
    for steps in first_steps(problem):
        seen = prior.opinion(steps, 1)
        assert seen is not None
        for number, hope in enumerate(prior.hopes(steps, 0.25, 1)):
            assert hope is not None
            assert hope == pytest.approx(seen.saving(number, 0.25, 0.3))
            assert hope > (seen.saving(number, 0.25) or 0.0)


def test_large_steps_are_not_looked_at(problem: Problem, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.effects.prior.LIMITS", ObservationLimits(1, 4096, 16384))
    policy = UniversalPrior(load_checkpoint(trained), Deployment())
    steps = max(first_steps(problem), key=len)
    assert len(steps) > 1
    seen = policy.opinion(steps, 0)
    assert seen is not None
    assert np.isfinite(seen.effects).tolist() == [True] + [False] * (len(steps) - 1)
    assert not seen.probabilities[1:-1].any()
    assert policy.hopes(steps, 0.0, 0)[1:] == [None] * (len(steps) - 1)
    monkeypatch.setattr("agents.effects.prior.LIMITS", ObservationLimits(1, 1, 1))
    small = UniversalPrior(load_checkpoint(trained), Deployment())
    assert small.opinion(steps, 0) is None
    assert small.hopes(steps, 0.0, 0) == [None] * len(steps)
    assert small.opinion([], 0) is None


@pytest.mark.parametrize(
    ("probabilities", "choice", "likeliest"),
    [((0.2, 0.5, 0.3), 1, [1, 0]), ((0.2, 0.3, 0.5), None, [1, 0]), ((0.5, 0.0, 0.5), None, [0])],
)
def test_the_likeliest_step_is_chosen_unless_to_stop_is_as_likely(
    probabilities: Sequence[float], choice: int | None, likeliest: list[int]
) -> None:
    opinion = Opinion(np.array(probabilities), np.zeros(2), np.zeros(2))
    assert opinion.choice == choice
    assert opinion.likeliest(2, 0.1) == likeliest
    assert opinion.likeliest(1, 0.1) == likeliest[:1]


def test_the_agent_acts_by_windows_with_a_policy_of_windows(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer = ExactTimer()
    monkeypatch.setattr(RegionalAgent, "_timer", lambda *_: timer)
    monkeypatch.setenv("REWRITEGYM_EXPERIENCE", "off")
    problem = chain_problem(tmp_path, 2)
    result = PolicyAgent(trained).optimize(problem, Budget(measurements=60, seconds=60.0))
    assert graph_cost(result.graph) == costs_of_all(2)[0]
    assert result.verified
    assert result.agent == "ppo"
    assert f"chains proposed by {trained}, trained on " in result.message
    assert timer.asked


def test_a_model_without_a_policy_of_its_own_has_the_universal_one(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_agent, "checkpoints", lambda: tmp_path)
    (tmp_path / "universal").symlink_to(trained)
    monkeypatch.setattr(RegionalAgent, "_timer", lambda *_: ExactTimer())
    monkeypatch.setenv("REWRITEGYM_EXPERIENCE", "off")
    problem, budget = chain_problem(tmp_path, 2), Budget(measurements=60, seconds=60.0)
    assert f"chains proposed by {tmp_path / 'universal'}" in PolicyAgent().optimize(problem, budget).message
    # Rollouts in the whole graph are asked for, or no policy of windows is there.
    assert "an untrained policy" in make_agent("ppo:sampled=false").optimize(problem, budget).message
    (tmp_path / "universal").unlink()
    assert "an untrained policy" in PolicyAgent().optimize(problem, budget).message


def test_pytorch_is_imported_only_once_the_policy_is_asked(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import sys; from agents import policy_agent as p; p.PolicyAgent(sys.argv[1]); print('torch' in sys.modules)"
    done = run_python("-c", code, str(trained))
    assert done.stdout.strip() == "False", done.stderr
    monkeypatch.setattr(RegionalAgent, "_timer", lambda *_: ExactTimer())
    problem, loaded = chain_problem(tmp_path, 2), list[Deployment]()
    monkeypatch.setattr(UniversalPrior, "__init__", lambda _, checkpoint, deployment: loaded.append(deployment))
    result = PolicyAgent(trained).optimize(problem, Budget(measurements=60, seconds=0.0))
    assert f"no time was left for chains that {trained} proposes" in result.message
    assert loaded == []


def test_a_damaged_checkpoint_is_refused_before_the_search(trained: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(trained, tmp_path / "damaged")
    weights = damaged / "policy.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="is it complete"):
        PolicyAgent(damaged)


def test_what_fits_no_policy_of_windows_is_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sampled is for policies of whole models.*trained on windows"):
        make_agent(f"ppo:checkpoint={trained},sampled=false")
    problem, budget = chain_problem(tmp_path, 1), Budget(measurements=5, seconds=10.0)
    with pytest.raises(CheckpointError, match=r"trained on windows, not on whole graphs: agent ppo acts with it"):
        PPOAgent(load_checkpoint(trained)).optimize(problem, budget)


def test_a_tree_search_takes_the_policy_as_its_prior(trained: Path, problem: Problem) -> None:
    search = Search(problem, Budget(measurements=5, seconds=60.0))
    env = acting_env(problem, EnvConfig())
    state = EnvState(env, env.reset()[0])
    guide = MCTSAgent(trained)._guide(search, env, load_checkpoint(trained))
    assert isinstance(guide, SavingsGuide)
    priors = guide.priors(state, np.random.default_rng(0))
    assert priors.keys() == set(np.flatnonzero(env.action_masks()[:-1]).tolist())
    assert len(set(priors.values())) > 2
    prior = UniversalPrior(load_checkpoint(trained), problem.deployment)
    # It is asked about the windows that the search by windows asks it about.
    hopes = {
        one.sites[0].class_key: len(one.sites) * one.seconds * (prior.hopes([step], 0.0, 0)[0] or 0.0)
        for one in site_classes(problem.rewriter, problem.model.graph)
        for step in [Candidate("site", one.window, one.sites[:1])]
    }
    promising = max(hopes, key=lambda key: hopes[key])
    assert state.env.candidates[next(iter(priors))].site.class_key == promising


def test_the_policy_is_a_prior_of_the_search_by_windows(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make_agent("regional:prior=universal").name == "regional:prior=universal"
    monkeypatch.setattr("agents.universal.prior.checkpoints", lambda: tmp_path)
    with pytest.warns(RuntimeWarning, match="constants are used"):
        assert prior_of("universal", Deployment()) is None
    (tmp_path / "universal").symlink_to(trained)
    prior = prior_of("universal", Deployment())
    assert isinstance(prior, ProposingPrior)
    assert isinstance(prior.policy, UniversalPrior)
    assert isinstance(prior.others, LearntPrior)
    assert isinstance(proposing(prior.policy, Deployment("openvino")).others, StepMeans)  # type: ignore[union-attr]
    monkeypatch.setattr("agents.effects.own_means.SHIPPED", tmp_path / "none.json")
    with pytest.warns(RuntimeWarning, match="the policy alone predicts"):
        assert isinstance(prior_of("universal", Deployment()), UniversalPrior)


def test_the_policy_that_ships_has_opinions_of_any_model(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows that convolutions of a Zen 4 gain where those of a Xeon with fast products of matrices do not."""
    policy = UniversalPrior.shipped(Deployment())
    assert policy.checkpoint.description.left_out == ()
    chances = []
    for device in (
        "AMD EPYC, cpu family 25, model 17, stepping 1 [avx2 fma avx512f]",
        "Intel(R) Xeon(R) Processor, cpu family 6, model 167, stepping 1 [avx2 fma avx512_fp16 avx_vnni amx_tile]",
    ):
        monkeypatch.setattr("envs.graph_rewrite.details.device_name", lambda provider, name=device: name)
        seen = [policy.opinion(steps, 0) for steps in first_steps(problem)]
        assert all(one is not None and one.probabilities.sum() == pytest.approx(1.0) for one in seen)
        chances.append([1.0 - one.probabilities[-1] for one in seen if one is not None])
    assert sum(chances[0]) > 1.3 * sum(chances[1]) > 0.0
