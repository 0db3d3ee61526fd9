"""Of all that was raised, what it began with: in a chain of exceptions, and among ranks that fail one by one."""

from collections.abc import Sequence

from whistlestop.diagnosis.evidence import Line
from whistlestop.diagnosis.findings import Cause
from whistlestop.diagnosis.reading import Read, of_exception
from whistlestop.diagnosis.tracebacks import Aside, Raised, chains

# What says more than anything that was raised while it was handled, or because of it.
_DECISIVE = frozenset(
    {Cause.DEVICE_MEMORY, Cause.HOST_MEMORY, Cause.SHARED_MEMORY, Cause.DISK_FULL, Cause.DEVICE_FAULT, Cause.NON_FINITE}
)
# What others are the consequence of; a file that was not in a cache is no reason if the network was not there either.
_WEAK = frozenset({Cause.CODE_ERROR, Cause.MISSING_FILE, Cause.KILLED_OUTSIDE})
_TOGETHER = 120.0  # seconds: what was raised longer before the end was survived


def root(lines: Sequence[Line], first_rank: int | None) -> Read | None:
    """None: nothing was raised."""
    found = [(chain, _of_chain(chain)) for chain in chains(lines)]
    found = [each for each in found if each[0][-1].aside is not Aside.IGNORED]
    ending = [read for chain, read in found if chain[-1].aside is Aside.NO]
    if not ending:
        return found[-1][1] if found else None
    last = max(read.raised.at for read in ending)
    ending = [read for read in ending if read.raised.at >= last - _TOGETHER]
    of_rank: dict[int, list[Read]] = {}
    for read in ending:
        of_rank.setdefault(read.raised.rank, []).append(read)
    if first_rank in of_rank:
        return _of_one(of_rank[first_rank])
    each = [_of_one(reads) for reads in of_rank.values()]
    culprits = [read for read in each if not _is_told_by_others(read)]
    return min(culprits or each, key=lambda read: (read.raised.at, read.raised.place))


def _of_chain(chain: tuple[Raised, ...]) -> Read:
    reads = [of_exception(raised) for raised in chain]
    decisive = next((read for read in reads if read.cause in _DECISIVE), None)
    if decisive is not None:
        return decisive
    own = [read for read in reads if not read.follows] or reads
    if any(raised.link == "handling" for raised in chain):
        said = [read for read in own if read.cause not in _WEAK]
        if said:
            return said[0]
        # A file that was looked for in vain and then something else that is the program's own: the file.
        return next((read for read in own if read.cause is not Cause.CODE_ERROR), own[-1])
    # Direct causes: the first one is what happened, unless only a later one says what it means.
    return next((read for read in own if read.cause is not Cause.CODE_ERROR), own[0])


def _of_one(reads: Sequence[Read]) -> Read:
    """Of one rank: the last one ended it, unless it only tells that another did, in a process of its own."""
    last = reads[-1]
    if not _is_told_by_others(last):
        return last
    return next((read for read in reversed(reads) if not _is_told_by_others(read)), last)


def _is_told_by_others(read: Read) -> bool:
    return read.follows or read.cause is Cause.COMMUNICATION
