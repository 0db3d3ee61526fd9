"""Which calls of TensorBoard, MLflow and W&B log a metric, and how they are watched: patched where they are defined.

A class or module is patched when it is there already, or right after its module has been imported (an import hook:
nothing is imported for it, and names that others take from the module later are the patched ones). A wrapper calls the
original as it was called and hands back what it gives; without a mirror it does nothing else, so one that somebody
has kept is harmless.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

from whistlestop.integrations.mirror_target import say_once

Tell = Callable[[str, Any, Mapping[str, Any]], None]  # source, step or None, values
Points = Iterator[tuple[Any, Mapping[str, Any]]]


class Counted(int):
    """A step that nobody gave: the library has counted its calls. The step of a run's own loop is better."""


class Spot(NamedTuple):
    """`read` takes what the call takes, before the call; `kept` looks at its answer."""

    module: str
    name: str  # function, or Class.method
    read: Callable[..., Points]
    kept: Callable[[Any], bool] = lambda answer: True


# --- what is read from a call: parameters have the libraries' names --------------------------------------------------


def _add_scalar(writer: Any, tag: str, scalar_value: Any, global_step: Any = None, *_: Any, **__: Any) -> Points:
    yield global_step, {tag: scalar_value}


def _add_scalars(
    writer: Any, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None, *_: Any, **__: Any
) -> Points:
    yield global_step, {f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}


def _tf_scalar(name: str, data: Any, step: Any = None, *_: Any, **__: Any) -> Points:
    if step is None:
        step = sys.modules["tensorflow"].summary.experimental.get_step()
    yield step, {name: data}


def _log_metric(key: str, value: Any, step: Any = None, *_: Any, **__: Any) -> Points:
    yield step, {key: value}


def _log_metrics(metrics: Mapping[str, Any], step: Any = None, *_: Any, **__: Any) -> Points:
    yield step, metrics


_at_zero: set[str] = set()


def _client_log_metric(
    client: Any, run_id: str, key: str, value: Any, timestamp: Any = None, step: Any = None, *_: Any, **__: Any
) -> Points:
    yield _client_step(key, step), {key: value}


def _client_log_batch(client: Any, run_id: str, metrics: Sequence[Any] = (), *_: Any, **__: Any) -> Points:
    steps: dict[Any, dict[str, Any]] = {}
    for metric in metrics:
        steps.setdefault(_client_step(metric.key, metric.step), {})[metric.key] = metric.value
    yield from steps.items()


def _client_step(key: str, step: Any) -> Any:
    """MLflow makes 0 of a missing step on the way to its client: a metric that comes at 0 again has none."""
    if step != 0:
        return step
    if key in _at_zero:
        return None
    _at_zero.add(key)
    return 0


_GLOBAL_STEPS = ("trainer/global_step", "train/global_step")  # Lightning's and transformers' loggers give no other


def _wandb_log(run: Any, data: Mapping[str, Any], step: Any = None, commit: Any = None, *_: Any, **__: Any) -> Points:
    """W&B counts by itself when no step is given; `commit=False` and a repeated step add to the same one."""
    current = getattr(run, "_local_step", None)  # `run.step` would ask W&B's other process
    if step is not None and current is not None and step < current:
        return  # W&B leaves it out, too
    values = dict(_flat(data))
    if step is None:
        step = next((values[name] for name in _GLOBAL_STEPS if name in values), None)
    if step is None and current is not None:
        step = Counted(current)
    yield step, values


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


SOURCES: Mapping[str, Sequence[Spot]] = {
    "tensorboard": (
        Spot("torch.utils.tensorboard.writer", "SummaryWriter.add_scalar", _add_scalar),
        Spot("torch.utils.tensorboard.writer", "SummaryWriter.add_scalars", _add_scalars),
        Spot("tensorboardX.writer", "SummaryWriter.add_scalar", _add_scalar),
        Spot("tensorboardX.writer", "SummaryWriter.add_scalars", _add_scalars),
        # tf.summary.scalar looks it up there at every call. False: there is no writer, or it does not record now.
        Spot("tensorboard.summary.v2", "scalar", _tf_scalar, kept=bool),
    ),
    "mlflow": (
        Spot("mlflow.tracking.client", "MlflowClient.log_metric", _client_log_metric),
        Spot("mlflow.tracking.client", "MlflowClient.log_batch", _client_log_batch),
        # Both go to the client, which no longer knows whether a step was given.
        Spot("mlflow.tracking.fluent", "log_metric", _log_metric),
        Spot("mlflow.tracking.fluent", "log_metrics", _log_metrics),
        Spot("mlflow", "log_metric", _log_metric),
        Spot("mlflow", "log_metrics", _log_metrics),
    ),
    "wandb": (Spot("wandb.sdk.wandb_run", "Run.log", _wandb_log),),
}


# --- patches ---------------------------------------------------------------------------------------------------------

_tells: dict[str, Tell] = {}
_inside = threading.local()  # .sources: calls that are being made; what they call in turn is the same point


def begin(source: str, tell: Tell) -> None:
    _tells[source] = tell
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    for module in {spot.module for spot in SOURCES[source]}:
        if module in sys.modules:
            _patch(sys.modules[module])


def end(source: str) -> None:
    _tells.pop(source, None)
    for spot in SOURCES[source]:
        owner, name = _owner(sys.modules.get(spot.module), spot)
        call = owner.__dict__.get(name) if owner is not None else None
        if call is not None and _is_ours(call):  # else a patch of somebody else is over ours: it may stay
            setattr(owner, name, call.__wrapped__)
    _renew_wandb_log()
    if not _tells and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def _patch(module: ModuleType) -> None:
    for source in tuple(_tells):
        for spot in SOURCES[source]:
            if spot.module != module.__name__:
                continue
            owner, name = _owner(module, spot)
            call = owner.__dict__.get(name) if owner is not None else None
            if call is None:
                say_once(f"mirror: {spot.module} has no {spot.name} in this version; it is not mirrored")
            elif not _is_ours(call):
                setattr(owner, name, _wrapper(source, spot, call))
    _renew_wandb_log()


def _owner(module: ModuleType | None, spot: Spot) -> tuple[Any, str]:
    owner, _, name = spot.name.rpartition(".")
    return (getattr(module, owner, None) if owner else module), name


def _wrapper(source: str, spot: Spot, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        inside = _inside.__dict__.setdefault("sources", set())
        if source in inside or source not in _tells:
            return original(*args, **kwargs)
        points = _read(spot, args, kwargs)
        inside.add(source)
        try:
            answer = original(*args, **kwargs)
        finally:
            inside.discard(source)
        _tell(source, spot, points, answer)
        return answer

    call.mirrored = call  # type: ignore[attr-defined]
    return call


def _is_ours(call: Any) -> bool:
    """Wrappers of others may take over our wrapper's attributes, as functools.wraps does."""
    return getattr(call, "mirrored", None) is call


def _read(spot: Spot, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, Mapping[str, Any]]]:
    try:
        return list(spot.read(*args, **kwargs))
    except Exception:  # a wrong call: the original will say so
        return []


def _tell(source: str, spot: Spot, points: list[tuple[Any, Mapping[str, Any]]], answer: Any) -> None:
    try:
        tell = _tells.get(source)
        if tell is not None and points and spot.kept(answer):
            for step, values in points:
                tell(source, step, values)
    except Exception:  # a symbolic answer, inside tf.function
        pass


def _renew_wandb_log() -> None:
    """W&B keeps the open run's log as `wandb.log`, bound when the run began: with the method as it was then."""
    wandb = sys.modules.get("wandb")
    run = getattr(getattr(wandb, "log", None), "__self__", None)
    if wandb is not None and run is not None and hasattr(run, "log"):
        wandb.log = run.log  # type: ignore[attr-defined]


class _Finder:
    """Finds nothing by itself: what the others find is patched once it has been executed."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not any(spot.module == name for source in tuple(_tells) for spot in SOURCES[source]):
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                _patch_after(spec)
                return spec
        return None


def _patch_after(spec: ModuleSpec) -> None:
    loader: Any = spec.loader
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: ModuleType) -> None:
        execute(module)
        try:
            _patch(module)
        except Exception as error:
            say_once(f"mirror: {spec.name} can't be mirrored ({error!r})")

    try:
        loader.exec_module = exec_module
    except AttributeError:
        say_once(f"mirror: {spec.name} is imported in a way that can't be watched; call mirror() after its import")


_finder: Any = _Finder()
