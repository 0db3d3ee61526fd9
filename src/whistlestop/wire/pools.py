"""The shapes of pools and hosts: what there is, who holds it, and how it is changed."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from whistlestop.wire.api import MAX_NOTE, Asked, Shape
from whistlestop.wire.spec_capacity import LABEL, POOL_NAME

Market = Literal["spot", "on_demand"]
MARKETS = ("spot", "on_demand")
ENGINES = ("local", "ray", "slurm")
SOURCES = ("aws", "gcp", "azure", "file")  # of notices that capacity goes
MOST_SLOTS = 100_000
MOST_HOSTS = 1000
MOST_DEVICES = 10_000
HOST_NAME = r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,199}"

PoolName = Annotated[str, StringConstraints(pattern=f"^{POOL_NAME}$")]
Label = Annotated[str, StringConstraints(pattern=f"^(?:{LABEL})?$")]
_CLASS: dict[str, Any] = {"validation_alias": "class", "serialization_alias": "class"}
_BY_ALIAS = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)


def notice_problem(source: str, where: str) -> str | None:
    """What is wrong with the place where a runner asks, for people: it would be told of its end nowhere."""
    if source == "file":
        return None if where.startswith("/") else "must be an absolute path"
    try:
        url = urlsplit(where)
        port = url.port
    except ValueError:
        return "is not an address"
    if url.scheme != "http" or not url.hostname or port == 0:
        return "must be an address that begins with http://"
    if "@" in url.netloc:
        return "must not hold a password: everybody may see it"
    return None


def on_words(engine: str, settings: Mapping[str, Any]) -> str:
    match engine:
        case "slurm":
            asked = [f"{name} {settings[name]}" for name in ("partition", "constraint", "qos") if settings.get(name)]
            return ", ".join(["Slurm", *asked])
        case "ray":
            labels = [f"{name}={value}" for name, value in (settings.get("labels") or {}).items()]
            return ", ".join([f"Ray at {settings.get('address', '?')}", *labels])
        case _:
            return "this machine"


class HolderView(Shape):
    """Who has slots of a pool."""

    run: str
    number: int
    name: str
    project: str
    phase: str
    attempt: int
    slots: list[int]
    host: str | None = None
    since: str
    leaves_at: str | None = None  # it was told to be gone by then


class PoolHostView(Shape):
    name: str  # empty: the pool names none
    first: int  # its slots are first, first + 1, …
    slots: int
    free: int
    excluded: bool = False


class PoolView(Shape):
    model_config = _BY_ALIAS

    name: str
    engine: str
    on: str = ""  # in words: this machine, Slurm with its partition, Ray with its address
    provider: str = ""
    region: str = ""
    kind: str = Field("", **_CLASS)  # the class of its machines
    market: Market = "on_demand"
    slots: int
    free: int  # that can be had: not those of excluded hosts
    price: float  # credits per slot-hour
    rank: int = 0  # the lower, the sooner it is taken
    hosts: list[PoolHostView] = Field(default_factory=list)  # never empty: a pool that names none is one
    notices: dict[str, str] = Field(default_factory=dict)  # source -> where its runners ask
    devices: list[int] | None = None  # by slot; null: a slot's number is its device's
    settings: dict[str, Any] = Field(default_factory=dict)  # of its engine
    reclaims: int = 0  # how often it took capacity back in the last day
    held_hours: float = 0.0  # for how many hours attempts were there in the last day: the reclaims are out of these
    holders: list[HolderView] = Field(default_factory=list)
    # Time and slots: how its size has changed, the newest 100.
    sizes: list[tuple[float, int]] = Field(default_factory=list)


class ClusterView(Shape):
    """How the cluster is that a pool is on."""

    pool: str
    engine: str
    on: str
    reachable: bool
    version: str = ""
    nodes: int = 0  # that can be used now
    text: str = ""  # what is in the way, and what to do about it


class BadEndView(Shape):
    """An end that speaks against a host."""

    run: str
    number: int
    name: str
    at: str
    reason: str
    text: str


class HostView(Shape):
    pool: str
    name: str
    slots: int | None = None  # null: its pool names no hosts, and this one was told by a runner
    free: int | None = None
    excluded: bool = False
    excluded_since: str | None = None
    excluded_until: str | None = None  # null while excluded: until somebody readmits it
    excluded_by: str = ""  # a person; empty: its own record
    why: str = ""  # its standing, in a sentence
    note: str = ""
    score: float = 0.0  # how much counts against it; it fades
    attempts: int = 0  # that ended there in the last week
    bad: list[BadEndView] = Field(default_factory=list)  # the newest first
    running: int = 0


class ClusterSettings(Asked):
    """Of a pool whose nodes are other machines."""

    python: Annotated[str, Field(max_length=1000)] = Field(
        "python3", description="the interpreter on the nodes, with whistlestop installed"
    )
    directory: Annotated[str, Field(max_length=1000, pattern="^/")] = Field(
        "/tmp/whistlestop", description="on the nodes: where code and attempts are kept"
    )
    url: Annotated[str, Field(max_length=1000)] = Field("", description="of this server, as the nodes reach it")
    shared: bool = Field(
        False, description="this server's disk is on the nodes, too: checkpoints, and what runs in place"
    )
    lease: float = Field(
        30.0, ge=5, le=3600, description="seconds after which a node that reaches nobody has ended by itself"
    )


class RaySettings(ClusterSettings):
    address: Annotated[str, Field(max_length=200, pattern=r"^[^\s]+:\d+$")]
    resource: Annotated[str, Field(max_length=100)] = Field(
        "", description="what a slot is; empty: GPU where there are any"
    )
    labels: dict[str, str] = Field(default_factory=dict, max_length=20, description="of the nodes that it may use")
    follow: bool = Field(False, description="its slots are those that the cluster has; so without slots")
    driver: Annotated[str, Field(max_length=1000)] = Field(
        "", description="an interpreter of this server's machine with the cluster's version of ray; empty: its own"
    )
    warm: float = Field(
        600.0, ge=0, le=31_536_000, description="seconds for which a node that nothing runs on is kept ready"
    )


class SlurmSettings(ClusterSettings):
    resource: Literal["cpu", "gpu"] = Field("cpu", description="what a slot is")
    partition: Annotated[str, Field(max_length=200)] = ""
    constraint: Annotated[str, Field(max_length=200)] = ""
    account: Annotated[str, Field(max_length=200)] = ""
    qos: Annotated[str, Field(max_length=200)] = ""
    time: Annotated[str, Field(max_length=50, pattern=r"^((\d+-)?\d+(:\d+){0,2})?$")] = Field(
        "", description="of one job, as sbatch takes it; then the run goes on in another one"
    )
    notice: float = Field(120.0, ge=10, le=3600, description="seconds before the end of `time` at which it is told")
    options: list[Annotated[str, Field(max_length=500, pattern="^--?[a-z]")]] = Field(
        default_factory=list, max_length=50, description="further ones for sbatch"
    )
    prolog: Annotated[str, Field(max_length=10_000)] = Field("", description="lines before the runner: modules")
    conf: Annotated[str, Field(max_length=1000)] = Field("", description="SLURM_CONF; empty: as the server has it")


class HostSlots(Asked):
    name: str = Field(pattern=f"^{HOST_NAME}$")
    slots: int = Field(ge=1, le=MOST_SLOTS)


class PoolBody(Asked):
    """What is null or missing stays as it is."""

    model_config = _BY_ALIAS

    engine: Literal["local", "ray", "slurm"] | None = None
    ray: RaySettings | None = None
    slurm: SlurmSettings | None = None
    provider: Label | None = None
    region: Label | None = None
    kind: Label | None = Field(None, description="the class of its machines", **_CLASS)
    market: Market | None = None
    slots: int | None = Field(None, ge=0, le=MOST_SLOTS, description="0: it is away; what runs there runs on")
    price: float | None = Field(None, ge=0, le=1e9, allow_inf_nan=False, description="credits per slot-hour")
    rank: int | None = Field(None, ge=-1_000_000, le=1_000_000)
    hosts: list[HostSlots] | None = Field(None, max_length=MOST_HOSTS)
    notices: (
        dict[Literal["aws", "gcp", "azure", "file"], Annotated[str, Field(min_length=1, max_length=1000)]] | None
    ) = None
    devices: list[Annotated[int, Field(ge=0, le=100_000)]] | None = Field(
        None, max_length=MOST_DEVICES, description="by slot; []: a slot's number is its device's"
    )

    @field_validator("notices", mode="after")
    @classmethod
    def can_be_asked(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        for source, where in (value or {}).items():
            if (text := notice_problem(source, where)) is not None:
                raise PydanticCustomError("notices", "{source}: {text}", {"source": source, "text": text})
        return value

    @model_validator(mode="after")
    def one_engine(self) -> Self:
        for name, settings in (("ray", self.ray), ("slurm", self.slurm)):
            if settings is not None and self.engine not in (None, name):
                raise PydanticCustomError("engine", "{name} are settings of another engine", {"name": name})
        if self.ray is not None and self.slurm is not None:
            raise PydanticCustomError("engine", "a pool is on ray or on slurm, not on both")
        if self.engine == "ray" and self.ray is None:
            raise PydanticCustomError("engine", "a pool on ray needs its settings: ray: {address: HOST:PORT}")
        return self

    def given(self) -> dict[str, Any]:
        """By the names of the store."""
        values = self.model_dump(exclude_none=True, by_alias=False)
        for name in ("ray", "slurm"):
            if (settings := values.pop(name, None)) is not None:
                values |= {"engine": name, "settings": settings}
        if values.get("engine") == "slurm":
            values.setdefault("settings", SlurmSettings().model_dump())
        elif values.get("engine") == "local":
            values["settings"] = {}
        return values


class NewPool(PoolBody):
    name: PoolName


class ApplyBody(Asked):
    spec: str = Field(max_length=1_000_000, description="the text of a file of pools")
    prune: bool = Field(False, description="remove pools that it does not name")
    dry_run: bool = Field(False, description="only say what would change")


class PoolChange(Shape):
    pool: str
    change: Literal["added", "changed", "removed", "same"]
    text: str  # a sentence


class Applied(Shape):
    changes: list[PoolChange]
    done: bool  # False: it was only asked what would change


class ExcludeBody(Asked):
    for_s: float | None = Field(None, gt=0, le=315_360_000, description="seconds; null: until it is readmitted")
    note: str = Field("", max_length=MAX_NOTE)


class ReadmitBody(Asked):
    note: str = Field("", max_length=MAX_NOTE)


class HostDone(Shape):
    host: HostView
    changed: bool
    text: str
