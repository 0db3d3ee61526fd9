"""Who says on a node whether the cluster still counts on what runs there: its raylet, which ends itself when the head
has given it up, and the head, which it must be able to reach. By command, for the runner (Launch.witness)."""

import shlex

_LOOK = """
import os, socket, sys
head, address = sys.argv[1], sys.argv[2]
host, _, port = head.rpartition(":")
socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
wanted = {f"--node_ip_address={address}", f"--gcs-address={head}"}
for pid in filter(str.isdecimal, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            words = file.read().split(chr(0))
    except OSError:
        continue
    if os.path.basename(words[0]) == "raylet" and wanted <= set(words):
        sys.exit(0)
sys.exit(f"no raylet of {head} runs on {address}")
"""


def witness(python: str, head: str, address: str) -> list[str]:
    return [*shlex.split(python), "-S", "-E", "-c", _LOOK, head, address]
