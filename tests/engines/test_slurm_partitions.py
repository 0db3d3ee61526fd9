"""How many slots a partition has, by what sinfo prints."""

import pytest

from whistlestop.engines.slurm_partitions import count


@pytest.mark.parametrize(
    ("said", "cpus", "gpus"),
    [
        ("n1|2|(null)\nn2|2|(null)\n", 4, 0),
        ("n1|128|gpu:a100:8(S:0-1)\nn2|128|gpu:4\n", 256, 12),
        ("n1|8|gpu:a100:2,gpu:v100:1,shard:10\n", 8, 3),
        ("n1|8+|gpu:1\nn1|8+|gpu:1\n", 8, 1),  # one line for each of a node's partitions
        ("", 0, 0),
    ],
)
def test_the_slots_of_a_partition_are_counted_once_for_each_node(said: str, cpus: int, gpus: int) -> None:
    assert count(said, "cpu") == cpus
    assert count(said, "gpu") == gpus
