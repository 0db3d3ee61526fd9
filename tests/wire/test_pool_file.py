"""A file of pools is judged as a whole: every mistake at once, with its line and the nearest valid word."""

import pytest

from whistlestop.domain.errors import Problem, SpecInvalid
from whistlestop.wire.pool_file import parse_pools

FULL = """\
pools:
  - name: spot-a
    market: spot
    class: a100
    region: eu-west-1
    provider: aws
    price: 0.3
    rank: -1
    slots: 6
    hosts:
      - {name: node-1, slots: 4}
      - {name: node-2, slots: 4}
    notices: {aws: "http://169.254.169.254", file: /run/notice}
    devices: [0, 1, 2, 3, 0, 1, 2, 3]
  - {name: local, price: 2}
"""


def mistakes(text: str) -> list[Problem]:
    with pytest.raises(SpecInvalid) as caught:
        parse_pools(text)
    return list(caught.value.problems)


def test_a_file_of_pools_is_read_as_it_is_meant_and_what_it_does_not_say_is_not_there() -> None:
    spot, local = parse_pools(FULL)
    assert spot.given() == {
        "name": "spot-a",
        "market": "spot",
        "kind": "a100",
        "region": "eu-west-1",
        "provider": "aws",
        "price": 0.3,
        "rank": -1,
        "slots": 6,
        "hosts": [{"name": "node-1", "slots": 4}, {"name": "node-2", "slots": 4}],
        "notices": {"aws": "http://169.254.169.254", "file": "/run/notice"},
        "devices": [0, 1, 2, 3, 0, 1, 2, 3],
    }
    assert local.given() == {"name": "local", "price": 2.0}


def test_every_mistake_has_its_line_and_the_nearest_word() -> None:
    found = mistakes(
        """\
pols: 3
pools:
  - {nam: a, markt: spot, market: Spott}
  - name: b
    engine: locl
    notices: {gpc: x}
    hosts: [{name: n, slot: 3}]
  - {name: b}
  - 3
"""
    )
    assert [(problem.line, problem.path, problem.hint) for problem in found] == [
        (1, "pols", 'did you mean "pools"?'),
        (3, "pools.0.nam", 'did you mean "name"?'),
        (3, "pools.0.markt", 'did you mean "market"?'),
        (3, "pools.0.name", "name: spot"),
        (3, "pools.0.market", 'did you mean "spot"?'),
        (5, "pools.1.engine", 'did you mean "local"?'),
        (6, "pools.1.notices.gpc", 'did you mean "gcp"?'),
        (7, "pools.1.hosts.0.slot", 'did you mean "slots"?'),
        (7, "pools.1.hosts.0.slots", "{name: node-1, slots: 4}"),
        (8, "pools.2.name", None),
        (9, "pools.3", None),
    ]


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("", "", "must be a mapping"),
        ("[]", "", "must be a mapping"),
        ("{}", "pools", "is missing"),
        ("pools: 3", "pools", "list of pools"),
        ("pools: [{name: ../x}]", "pools.0.name", "not a name for a pool"),
        ("pools: [{name: a, slots: -1}]", "pools.0.slots", "whole number"),
        ("pools: [{name: a, slots: 100001}]", "pools.0.slots", "whole number"),
        ("pools: [{name: a, price: -1}]", "pools.0.price", "number of credits"),
        ("pools: [{name: a, price: .nan}]", "pools.0.price", "number of credits"),
        ("pools: [{name: a, region: '<b>'}]", "pools.0.region", "can't be used here"),
        ("pools: [{name: a, hosts: [{name: 'a b', slots: 1}]}]", "pools.0.hosts.0.name", "not a name for a host"),
        ("pools: [{name: a, hosts: [{name: n, slots: 0}]}]", "pools.0.hosts.0.slots", "whole number"),
        ("pools: [{name: a, hosts: [{name: n, slots: 1}, {name: n, slots: 1}]}]", "pools.0.hosts.1.name", "already"),
        ("pools: [{name: a, devices: [0, x]}]", "pools.0.devices", "list of device numbers"),
        ("pools: [{name: a, devices: 3}]", "pools.0.devices", "list of device numbers"),
        ("pools: [{name: a, notices: {aws: 169.254.169.254}}]", "pools.0.notices.aws", "begins with http://"),
        ("pools: [{name: a, notices: {gcp: 'https://x'}}]", "pools.0.notices.gcp", "begins with http://"),
        ("pools: [{name: a, notices: {azure: /etc/passwd}}]", "pools.0.notices.azure", "begins with http://"),
        ("pools: [{name: a, notices: {aws: 'http://x:port'}}]", "pools.0.notices.aws", "is not an address"),
        ("pools: [{name: a, notices: {aws: 'http://me:secret@x'}}]", "pools.0.notices.aws", "password"),
        ("pools: [{name: a, notices: {file: ~/notice}}]", "pools.0.notices.file", "absolute path"),
        ("pools: [{name: a, notices: {aws: ''}}]", "pools.0.notices.aws", "address or a path"),
    ],
)
def test_each_mistake_has_its_own_sentence(text: str, path: str, words: str) -> None:
    found = mistakes(text)
    assert [problem.path for problem in found if words in problem.text] == [path], found
