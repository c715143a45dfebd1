"""Plug in your own algorithm: plain REINFORCE (Williams 1992) with a linear policy over candidates, in PyTorch.

python examples/reinforce.py --model bert-tiny --episodes 30
"""

import argparse
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import rewritegym


class CandidateScorer(nn.Module):
    """A score per action from the rule behind it and its features; no graph network."""

    def __init__(self, rules: int, features: int) -> None:
        super().__init__()
        self.rule, self.features = nn.Embedding(rules, 1), nn.Linear(features, 1)
        nn.init.zeros_(self.rule.weight)

    def forward(self, observation: dict[str, np.ndarray], mask: np.ndarray) -> Tensor:
        rule = self.rule(torch.as_tensor(observation["candidate_rule"]).long())
        scores = (rule + self.features(torch.as_tensor(observation["candidate_features"]))).squeeze(-1)
        return scores.masked_fill(~torch.as_tensor(mask), -1e9)


def train(env: Any, episodes: int, seed: int = 0, learning_rate: float = 0.05) -> tuple[CandidateScorer, list[float]]:
    """Returns the policy and the total reward of each episode."""
    torch.manual_seed(seed)
    rules, features = env.observation_space["candidate_rule"], env.observation_space["candidate_features"]
    policy = CandidateScorer(int(rules.high.max()) + 1, features.shape[1])
    optimizer, returns = torch.optim.Adam(policy.parameters(), lr=learning_rate), []
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed + episode)
        log_probabilities, rewards, done = [], [], False
        while not done:
            distribution = torch.distributions.Categorical(logits=policy(observation, env.action_masks()))
            action = distribution.sample()
            log_probabilities.append(distribution.log_prob(action))
            observation, reward, terminated, truncated, _ = env.step(int(action))
            rewards.append(float(reward))
            done = terminated or truncated
        returns.append(sum(rewards))
        to_go = torch.tensor(np.cumsum(rewards[::-1])[::-1] - np.mean(returns), dtype=torch.float32)
        optimizer.zero_grad()
        (-torch.stack(log_probabilities) * to_go).sum().backward()
        optimizer.step()
        print(f"episode {episode}: reward {returns[-1]:+.2f}, best x{env.best_speedup:.3f}")
    return policy, returns


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--model", default="bert-tiny")
    cli.add_argument("--episodes", type=int, default=30)
    args = cli.parse_args()
    train(rewritegym.GraphRewriteEnv(args.model, horizon=8, feedback_every=1), args.episodes)
