"""`guards:` of a spec: what is done by itself when a diagnosis finds something."""

from dataclasses import dataclass, replace

from whistlestop.wire import spec_values as values
from whistlestop.wire.mistakes import Mistakes, shown
from whistlestop.wire.spec import Do, GuardSpec
from whistlestop.wire.spec_capacity import truth
from whistlestop.wire.spec_map import Map, Wrong
from whistlestop.wire.yaml_text import Node

GUARD_KEYS = ("when", "do", "for", "confidence", "times", "skip", "dry")
# As in diagnosis.findings.Cause, which lies above; a test compares them.
CAUSES = (
    "non_finite", "diverging", "not_decreasing", "overfitting", "plateaued", "stuck", "slow_rank", "data_starved",
    "throttled", "host_memory", "device_memory", "disk_full", "missing_module", "missing_file", "not_allowed",
    "wrong_config", "bad_data", "network", "communication", "device_fault", "bad_host", "shared_memory", "crashed",
    "killed_outside", "ended_early", "command_not_found", "code_error", "saves_fail",
)  # fmt: skip
SHORT = {"oom": ("host_memory", "device_memory")}
MOST_GUARDS = 50
MOST_TIMES = 100


@dataclass(frozen=True)
class Guarded:
    guards: tuple[GuardSpec, ...] = ()
    dry: bool = False  # all of them

    def rules(self) -> tuple[GuardSpec, ...]:
        return tuple(replace(each, dry=True) for each in self.guards) if self.dry else self.guards


def guards_of(entry: Map, default: Guarded) -> Guarded:
    """What `entry` says; a list of its own takes the place of the whole one in `default`."""
    dry = entry.take("guards_dry", truth, default.dry)
    node = entry.items.get("guards")
    if node is None or node.value is None:
        return replace(default, dry=dry)
    if not isinstance(node.value, list) or len(node.value) > MOST_GUARDS:
        entry.wrong("guards", f"must be a list of at most {MOST_GUARDS}", hint="- {when: non_finite, do: kill}")
        return Guarded(dry=dry)
    found = [_guard(item, f"{entry.at('guards')}.{index}", entry.mistakes) for index, item in enumerate(node.value)]
    return Guarded(tuple(guard for guard in found if guard is not None), dry)


def _guard(node: Node, path: str, mistakes: Mistakes) -> GuardSpec | None:
    if not isinstance(node.value, dict):
        mistakes.add(path, "must be a mapping", line=node.line, hint="{when: non_finite, do: kill}")
        return None
    inside = Map(node, path, mistakes)
    inside.known(GUARD_KEYS)
    for key, hint in (("when", "when: non_finite"), ("do", "do: notify")):
        if key not in inside.items or inside.items[key].value is None:
            inside.wrong(key, "is missing", hint=hint)
    nothing: tuple[str, ...] = ()
    when, do = inside.take("when", _when, nothing), inside.take("do", _do, None)
    if do is None:
        return None
    guard = GuardSpec(
        when,
        do,
        holds=inside.take("for", values.length, GuardSpec.holds),
        confidence=inside.take("confidence", _confidence, GuardSpec.confidence),
        times=inside.take("times", values.integer(1, MOST_TIMES), GuardSpec.times),
        skip=inside.take("skip", _skip, None),
        dry=inside.take("dry", truth, False),
    )
    if "times" in inside.items and not guard.repeats:
        inside.wrong("times", f"{do} happens once: only restart and roll_back have it")
    if "skip" in inside.items and do is not Do.ROLL_BACK:
        inside.wrong("skip", "only roll_back has it")
    return guard


def _when(node: Node) -> tuple[str, ...]:
    word = values.text_of(node)
    if word not in CAUSES and word not in SHORT:
        raise Wrong(f'"{shown(word)}" is nothing that can be found', word=word.lower(), words=[*CAUSES, *SHORT])
    return SHORT.get(word, (word,))


def _do(node: Node) -> Do | None:
    word = values.text_of(node)
    words = [each.value for each in Do]
    if word not in words:
        raise Wrong(f'"{shown(word)}" is nothing that a guard does', word=word.lower(), words=words)
    return Do(word)


def _confidence(node: Node) -> float:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 <= value <= 1:
        raise Wrong(f'must be a number from 0.5 to 1, not "{shown(values.bare(node))}"')
    return float(value)


def _skip(node: Node) -> int | None:
    """ "200 steps", or 200; "none" for none."""
    word = values.text_of(node).strip().lower()
    if word == "none":
        return 0
    number = word.removesuffix("steps").removesuffix("step").strip()
    if not number.isascii() or not number.isdigit() or not 1 <= int(number[:13]) <= 10**12:
        raise Wrong(f'"{shown(word)}" is not a number of steps', hint='write "200 steps", or none')
    return int(number)
