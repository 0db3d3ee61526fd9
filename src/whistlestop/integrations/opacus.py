"""What private steps cost, by Opacus or by dp-accounting: epsilon of so many steps of DP-SGD, for privacy_budget()."""

import warnings
from collections.abc import Callable
from importlib.util import find_spec

from whistlestop.domain.errors import BadRequest

OPACUS = ("rdp", "prv")  # not its "gdp": that one may underestimate, and a budget would be overspent
DP_ACCOUNTING = ("rdp", "pld")


def epsilon_of(
    noise_multiplier: float, sample_rate: float, delta: float, *, accountant: str = "rdp"
) -> Callable[[int], float]:
    """By Opacus, with the accountant that its PrivacyEngine was given: "rdp" or "prv"."""
    _known("Opacus", accountant, OPACUS)
    from opacus.accountants import create_accountant

    def epsilon(steps: int) -> float:
        counted = create_accountant(mechanism=accountant)
        counted.history = [(noise_multiplier, sample_rate, steps)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the range of orders, for step counts that are only tried out
            return float(counted.get_epsilon(delta=delta))

    return epsilon


def dp_epsilon(
    noise_multiplier: float, sample_rate: float, delta: float, *, accountant: str = "rdp"
) -> Callable[[int], float]:
    """By Google's dp-accounting: "rdp" or "pld"."""
    _known("dp-accounting", accountant, DP_ACCOUNTING)
    import dp_accounting
    from dp_accounting import pld, rdp

    step = dp_accounting.PoissonSampledDpEvent(sample_rate, dp_accounting.GaussianDpEvent(noise_multiplier))

    def epsilon(steps: int) -> float:
        counted = rdp.RdpAccountant() if accountant == "rdp" else pld.PLDAccountant()
        counted.compose(step, steps)
        return float(counted.get_epsilon(delta))

    return epsilon


def any_epsilon_of(
    noise_multiplier: float, sample_rate: float, delta: float, *, accountant: str = "rdp"
) -> Callable[[int], float]:
    """By whichever of the two is installed and has that accountant; Opacus first. BadRequest if there is none."""
    if accountant in OPACUS and _installed("opacus"):
        return epsilon_of(noise_multiplier, sample_rate, delta, accountant=accountant)
    if accountant in DP_ACCOUNTING and _installed("dp_accounting"):
        return dp_epsilon(noise_multiplier, sample_rate, delta, accountant=accountant)
    packages = [name for name, has in (("opacus", OPACUS), ("dp-accounting", DP_ACCOUNTING)) if accountant in has]
    raise BadRequest(
        f"the privacy budget can't be computed: the program's environment has no package with the \"{accountant}\" "
        f"accountant ({' or '.join(packages)})",
        hint=f"pip install {packages[0] if packages else 'opacus'}",
    )


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _known(package: str, accountant: str, known: tuple[str, ...]) -> None:
    if accountant not in known:
        raise BadRequest(f'{package} has no "{accountant}" accountant', hint=f"one of {', '.join(known)}")
