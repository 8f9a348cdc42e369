"""Reinforcement learning: a policy that draws its actions from validated distributions, in an environment in Python."""

import random

import torch
from torch import nn
from torch.distributions import Categorical

NUM_ENVIRONMENTS, NUM_TIMES, NUM_FEATURES, NUM_ACTIONS = 16, 20, 8, 4


def react(state: list[float], action: int) -> tuple[list[float], float]:
    """Return the next state of an environment, and the reward."""
    moved = [0.9 * value + 0.1 * random.gauss(0, 1) for value in state]
    moved[action] += 0.5
    return moved, -abs(sum(moved))


model = nn.Sequential(nn.Linear(NUM_FEATURES, 64), nn.Tanh(), nn.Linear(64, NUM_ACTIONS))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
states = [[0.0] * NUM_FEATURES for _ in range(NUM_ENVIRONMENTS)]
for _ in range(100_000):
    log_probabilities, rewards = [], []
    for _ in range(NUM_TIMES):
        policy = Categorical(logits=model(torch.tensor(states)))
        actions = policy.sample()
        results = [react(state, action) for state, action in zip(states, actions.tolist(), strict=True)]
        states = [state for state, _ in results]
        log_probabilities.append(policy.log_prob(actions))
        rewards.append(torch.tensor([reward for _, reward in results]))
    returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
    optimizer.zero_grad()
    (-torch.stack(log_probabilities) * (returns - returns.mean())).mean().backward()
    optimizer.step()
