"""What a metric is, by its name: whether it should fall, whether it is of validation, and which two belong together."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from whistlestop.diagnosis.evidence import Series

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VALIDATION = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "dev", "holdout", "heldout"})
_TRAINING = frozenset({"train", "training", "tr"})
_FILLING = frozenset({"epoch", "step", "batch", "iter", "avg", "average", "mean", "smoothed", "running", "total", "0"})
_FALLS = frozenset(
    {
        "losses",
        "perplexity",
        "ppl",
        "error",
        "err",
        "nll",
        "mse",
        "mae",
        "rmse",
        "bce",
        "ce",
        "xent",
        "wer",
        "cer",
        "cost",
        "bpb",
        "bpc",
        "crossentropy",
        "objective",
    }
)
_RISES = frozenset(
    {
        "accuracy",
        "acc",
        "auc",
        "f1",
        "score",
        "reward",
        "return",
        "bleu",
        "rouge",
        "precision",
        "recall",
        "iou",
        "map",
        "elbo",
        "r2",
        "top1",
    }
)
# A loss by name that is a knob or a count, and has no reason to fall.
_KNOBS = frozenset(
    {
        "scale",
        "scaler",
        "weight",
        "weights",
        "coef",
        "coefficient",
        "lambda",
        "count",
        "norm",
        "lr",
        "ratio",
        "factor",
        "bytes",
        "seconds",
    }
)
# Two sides of a game, or parts that are held against each other: they rise and fall as they like.
_GAME = frozenset(
    {
        "g",
        "d",
        "gen",
        "generator",
        "disc",
        "discriminator",
        "critic",
        "actor",
        "policy",
        "pg",
        "value",
        "vf",
        "v",
        "q",
        "entropy",
        "adv",
        "adversarial",
        "kl",
        "kld",
        "surrogate",
        "advantage",
        "alpha",
        "fake",
        "real",
        "pi",
    }
)
_REWARD = frozenset({"reward", "rewards", "return", "returns", "episode", "episodic"})
_RATE = frozenset({"lr", "learningrate"})


@dataclass(frozen=True)
class Name:
    words: frozenset[str]
    stem: tuple[str, ...]  # what is left without "val", "train", "epoch": twins have the same

    @property
    def validation(self) -> bool:
        return bool(self.words & _VALIDATION)

    @property
    def game(self) -> bool:
        return bool(self.words & _GAME)

    @property
    def reward(self) -> bool:
        return bool(self.words & _REWARD)

    @property
    def rate(self) -> bool:
        return bool(self.words & _RATE) or {"learning", "rate"} <= self.words

    @property
    def falls(self) -> bool:
        """It gets better by falling."""
        if self.words & _KNOBS:
            return False
        return bool(self.words & _FALLS) or any(word.endswith("loss") for word in self.words)

    @property
    def rises(self) -> bool:
        return bool(self.words & _RISES) and not self.falls


@lru_cache(maxsize=4096)
def read(name: str) -> Name:
    words = tuple(word.lower() for word in _WORD.findall(name))
    marks = _VALIDATION | _TRAINING | _FILLING
    return Name(frozenset(words), tuple(word for word in words if word not in marks) or words)


def sign(series: Series, aims: Mapping[str, str]) -> int:
    """1: better by falling, -1: better by rising, 0: nobody knows."""
    match aims.get(series.name):
        case "min":
            return 1
        case "max":
            return -1
    name = read(series.name)
    return 1 if name.falls else -1 if name.rises else 0


def losses(series: Iterable[Series], aims: Mapping[str, str]) -> list[Series]:
    """The training's own that should fall, the one that stands for all of them first."""
    found = [each for each in series if sign(each, aims) == 1 and not read(each.name).validation]
    return sorted(found, key=lambda each: (len(read(each.name).stem), -len(each.steps), each.name))


def is_game(series: Sequence[Series]) -> bool:
    """Adversaries, or reinforcement learning: its losses need not fall."""
    names = [read(each.name) for each in series if each.kind == "program"]
    return any(name.reward for name in names) or sum(name.falls and name.game for name in names) > 1


def twin(validation: Series, training: Iterable[Series]) -> Series | None:
    """Of several the one with the most points."""
    stem = read(validation.name).stem
    same = [each for each in training if read(each.name).stem == stem and not read(each.name).validation]
    return max(same, key=lambda each: (len(each.steps), each.name), default=None)
