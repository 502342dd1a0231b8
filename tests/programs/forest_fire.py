"""A forest that burns: trees catch fire from their neighbours, on a board that is rolled."""

import numpy as np

EMPTY, TREE, FIRE = 0, 1, 2


def main(forest, chances, steps=6):
    burnt = []
    for step in range(steps):
        fire = forest == FIRE
        near = np.roll(fire, 1, 0) | np.roll(fire, -1, 0) | np.roll(fire, 1, 1) | np.roll(fire, -1, 1)
        catches = (forest == TREE) & near & (chances[step] < 0.9)
        grows = (forest == EMPTY) & (chances[step] < 0.02)
        forest = np.select([fire, catches, grows], [EMPTY, FIRE, TREE], default=forest)
        burnt.append(np.count_nonzero(forest == FIRE))
    return forest, np.array([int(n) for n in burnt])


def example():
    rng = np.random.default_rng(11)
    return rng.choice([EMPTY, TREE, TREE, TREE, FIRE], (7, 8)), rng.random((6, 7, 8))
