"""How large a partition is: for whoever makes a pool of it."""

import os
import re
import subprocess

from whistlestop.domain.errors import EngineUnreachable, NotFound
from whistlestop.engines.slurm_words import trouble_words

TIMEOUT = 20.0
_GPUS = re.compile(r"\bgpu(?::[^:,()\s]+)?:(\d+)")


def slots_of(partition: str, resource: str, conf: str = "") -> int:
    """CPUs or GPUs of all its nodes, whoever uses them now."""
    asked = ("sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N|%c|%G")
    env = {**os.environ, **({"SLURM_CONF": conf} if conf else {})}
    try:
        done = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=TIMEOUT)
    except FileNotFoundError as error:
        raise EngineUnreachable("sinfo is not installed on this machine: give --slots.") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineUnreachable(f"Slurm does not answer: {error}.") from error
    if done.returncode:
        raise EngineUnreachable(f"sinfo: {trouble_words(done.stderr or done.stdout)}")
    found = count(done.stdout, resource)
    if not found:
        raise NotFound(f"Slurm has no {resource}s in a partition {partition}", hint="sinfo shows what there is")
    return found


def count(answer: str, resource: str) -> int:
    nodes = {}
    for line in answer.splitlines():
        name, cpus, gres = [*line.strip().split("|"), "", "", ""][:3]
        gpus = sum(int(each) for each in _GPUS.findall(gres))
        nodes[name] = gpus if resource == "gpu" else int(re.sub(r"\D", "", cpus) or 0)
    return sum(nodes.values())
