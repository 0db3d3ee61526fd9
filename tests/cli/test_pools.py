"""`whistle pools` and `whistle hosts`, on a server that has its own pool alone before and after."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Whistle

from whistlestop.testing.server import ServerProcess

FILE = """\
pools:
  - {name: spot, market: spot, class: a100, price: 0.5, hosts: [{name: node-1, slots: 2}, {name: node-2, slots: 2}]}
  - {name: reserved, slots: 1, price: 3}
"""


@pytest.fixture
def server(shared_server: ServerProcess) -> Iterator[ServerProcess]:
    yield shared_server
    with shared_server.client() as client:
        client.apply_pools("pools: []", prune=True)


def test_a_file_of_pools_is_tried_applied_and_pruned(served: Whistle) -> None:
    Path("pools.yaml").write_text(FILE)
    tried = served("pools", "apply", "pools.yaml", "--dry-run")
    assert tried.code == 0
    assert "+ spot: added: 4 slots, spot, 0.5 credits per slot-hour" in tried.out
    assert "dry run" in tried.out
    assert [pool["name"] for pool in served("pools", "--json").json] == ["local"]
    assert served("pools", "apply", "pools.yaml").code == 0
    assert [pool["name"] for pool in served("pools", "--json").json] == ["local", "reserved", "spot"]
    Path("pools.yaml").write_text("pools: [{name: spot, price: 0.75}]")
    pruned = served("pools", "apply", "pools.yaml", "--prune", "--json").json
    assert [(each["pool"], each["change"]) for each in pruned["changes"]] == [
        ("spot", "changed"),
        ("reserved", "removed"),
    ]
    assert "~ spot" not in served("pools", "apply", "pools.yaml").out, "it is so already"


def test_a_pool_says_what_it_is_on(served: Whistle) -> None:
    Path("pools.yaml").write_text("""\
pools:
  - {name: batch, slots: 4, slurm: {partition: low, constraint: a100, python: /opt/python}}
  - {name: cloud, slots: 2, ray: {address: "10.0.0.1:6379", labels: {zone: b}}}
""")
    assert served("pools", "apply", "pools.yaml").code == 0
    on = {pool["name"]: pool["on"] for pool in served("pools", "--json").json}
    assert on == {
        "batch": "Slurm, partition low, constraint a100",
        "cloud": "Ray at 10.0.0.1:6379, zone=b",
        "local": "this machine",
    }
    assert "on: Slurm, partition low" in (shown := served("pools", "show", "batch").out)
    assert "python: /opt/python" in shown


def test_a_mistake_in_the_file_is_told_with_its_line_and_nothing_is_done(served: Whistle) -> None:
    Path("pools.yaml").write_text("pools:\n  - name: spot\n    slot: 2\n")
    told = served("pools", "apply", "pools.yaml")
    assert told.code == 1
    assert 'pools.yaml:3: pools.0.slot: unknown key (did you mean "slots"?)' in told.err
    assert served("pools", "apply", "none.yaml").code == 2


def test_a_pool_is_made_shown_changed_and_removed(served: Whistle) -> None:
    made = served(
        "pools", "add", "spot", "--market", "spot", "--class", "a100", "--host", "node-1:2", "--host", "node-2:1",
        "--notice", "aws=http://169.254.169.254", "--devices", "0,1,2", "--price", "0.25", "--rank", "2",
    )  # fmt: skip
    assert (made.code, made.out) == (0, "Pool spot: 3 slots (3 free), spot, at 0.25 credits per slot-hour.\n"), made.err
    shown = served("pools", "show", "spot").out
    for words in ("class: a100", "aws at http://169.254.169.254", "node-2", "devices: 0, 1, 2"):
        assert words in shown
    assert served("pools", "show", "spot", "--json").json["class"] == "a100"
    away = served("pools", "set", "spot", "--slots", "0")
    assert "Pool spot: away" in away.out
    assert "away" in served("pools", "ls").out
    assert '"a b" is not a name for a pool' in served("pools", "add", "a b").err
    assert served("pools", "rm", "spot").code == 0
    assert served("pools", "rm", "spot").code == 1
    assert served("pools", "rm", "local").code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pools", "add", "x", "--slots", "1", "--market", "spt"), 'did you mean "spot"?'),
        (("pools", "add", "x", "--host", "node"), "is not a host and its slots"),
        (("pools", "add", "x", "--slots", "1", "--notice", "aws"), "is not a source"),
        (("pools", "add", "x", "--slots", "1", "--notice", "amazon=http://x"), "unknown key"),
        (("pools", "add", "x", "--slots", "1", "--devices", "a"), "is not a list of devices"),
        (("pools", "set", "x"), "Nothing to change"),
        (("hosts", "exclude", "x", "--for", "soon"), "not a length of time"),
        (("hosts", "exclude", "x", "--for", "0"), "longer than zero"),
    ],
)
def test_a_wrong_word_is_told_before_anybody_is_asked(whistle: Whistle, words: tuple[str, ...], said: str) -> None:
    told = whistle(*words)
    assert told.code == 2
    assert said in told.err


def test_a_host_is_taken_out_of_use_and_back(served: Whistle) -> None:
    Path("pools.yaml").write_text(FILE.replace("reserved, slots: 1", "reserved, hosts: [{name: node-2, slots: 1}]"))
    served("pools", "apply", "pools.yaml")
    done = served("hosts", "exclude", "node-1", "--for", "2h", "--note", "the fan is loud")
    assert done.code == 0, done.err
    assert "Host node-1 of pool spot is excluded until" in done.out
    assert "the fan is loud" in served("hosts").out
    assert "excluded" in served("pools", "show", "spot").out
    assert "Pool spot: 4 slots (2 free)" in served("pools", "show", "spot").out, "nobody gets those of node-1"
    assert served("hosts", "exclude", "node-2").code == 1
    assert "say reserved/node-2 or spot/node-2" in served("hosts", "exclude", "node-2").err
    assert served("hosts", "exclude", "reserved/node-2").code == 0
    assert served("hosts", "readmit", "node-1").out == "Host node-1 of pool spot is used again.\n"
    hosts = {(each["pool"], each["name"]): each["excluded"] for each in served("hosts", "ls", "--json").json}
    assert hosts["spot", "node-1"] is False
    assert hosts["reserved", "node-2"] is True
    assert 'did you mean "node-1"?' in served("hosts", "readmit", "nod-1").err
