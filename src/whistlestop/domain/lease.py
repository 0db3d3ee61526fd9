"""How long a runner may go on that reaches nobody. Both sides count: the runner from the last time that it was heard,
the server from the last time that it heard of it, which is never earlier."""

MARGIN = 5.0  # seconds beyond a lease: the runner saves what it can and ends everything; then the next may begin


def leave_seconds(margin: float = MARGIN) -> float:
    """From the end of the lease to the end of the program: what is left of the margin is for the proof."""
    return 0.7 * margin
