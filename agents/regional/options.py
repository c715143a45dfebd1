"""The settings of search by windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from agents.regional.prior import PriorName
from graph_rewrite.errors import UserError
from graph_rewrite.latency import Plan

SCAN = Plan(instances=1, min_instances=1, min_pairs=3, max_pairs=8, warmup=2, target_ci_width=0.02, budget_s=0.15)
CAREFUL = Plan(instances=2, min_instances=2, min_pairs=3, max_pairs=10, warmup=1, target_ci_width=0.01, budget_s=0.4)


@dataclass(frozen=True, slots=True)
class RegionalOptions:
    """Settings of the agent `regional`; as options of its name: `regional:depth=2,climb=false`.

    Raises:
        UserError: an option out of range.
    """

    depth: int = 3
    """Most rewrites in a chain."""
    margin: int = 3
    """Neighbours of a site that its window takes in, in each direction."""
    rounds: int = 6
    """Most rounds."""
    gain: float = 0.002
    """Relative gain, end to end, that a round or a refinement must bring."""
    climb: bool = True
    """Climb by whole models with what the rounds leave of the budget."""
    climb_beam: int = 2
    """Graphs of a round of the climb that go on."""
    climb_depth: int = 3
    """Rounds of the climb in a row that gain nothing, after which it ends."""
    climb_lookahead: int = 2
    """Rewrites per rollout of the climb."""
    cache: bool = True
    """Keep times of windows on disk."""
    prior: PriorName = "effects"
    """What steps are hoped to save before anything is known of them: `constants`, which `optimism` and `doubt` set;
    `means` of what the same rules saved in other models; what the model of `effects` predicts of the window, with what
    is known of it on this kind of machine; constants stand in for rules that were never timed. The `universal` policy
    also proposes whole chains, which are timed first; it needs the extra `train`."""
    experience: bool = True
    """Log what windows cost in the store of experience, unless `$REWRITEGYM_EXPERIENCE` is `off`."""

    share: float = 0.5
    """Part of what is left of the budget's seconds that a round's screen may take."""
    retiming_share: float = 0.3
    """Part of the seconds that are left after a screen for timing its best chains again."""
    refinement_share: float = 0.2
    """Part of the seconds that are left after a round's judgement for taking chains out again: each of these compares
    whole models, and finds less than what the next round's screen does."""
    curiosity_share: float = 0.1
    """Part of the seconds left, once nothing promises enough any more, for rules that were never tried: what others of
    their families gained is not the last word."""
    deployment_share: float = 0.1
    """Part of the seconds for deployment choices before the first round."""
    joining_share: float = 0.2
    """Part of the seconds that are left then for rules that others carry on, each at all its sites, likewise."""
    sweeping_share: float = 0.7
    """Part of the seconds left within which all rules must have been tried at all their sites, for that to come before
    the first round where no draft gains."""
    small: int = 50
    """Measurements of a whole graph that must fit into the time that is left for a model to count as small: beside a
    draft that gains, the original is swept too."""
    small_sweep_share: float = 0.2
    """Part of the seconds left that this may take."""
    beginning_margin: float = 0.02
    """Gain from which a deployment choice, or such a rule, is kept before the first round: what little noise says of
    it then, windows behind it repeat. Later steps of the search go over both again, with a smaller margin."""

    session_share: float = 0.2
    """Part of the seconds that the rounds leave for session settings; the climb goes on under them. On a device that is
    no CPU, also part of the seconds for settings before the first round: a CUDA graph takes away what launches cost,
    and with that most of what fewer operators would save."""

    scan: Plan = SCAN
    """Plan for timing a window: one pair of sessions. The best are timed again, and the choice end to end."""
    careful: Plan = CAREFUL
    """Plan for timing the best chains of a window again."""
    timeout_s: float = 120.0
    """Seconds without progress after which a window counts as hanging: on a busy machine large ones take long."""

    compared_sites: int = 12
    """Sites of a class, spread over the model, whose surroundings are compared for finding the usual ones."""
    most_sites: int = 500
    """Applications of a rule in one step of a whole graph; a rule that leaves its own match behind would never end."""

    draft: bool = True
    """Begin with a draft, where the model runs on a CPU and no graph to begin with is known."""
    drafting_share: float = 0.2
    """Part of the seconds that are left in which these chains are carried on by further steps."""
    drafting_hope: float = 0.1
    """Standard deviations above its mean that a forecast is hoped to reach in a draft."""
    doubting_share: float = 0.1
    """Part of the seconds that are left in which the doubtful chains of a draft are timed."""

    proposed: int = 2
    """Chains that a policy proposes in a window, each from another first step."""
    likely: float = 0.1
    """Probability that a first step must have to be proposed."""
    proposing_share: float = 0.2
    """Part of the seconds that are left in which a policy looks at windows, those first that take most of the time,
    and again in which its proposals are timed."""

    worth: float = 0.002
    """Share of the model's latency below which what a window may still gain is not looked for."""
    least_saved: float = 0.01
    """Share of its window's time that a chain must save to be looked at again."""
    most_saved: float = 0.9
    """Largest share of a window's time that a step is expected to save."""
    optimism: tuple[float, ...] = (0.3, 0.1, 0.05)
    """Share of a window's time that a rule is expected to save, as the first, second or later step of a chain, before
    anything is known of it: other first steps are tried before longer chains."""
    fading: tuple[float, float] = (0.6, 0.3)
    """Factor on that expectation for each further window, for first steps and for later ones: which first step is best
    changes with the shapes."""
    hopeful: tuple[float, ...] = (1.0, 2.0)
    """Standard deviations above its mean that a forecast of `means` is hoped to reach, first and once nothing promises
    enough any more: what is surely good comes first, and what may be good is tried too."""
    few: float = 3.0
    """Timings of a rule in other models below which it counts as never tried."""
    doubt: float = 0.8
    """Share of what is hoped of an unknown step that a bad guess may take away: the roofline knows nothing of
    layouts."""
    widest: int = 160
    """Operators that a chain may have brought in for it to be continued: larger ones were taken apart already."""
    attempt_s: float = 0.2
    """Seconds that any attempt takes, for ordering attempts by what they gain per second."""
    attempt_runs: float = 10.0
    """Runs of a window that timing it takes, for the same."""
    written_bytes_s: float = 2e8
    """Bytes of weights that are written, read and packed in a second, for the same."""

    finalists: int = 4
    """Chains of a class of sites that are timed again with care."""
    again_s: tuple[float, ...] = (4.0, 8.0)
    """Seconds for timing each of those that cannot be told apart once more, and again if they still cannot."""
    matters: float = 0.005
    """Share of the model's time that a wrong choice may cost before these seconds are worth it: two chains for all the
    feed-forward networks of a transformer differ by 3% of it, of which windows of 20 MB show half by chance."""
    doubted: float = 0.001
    """Share of the model's time that a chain must promise to be timed that long where its interval holds 0: windows of
    20 ms are known to some percent of themselves, and what saves less than that would never be taken."""

    worst_alone: float = -0.5
    """Share of its window's time that a rule may lose by itself to be tried at all its sites at once: what it costs may
    cancel."""
    error_share: float = 0.5
    """Part of the error budget that chains may use up by the estimates of their rules before outputs are compared."""

    def __post_init__(self) -> None:
        if self.depth < 1 or self.margin < 1 or self.rounds < 1:
            raise UserError(
                f"regional: depth, margin and rounds must be 1 or more, got {self.depth}, {self.margin}, {self.rounds}"
            )
        if not 0.0 < self.share < 1.0 or self.gain < 0.0:
            raise UserError(
                f"regional: share must lie between 0 and 1 and gain be 0 or more, got {self.share} and {self.gain}"
            )
        shares = (
            "retiming_share", "refinement_share", "curiosity_share", "deployment_share", "session_share",
            "joining_share", "sweeping_share", "small_sweep_share", "proposing_share", "drafting_share",
            "doubting_share", "likely",
        )  # fmt: skip
        for name in shares:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"regional: {name} must lie between 0 and 1, got {getattr(self, name)}")
        if self.prior not in get_args(PriorName):
            raise UserError(f"regional: prior must be one of {', '.join(get_args(PriorName))}, got {self.prior!r}")
        if not self.hopeful or min(self.hopeful) < 0.0:
            raise UserError(f"regional: hopeful must be numbers of 0 or more, got {self.hopeful}")
        for name in ("climb_beam", "climb_depth", "compared_sites", "most_sites", "finalists", "proposed"):
            if getattr(self, name) < 1:
                raise UserError(f"regional: {name} must be 1 or more, got {getattr(self, name)}")


DEFAULTS = RegionalOptions()
