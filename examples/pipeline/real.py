"""The real data, made up: customers as a table, and their notes as text. The same on every call."""

import numpy as np

COLUMNS = ("age", "income", "visits")


def table(count: int = 4000) -> np.ndarray:
    """Two kinds of customers; income goes with age, visits go against income."""
    generator = np.random.default_rng(7)
    young = generator.random((count, 1)) < 0.6
    age = np.where(young, generator.normal(31, 5, (count, 1)), generator.normal(58, 7, (count, 1)))
    income = 900 * age + generator.normal(0, 6000, (count, 1)) + np.where(young, 0, 12000)
    visits = np.maximum(0, 30 - income / 4000 + generator.normal(0, 3, (count, 1)))
    return np.concatenate([age, income, visits], axis=1)


def notes(count: int = 3000) -> str:
    generator = np.random.default_rng(11)
    subjects = ("the train", "a passenger", "the driver", "our guard", "the last coach")
    verbs = ("stops at", "waits for", "leaves", "whistles at", "returns to")
    places = ("the station", "the bridge", "a small town", "the tunnel", "the coast")
    lines = (
        f"{generator.choice(subjects)} {generator.choice(verbs)} {generator.choice(places)}." for _ in range(count)
    )
    return "\n".join(lines) + "\n"
