"""Which cases the library has: of every kind some for tuning and some held out, which differ in model, size, names,
rates, and in the errors and where they are raised. Nothing here is random from one recording to the next."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whistlestop.diagnosis.findings import Cause

HEALTHY = "healthy"
TUNING, HELD_OUT = "tuning", "held_out"
SPLITS = (TUNING, HELD_OUT)
Config = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    name: str
    kind: str  # the mechanism or the shape
    label: str  # a Cause, or healthy
    split: str
    case: Mapping[str, Any]  # what the program reads
    phase: Mapping[str, Any] = field(default_factory=dict)  # of the spec
    cut: float = 0.0  # looked at while it runs, when it has made this part of its steps; 0: at its end
    act: str = ""  # what somebody does to it at step `at`: a signal, pause, stop
    at: int = 0
    park: float = 0.0  # looked at while it runs, when it has made no step for so many seconds
    replayed: bool = False  # it says what a library would say


def plans(count: int | None = None, kinds: Sequence[str] = ()) -> list[Plan]:
    """All of them, or of every mechanism at most so many of each split."""
    found = [*_faulty(), *_healthy()]
    if kinds:
        found = [plan for plan in found if plan.kind in kinds or plan.label in kinds]
    if count is None:
        return found
    kept: list[Plan] = []
    seen: dict[tuple[str, str, str], int] = {}
    for plan in found:
        key = (plan.label, plan.kind if plan.label == HEALTHY else "", plan.split)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= count:
            kept.append(plan)
    return kept


def paces() -> list[Plan]:
    """For forecasts: how steps come over time in whole trainings."""
    return list(_paces())


# --- trainings -----------------------------------------------------------------------------------------------------

_NAMES: Mapping[str, Sequence[Config]] = {
    TUNING: ({}, {"loss": "train/loss", "val_loss": "eval/loss"}, {"loss": "train_loss"}),
    HELD_OUT: (
        {"loss": "training_loss", "val_loss": "validation_loss"},
        {"loss": "loss/train", "val_loss": "loss/val"},
        {"loss": "nll", "val_loss": "valid/nll"},
    ),
}
_BASES: Mapping[str, Sequence[Config]] = {
    TUNING: (
        {"model": "regression", "lr": 0.03, "options": {"hidden": [24], "momentum": 0.9}},
        {"model": "classes", "lr": 0.15, "options": {"hidden": []}},
        {"model": "autoencoder", "lr": 0.02, "options": {"optimizer": "adam"}},
        {"model": "factors", "lr": 0.03, "options": {}},
    ),
    HELD_OUT: (
        {"model": "regression", "lr": 0.01, "options": {"hidden": [32, 16], "optimizer": "adam", "width_in": 3}},
        {
            "model": "classes",
            "lr": 0.05,
            "options": {"hidden": [16], "kinds": 5, "momentum": 0.9, "relu": True, "size": 2000},
        },
        {"model": "recurrent", "lr": 0.01, "options": {"hidden": [14]}},
        {"model": "linear", "lr": 0.04, "options": {"width_in": 10, "batch": 16}},
    ),
}


def _base(split: str, index: int, rng: random.Random, **more: Any) -> Config:
    """A training that learns."""
    chosen = _BASES[split][index % len(_BASES[split])]
    names = _NAMES[split][index % len(_NAMES[split])]
    found = {
        **chosen,
        "options": dict(chosen["options"]),
        "split": split,
        "seed": rng.randrange(1 << 30),
        "steps": rng.choice((160, 200, 260) if split == TUNING else (140, 180, 240)),
        "names": names,
        "pace": rng.choice((0.002, 0.004)),
        "evaluate_every": rng.choice((10, 20, 25)),
    }
    if index % 3 == 2:
        found["prints"] = 20
    options = more.pop("options", {})
    found |= more
    found["options"] |= options
    return found


def _several(kind: str, label: str, count: int, make: Callable[[str, int, random.Random], Config]) -> Iterator[Plan]:
    """`make` gives the case; what it puts under `plan` are fields of the plan."""
    for split in SPLITS:
        for index in range(count):
            rng = random.Random(f"{label} {kind} {split} {index}")
            case = make(split, index, rng)
            fields = case.pop("plan", {})
            yield Plan(f"{label}/{kind}/{split}/{index}", kind, label, split, case, **fields)


# --- faults --------------------------------------------------------------------------------------------------------

_RAISED: Mapping[Cause, Sequence[tuple[str, str]]] = {
    Cause.MISSING_MODULE: (
        ("module_missing", "import"), ("module_missing_deep", "import"), ("module_missing_late", "step"),
        ("module_part_missing", "start"), ("module_old", "start"),
    ),
    Cause.MISSING_FILE: (
        ("file_missing", "start"), ("file_missing_numpy", "start"), ("file_missing_config", "import"),
        ("directory_missing", "start"), ("file_missing_late", "step"), ("torch_missing", "start"),
    ),
    Cause.NOT_ALLOWED: (
        ("not_allowed_read", "start"), ("not_allowed_write", "step"), ("not_allowed_fixed", "step"),
        ("not_allowed_token", "start"), ("not_allowed_port", "start"),
    ),
    Cause.HOST_MEMORY: (
        ("memory_numpy", "start"), ("memory_list", "step"), ("memory_bytes", "step"), ("memory_killed", "step"),
        ("torch_memory", "step"),
    ),
    Cause.DISK_FULL: (
        ("disk_device", "step"), ("disk_numpy", "step"), ("disk_pickle", "end"), ("disk_limit", "step"),
        ("disk_many", "start"),
    ),
    Cause.WRONG_CONFIG: (
        ("config_argument", "import"), ("config_type", "import"), ("config_key", "start"), ("config_shape", "step"),
        ("config_choice", "start"), ("torch_shape", "step"),
    ),
    Cause.BAD_DATA: (
        ("data_gzip", "start"), ("data_npz", "start"), ("data_json", "step"), ("data_pickle", "step"),
        ("data_number", "step"), ("torch_damaged", "start"),
    ),
    Cause.NETWORK: (
        ("network_name", "start"), ("network_refused", "start"), ("network_slow", "start"), ("network_reset", "step"),
        ("network_busy", "step"),
    ),
    Cause.CODE_ERROR: (
        ("code_index", "step"), ("code_type", "step"), ("code_attribute", "start"), ("code_assert", "step"),
        ("code_recursion", "step"), ("code_chained", "step"), ("code_name", "end"), ("code_worker", "start"),
        ("torch_twice", "step"),
    ),
    Cause.ENDED_EARLY: (
        ("exit_zero", "step"), ("exit_hard", "step"), ("exit_system", "step"), ("exit_none", "step"),
        ("exit_quiet", "step"),
    ),
    Cause.CRASHED: (
        ("crash_segv", "step"), ("crash_segv_told", "step"), ("crash_abort", "start"), ("crash_bus", "step"),
        ("crash_divide", "step"),
    ),
    Cause.SAVES_FAIL: (("save_lock", "track"), ("save_raises", "track"), ("save_full", "track")),
}  # fmt: skip
_REPLAYED: Mapping[Cause, Sequence[str]] = {
    Cause.DEVICE_MEMORY: ("replay_cuda_memory", "replay_cuda_memory_old", "replay_cublas_memory"),
    Cause.DEVICE_FAULT: ("replay_illegal_address", "replay_ecc", "replay_lost"),
    Cause.COMMUNICATION: ("replay_nccl_timeout", "replay_nccl_remote"),
    Cause.DISK_FULL: ("replay_quota",),
}
_HANGS = ("stuck_lock", "stuck_queue", "stuck_sleep", "stuck_socket", "stuck_process", "stuck_spinning")


def _faulty() -> Iterator[Plan]:
    yield from _curves()
    yield from _pace_faults()
    for cause, several in _RAISED.items():
        for name, when in several:
            yield from _several(name, cause, _times(cause), _raises(name, when, cause))
    for cause, names in _REPLAYED.items():
        for name in names:
            yield from _several(name, cause, 1 if cause is Cause.DISK_FULL else 2, _replays(name))
    yield from _ends()


def _times(cause: Cause) -> int:
    """Of each mechanism and split."""
    return 2 if cause in (Cause.HOST_MEMORY, Cause.SAVES_FAIL) else 1


def _raises(name: str, when: str, cause: Cause) -> Callable[[str, int, random.Random], Config]:
    def make(split: str, index: int, rng: random.Random) -> Config:
        steps = rng.choice((60, 90, 120))
        made = _base(split, index + len(name), rng, fault=name, when=when, steps=steps, at=rng.randrange(5, steps - 5))
        if cause is Cause.SAVES_FAIL:
            made["save_every"] = "10 steps"
        return made

    return make


def _replays(name: str) -> Callable[[str, int, random.Random], Config]:
    def make(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng, fault=name, when="step", steps=60, at=rng.randrange(3, 50))
        return {**made, "plan": {"replayed": True}}

    return make


def _live(index: int, *, cut: float = 0.85) -> Config:
    """Every second one is looked at while it runs."""
    return {"plan": {"cut": cut}} if index % 2 else {}


def _curves() -> Iterator[Plan]:
    """What is wrong with a curve. Each by several mechanisms."""

    def too_fast(split: str, index: int, rng: random.Random) -> Config:
        """Least squares with a rate far too large: infinite within a hundred steps."""
        lr = rng.uniform(3.0, 6.0) if split == TUNING else rng.uniform(8.0, 15.0)
        return {**_base(split, index, rng, model="linear", lr=lr, options=_plain(), evaluate_every=0), **_live(index)}

    def log_of_zero(split: str, index: int, rng: random.Random) -> Config:
        options = {"raw_log": True, "hidden": [] if split == TUNING else [8], "apart": 4.0, "optimizer": "sgd",
                   "momentum": 0.0, "flipped": 0.2}  # fmt: skip
        lr = 400.0 if split == TUNING else 900.0
        return {**_base(split, index, rng, model="classes", lr=lr, options=options), **_live(index)}

    def bad_sample(split: str, index: int, rng: random.Random) -> Config:
        return {**_base(split, index % 2, rng, options={"bad_sample_at": rng.randrange(20, 90)}), **_live(index)}

    def too_narrow(split: str, index: int, rng: random.Random) -> Config:
        return _base(split, 0, rng, half=1.13 if split == TUNING else 1.2)

    def by_zero(split: str, index: int, rng: random.Random) -> Config:
        return {**_base(split, index, rng, ratio=True, at=rng.randrange(40, 120)), **_live(index)}

    yield from _several("rate_far_too_large", Cause.NON_FINITE, 3, too_fast)
    yield from _several("log_of_zero", Cause.NON_FINITE, 2, log_of_zero)
    yield from _several("bad_sample", Cause.NON_FINITE, 2, bad_sample)
    yield from _several("narrow_numbers", Cause.NON_FINITE, 1, too_narrow)
    yield from _several("division_by_zero", Cause.NON_FINITE, 2, by_zero)

    def above_limit(split: str, index: int, rng: random.Random) -> Config:
        """Just above what least squares bears: it grows and grows, and stays finite."""
        over = rng.uniform(1.02, 1.05) if split == TUNING else rng.uniform(1.015, 1.035)
        options = _plain(width_in=8 if split == TUNING else 12, whole=True)
        return {**_base(split, index, rng, model="linear", over=over, options=options), **_live(index)}

    def rises_late(split: str, index: int, rng: random.Random) -> Config:
        """It learns well, and then a schedule that was written down wrongly drives the rate up."""
        factor = rng.uniform(1.029, 1.033)
        made = _base(split, index, rng, model="linear", lr=0.05, schedule="exponential", steps=220,
                     options=_plain(batch=64))  # fmt: skip
        return {**made, "factor": factor, "from": 90, **_live(index, cut=0.97)}

    yield from _several("rate_too_large", Cause.DIVERGING, 4, above_limit)
    yield from _several("rate_rises", Cause.DIVERGING, 4, rises_late)

    def no_rate(split: str, index: int, rng: random.Random) -> Config:
        return {**_base(split, index, rng, lr=0.0), **_live(index)}

    def no_parameters(split: str, index: int, rng: random.Random) -> Config:
        return {**_base(split, index, rng, options={"detached": True}), **_live(index)}

    def random_labels(split: str, index: int, rng: random.Random) -> Config:
        made = _base(
            split, 1, rng, options={"random_labels": True, "init": 0.05, "hidden": [] if split == TUNING else [10]}
        )
        return {**made, "lr": 0.01, **_live(index)}

    def dead_units(split: str, index: int, rng: random.Random) -> Config:
        """The rate is a thousand times too small: it would take days."""
        return {**_base(split, index, rng, lr=1e-7 if split == TUNING else 1e-8), **_live(index)}

    yield from _several("no_rate", Cause.NOT_DECREASING, 3, no_rate)
    yield from _several("optimizer_without_parameters", Cause.NOT_DECREASING, 2, no_parameters)
    yield from _several("random_labels", Cause.NOT_DECREASING, 2, random_labels)
    yield from _several("rate_too_small", Cause.NOT_DECREASING, 2, dead_units)

    def by_heart(split: str, index: int, rng: random.Random) -> Config:
        """A network with far more weights than samples, and noisy labels."""
        hidden = [64, 32] if split == TUNING else [40, 40]
        options = {
            "size": 40,
            "hidden": hidden,
            "noise": 0.7,
            "optimizer": "adam",
            "width_in": 2,
            "batch": 40,
            "init": 0.5,
        }
        made = _base(split, index, rng, model="regression", lr=0.03, options=options, steps=600, evaluate_every=10)
        return {**made, "pace": 0.002, **_live(index)}

    def by_heart_classes(split: str, index: int, rng: random.Random) -> Config:
        options = {"size": 30, "hidden": [64] if split == TUNING else [48, 24], "flipped": 0.4, "optimizer": "adam",
                   "batch": 15, "apart": 1.0}  # fmt: skip
        made = _base(split, index, rng, model="classes", lr=0.02, options=options, steps=400, evaluate_every=8)
        return {**made, "pace": 0.002, **_live(index)}

    yield from _several("few_samples", Cause.OVERFITTING, 4, by_heart)
    yield from _several("few_samples_wrong_labels", Cause.OVERFITTING, 4, by_heart_classes)

    def rate_off(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng, schedule="off", steps=400, evaluate_every=10)
        return {**made, "from": rng.randrange(70, 110), "pace": 0.002, **_live(index)}

    def all_learnt(split: str, index: int, rng: random.Random) -> Config:
        options = {"noise": 0.3 if split == TUNING else 0.5, **_plain()}
        made = _base(split, index, rng, model="linear", lr=0.08, options=options, steps=500, evaluate_every=10)
        return {**made, "pace": 0.002, **_live(index)}

    yield from _several("rate_off", Cause.PLATEAUED, 4, rate_off)
    yield from _several("all_learnt", Cause.PLATEAUED, 4, all_learnt)


def _plain(**more: Any) -> Config:
    return {"optimizer": "sgd", "momentum": 0.0, "hidden": [], "detached": False, **more}


def _pace_faults() -> Iterator[Plan]:
    def hangs(name: str) -> Callable[[str, int, random.Random], Config]:
        def make(split: str, index: int, rng: random.Random) -> Config:
            at = rng.randrange(40, 120)
            made = _base(split, index, rng, fault=name, when="step", at=at, steps=200, pace=rng.choice((0.005, 0.02)))
            return {**made, "plan": {"park": rng.uniform(200.0, 240.0)}}

        return make

    for name in _HANGS:
        yield from _several(name, Cause.STUCK, 1, hangs(name))

    def halted(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng, steps=100_000, pace=0.01)
        return {**made, "plan": {"act": "SIGSTOP", "at": rng.randrange(60, 200), "park": rng.uniform(200.0, 240.0)}}

    yield from _several("stopped_process", Cause.STUCK, 2, halted)

    def one_behind(split: str, index: int, rng: random.Random) -> Config:
        ranks = (2, 3)[index % 2] if split == TUNING else (3, 4)[index % 2]
        made = _base(split, 0, rng, steps=300, pace=0.006, evaluate_every=0, slow_rank=ranks - 1)
        return {
            **made,
            "behind": rng.uniform(0.012, 0.02),
            "plan": {"phase": {"ranks": ranks}, "cut": 0.9 * (index % 2)},
        }

    yield from _several("one_rank_behind", Cause.SLOW_RANK, 4, one_behind)

    def starved(split: str, index: int, rng: random.Random) -> Config:
        each = rng.uniform(0.15, 0.3)
        made = _base(split, index, rng, steps=120, pace=0.01, starved=each, log_times=True, evaluate_every=40)
        if split == HELD_OUT:
            made["names"] = {**made["names"], "data_time": "time/data", "batch_time": "time/step"}
        return {**made, **_live(index)}

    yield from _several("loader_sleeps", Cause.DATA_STARVED, 4, starved)

    def slower(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng, steps=240, pace=0.006, slows=rng.uniform(8.0, 14.0), slows_from=60)
        return {**made, **_live(index)}

    def leaks(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng, steps=260, pace=0.002, leaks=30_000 if split == TUNING else 60_000)
        return {**made, "evaluate_every": 50, **_live(index)}

    def slow_at_once(split: str, index: int, rng: random.Random) -> Config:
        factor = rng.uniform(5.0, 9.0)
        made = _base(split, index, rng, steps=200, pace=0.005, slow_at_once=factor, at=rng.randrange(90, 120))
        return {**made, **_live(index)}

    yield from _several("slower_and_slower", Cause.THROTTLED, 3, slower)
    yield from _several("goes_over_all_that_was", Cause.THROTTLED, 2, leaks)
    yield from _several("slow_at_once", Cause.THROTTLED, 3, slow_at_once)


_COMMANDS: Mapping[str, Sequence[Any]] = {
    TUNING: (["trian.py"], "pyhton train.py", ["./train.sh"], "acelerate launch train.py", ["torchrunn", "train.py"]),
    HELD_OUT: (
        ["python3.99", "t.py"],
        "exec deepspeeed t.py",
        ["/opt/bin/launch"],
        "set -e; trainer --fast",
        ["srunn"],
    ),
}


def _ends() -> Iterator[Plan]:
    def outsider(name: str) -> Callable[[str, int, random.Random], Config]:
        def make(split: str, index: int, rng: random.Random) -> Config:
            made = _base(split, index, rng, steps=100_000, pace=0.004)
            return {**made, "plan": {"act": name, "at": rng.randrange(20, 100)}}

        return make

    for name, times in (("SIGKILL", 4), ("SIGHUP", 2), ("SIGUSR2", 1), ("SIGXCPU", 1)):
        yield from _several(name.lower(), Cause.KILLED_OUTSIDE, times, outsider(name))

    def no_command(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng)
        return {**made, "plan": {"phase": {"command": _COMMANDS[split][index]}}}

    yield from _several("no_such_command", Cause.COMMAND_NOT_FOUND, 5, no_command)

    def lost(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng, fault="gloo_dies", when="start", dies_at=rng.randrange(2, 6), code=index + 1)
        return {**made, "plan": {"phase": {"ranks": 2}}}

    yield from _several("gloo_rank_dies", Cause.COMMUNICATION, 2, lost)

    def small(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng, fault="shm_loader", when="start", wide=100_000 + 30_000 * index)
        made["workers"] = 1 + index
        size = "1m" if split == TUNING else "2m"
        command = f"unshare -m sh -c 'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec python train.py'"
        return {**made, "plan": {"phase": {"command": command}}}

    yield from _several("small_shared_memory", Cause.SHARED_MEMORY, 3, small)


# --- healthy ones --------------------------------------------------------------------------------------------------


def _healthy() -> Iterator[Plan]:
    def shape(kind: str, count: int = 5, **more: Any) -> Iterator[Plan]:
        def make(split: str, index: int, rng: random.Random) -> Config:
            given = {name: value(split, index, rng) if callable(value) else value for name, value in more.items()}
            return _base(split, given.pop("base", index), rng, **given)

        return _several(kind, HEALTHY, count, make)

    def options(**more: Any) -> Callable[[str, int, random.Random], Config]:
        return lambda split, index, rng: {
            name: rng.uniform(*value) if isinstance(value, tuple) else value for name, value in more.items()
        }

    yield from shape("plain")

    def small(batch: int, noise: float) -> Callable[[str, int, random.Random], Config]:
        """Batches of very few samples; ratings need more."""
        return lambda s, i, r: {"batch": 48 if _BASES[s][i % 4]["model"] == "factors" else batch, "noise": noise}

    def slower(factor: float) -> Callable[[str, int, random.Random], float]:
        return lambda s, i, r: _BASES[s][i % 4]["lr"] * (1.0 if _BASES[s][i % 4]["model"] == "factors" else factor)

    yield from shape("noisy", options=small(3, 0.2), steps=300, lr=slower(0.25))
    yield from shape("warm_up", schedule="warmup", lr=lambda s, i, r: _BASES[s][i % 4]["lr"] * 1.3)
    yield from shape(
        "warm_up_bump", base=0, schedule="warmup", warm=60, steps=240,
        lr=lambda s, i, r: r.uniform(0.07, 0.1) if s == TUNING else r.uniform(0.03, 0.05),
        options=options(scale=(2.0, 3.0)),
    )  # fmt: skip
    yield from shape("cosine", schedule="cosine")
    yield from shape("restarts", schedule="restarts", steps=280, cycle=70)
    yield from shape("step_decay", schedule="decay", steps=240, options=small(8, 0.1))
    yield from shape(
        "two_players", model="players", lr=lambda s, i, r: r.uniform(0.08, 0.2), options={}, steps=300, names={}
    )
    yield from shape(
        "single_spike", base=0, options=lambda s, i, r: {"outlier_at": r.randrange(80, 130), "outlier": 8.0}
    )
    yield from shape("reward", model="bandit", lr=0.15, options=options(apart=(1.0, 2.0)), steps=300, names={})
    yield from shape("evaluation_pauses", evaluation=0.35, evaluate_every=50, steps=200)
    yield from shape("slow_first_step", slow_first=lambda s, i, r: r.uniform(1.0, 2.5))
    yield from shape("few_points", steps=lambda s, i, r: r.randrange(3, 12), evaluate_every=2, pace=0.05)
    yield from shape("seldom_logged", log_every=20, steps=300)
    yield from shape("many_metrics", many=60, steps=120)
    yield from shape("accuracy_only", base=1, only=["acc", "val_acc"], log_lr=False)
    yield from shape(
        "fine_tuning", lr=0.002, steps=200,
        options=options(pretrained=300, pretrained_lr=0.03, batch=64), base=lambda s, i, r: 0 if s == TUNING else 3,
    )  # fmt: skip
    yield from shape(
        "below_zero", model="linear", lr=0.05, steps=240,
        options=options(objective="nll", width=0.1, noise=0.05, optimizer="adam", hidden=[]),
    )  # fmt: skip
    yield from shape("penalty_rises", model="variational", base=0, names={}, steps=240)
    # Of these, the ones that were held out were looked at when a rule was mended: they are for tuning now.
    for plan in shape("harder_data", base=0, options=options(harder=(0.6, 0.9)), steps=240):
        yield replace(plan, split=TUNING)
    yield from shape(
        "rising_noise", 8, steps=220, base=lambda s, i, r: (0, 3)[i % 2] if s == TUNING else (0, 2, 3)[i % 3],
        options=options(harder=(0.5, 1.2), ramp=(50, 150)),
    )  # fmt: skip
    yield from shape(
        "large_values", base=0, lr=0.02, options=options(scale=(300.0, 900.0), optimizer="adam", hidden=[32])
    )
    yield from shape(
        "late_insight", model="grokking", base=1, lr=0.02, steps=400, evaluate_every=10, pace=0.002,
        options=options(hidden=[24], optimizer="adam", decay=0.02, size=150, apart=(1.5, 2.0)),
    )  # fmt: skip
    yield from shape(
        "torch", 3, model="torch", steps=150, schedule="cosine",
        lr=lambda s, i, r: 0.01 if s == TUNING else 0.004,
        options=lambda s, i, r: {"hidden": [32] if s == TUNING else [48], "dropout": 0.0 if s == TUNING else 0.2},
    )  # fmt: skip
    yield from shape("uneven_pace", jitter=0.5, pace=0.006)
    yield from shape("warns_a_lot", warns=3, prints=1, steps=120)

    def paused(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng, steps=260, pace=0.01, save_every="20 steps")
        return {**made, "plan": {"act": "pause", "at": rng.randrange(60, 140)}}

    def stopped(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng, steps=5_000, pace=0.005, save_every="50 steps")
        return {**made, "plan": {"act": "stop", "at": rng.randrange(100, 200)}}

    def preempted(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng, steps=260, pace=0.01, save_every="20 steps")
        return {**made, "plan": {"act": "SIGTERM", "at": rng.randrange(60, 140)}}

    def evaluates(split: str, index: int, rng: random.Random) -> Config:
        """A long evaluation behind many short steps; looked at in the middle of it."""
        made = _base(split, index, rng, steps=120, pace=0.01, evaluate_every=30, evaluation=2.0, long_evaluation=120.0)
        return {**made, "at": 90, "plan": {"park": rng.uniform(20.0, 40.0)}}

    def together(split: str, index: int, rng: random.Random) -> Config:
        made = _base(split, index, rng, steps=160, pace=0.006, jitter=0.2)
        return {**made, "plan": {"phase": {"ranks": 2 + index % 2}}}

    yield from _several("paused_and_resumed", HEALTHY, 5, paused)
    yield from _several("stopped_by_a_person", HEALTHY, 4, stopped)
    yield from _several("preempted_and_resumed", HEALTHY, 4, preempted)
    yield from _several("long_evaluation", HEALTHY, 4, evaluates)
    yield from _several("several_ranks", HEALTHY, 3, together)


# --- paces ---------------------------------------------------------------------------------------------------------


def _paces() -> Iterator[Plan]:
    def shape(kind: str, count: int = 10, fields: Config | None = None, **more: Any) -> Iterator[Plan]:
        def make(split: str, index: int, rng: random.Random) -> Config:
            given = {name: value(rng) if callable(value) else value for name, value in more.items()}
            made = _base(
                split, index, rng, **{"steps": rng.randrange(150, 400), "pace": rng.uniform(0.004, 0.012), **given}
            )
            if split == HELD_OUT:
                made["pace"] *= 1.3
            chosen = {name: value(rng) if callable(value) else value for name, value in (fields or {}).items()}
            return {**made, "plan": chosen} if chosen else made

        return _several(kind, "pace", count, make)

    def between(low: float, high: float) -> Callable[[random.Random], float]:
        return lambda rng: rng.uniform(low, high)

    yield from shape("steady", 12, evaluate_every=0)
    yield from shape("noisy", 12, jitter=between(0.3, 0.8), evaluate_every=0)
    yield from shape(
        "evaluation_pauses", 12, evaluation=between(0.1, 0.4), evaluate_every=lambda rng: rng.choice((30, 50, 75))
    )
    yield from shape("slows_down", 10, slows=between(0.5, 2.0), evaluate_every=0)
    yield from shape("speeds_up", 10, warms=lambda rng: rng.randrange(15, 60), warm_factor=between(2.0, 5.0))
    yield from shape("compiles", 8, slow_first=between(0.5, 2.0), evaluate_every=0)
    yield from shape("company", 8, busy=True, pace=0.004, evaluate_every=0)
    paused = {"act": "pause", "at": lambda rng: rng.randrange(50, 100)}
    yield from shape("resumed", 6, paused, save_every="20 steps")
