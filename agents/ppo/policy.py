"""The actor-critic: every candidate scored by one shared head, the value read from the graph's embedding.

Scores don't depend on a candidate's position (permutation-equivariant), so the policy carries over to other numbers
of candidates; MaskablePPO takes it where the pieces that assume flat features are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from agents.ppo.encoder import GraphEncoder
from agents.ppo.heap import keep_freed_memory

_ALIASES = ("pi_features_extractor.", "vf_features_extractor.")


class CandidateHeads(nn.Module):
    """Policy head over each candidate's row; value head over the mean row of what is there."""

    def __init__(self, width: int, layers: tuple[int, ...]) -> None:
        super().__init__()
        self.actor = nn.Sequential(*_mlp(width, layers))
        self.score = nn.Linear(layers[-1], 1)
        self.critic = nn.Sequential(*_mlp(width, layers))
        self.latent_dim_pi, self.latent_dim_vf = width, layers[-1]

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        """Logits [B, A + 1] from rows [B, A + 1, width]."""
        logits: Tensor = self.score(self.actor(features)).squeeze(-1)
        return logits

    def forward_critic(self, features: Tensor) -> Tensor:
        """Latent [B, layers[-1]]: the No-Op's row holds the graph's embedding and nothing of a candidate."""
        latent: Tensor = self.critic(features[:, -1])
        return latent


class CandidatePolicy(MaskableActorCriticPolicy):
    """MaskablePPO's policy with `GraphEncoder` features. `head_layers` are the widths of both heads ([256, 64] in
    X-RLflow, appendix A)."""

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        *,
        head_layers: tuple[int, ...] = (256, 64),
        features_extractor_kwargs: dict[str, Any] | None = None,
        use_sde: bool = False,
    ) -> None:
        # MaskablePPO passes nothing else; its policies never use state-dependent exploration.
        del use_sde
        self.head_layers = tuple(head_layers)
        keep_freed_memory()
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            features_extractor_class=GraphEncoder,
            features_extractor_kwargs=features_extractor_kwargs,
            normalize_images=False,
        )

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = CandidateHeads(self.features_dim, self.head_layers)  # type: ignore[assignment]

    @property
    def heads(self) -> CandidateHeads:
        """Both heads; the name that SB3 gives them is for other networks."""
        heads = self.mlp_extractor
        assert isinstance(heads, CandidateHeads)
        return heads

    def _build(self, lr_schedule: Schedule) -> None:
        self._build_mlp_extractor()
        self.action_net = nn.Identity()
        self.value_net = nn.Linear(self.head_layers[-1], 1)
        # Near-uniform at first: exploration begins without preferences.
        last = self.heads.score
        nn.init.orthogonal_(last.weight, gain=0.01)
        nn.init.zeros_(last.bias)
        options: dict[str, Any] = {"lr": lr_schedule(1.0), **self.optimizer_kwargs}
        self.optimizer = self.optimizer_class(self.parameters(), **options)

    def weights(self) -> dict[str, Tensor]:
        """The state dict with the encoder once: actor and critic share it, and it has three names in PyTorch."""
        return {key: tensor for key, tensor in self.state_dict().items() if not key.startswith(_ALIASES)}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Inverse of `weights`. Raises RuntimeError for missing, unexpected or misshapen tensors."""
        encoder = {key: tensor for key, tensor in weights.items() if key.startswith("features_extractor.")}
        aliases = {f"{alias}{key.partition('.')[2]}": tensor for key, tensor in encoder.items() for alias in _ALIASES}
        self.load_state_dict({**weights, **aliases})

    @torch.no_grad()
    def action_probabilities(self, observation: dict[str, Any], mask: Any) -> Tensor:
        """Probabilities [A + 1] of one unbatched observation under a mask."""
        self.set_training_mode(False)
        tensors, _ = self.obs_to_tensor(observation)
        distribution = self.get_distribution(tensors, action_masks=mask)
        probabilities: Tensor = distribution.distribution.probs[0]  # type: ignore[union-attr]
        return probabilities


def _mlp(width: int, layers: tuple[int, ...]) -> list[nn.Module]:
    modules: list[nn.Module] = []
    for size in layers:
        modules += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return modules
