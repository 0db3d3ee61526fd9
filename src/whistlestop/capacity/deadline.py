"""Spot or on-demand under a deadline: what a job should be on next. The scheduler and the simulator ask the same
policies, and `safely` stands between every one of them and the deadline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from whistlestop.capacity.lifetimes import Record
from whistlestop.capacity.outlook import Costs, Outlook, Rates, too_late

_ROUNDING: Final = 1e-6
_STEADY: Final = 0.9  # spot that goes as seldom while a job starts is not waited beside until it has become safer


@dataclass(frozen=True)
class Offer:
    """A pool as it is now."""

    name: str
    price: float  # credits per second, for all slots of the job
    spot: bool
    up: bool = True


@dataclass(frozen=True)
class Job:
    work: float  # seconds, in all
    time: float  # seconds from its beginning to its deadline
    changeover: float  # seconds from a decision until it works again, with what has to be done anew
    began: float = 0.0  # by the clock of the records


@dataclass(frozen=True)
class Moment:
    now: float  # seconds since the job began
    left: float  # seconds of work
    on: str | None  # the pool it is on; None: it waits
    offers: Sequence[Offer]
    look: float  # seconds until it is asked again, at the latest
    starting: float = 0.0  # seconds until it works there
    risk: float = 0.0  # seconds of work that a loss takes back: on spot up to now, else between two saves at the most

    def slack(self, job: Job) -> float:
        """Seconds that may be lost, if it works from now on."""
        return job.time - self.now - self.left - self.starting

    def offer(self, name: str | None) -> Offer | None:
        return next((each for each in self.offers if each.name == name), None)


class Policy(Protocol):
    def choose(self, job: Job, moment: Moment) -> str | None:
        """The name of a pool that is up, or None: wait."""


def safely(policy: Policy, job: Job, moment: Moment) -> str | None:
    """What the policy says, unless a deadline that on-demand can keep would be at stake.

    Spot is entered only with time for two changeovers, into it and out of it when it is taken away, and for the work
    that goes with it. From then on there is time for one, since the slack does not shrink while it works: who is on
    spot stays, unless there is more to do or to lose than was thought, and this is the last look at which on-demand
    can still keep the deadline whatever happens."""
    if moment.left <= 0:
        return None
    mine, firm = moment.offer(moment.on), cheapest(moment.offers, spot=False)
    slack, after = moment.slack(job), moment.slack(job) - moment.look + _ROUNDING
    if mine is not None and mine.spot and mine.up:
        leaves = after < job.changeover + moment.risk and job.changeover <= slack + moment.starting
        return firm.name if firm is not None and leaves else mine.name
    firmly = mine if mine is not None and not mine.spot else firm
    if firmly is not None and (after < 2 * job.changeover + moment.risk or (firmly is mine and moment.starting)):
        return firmly.name
    chosen = moment.offer(policy.choose(job, moment))
    return chosen.name if chosen is not None and chosen.up else None


def cheapest(offers: Sequence[Offer], *, spot: bool) -> Offer | None:
    found = [each for each in offers if each.spot is spot and each.up]
    return min(found, key=lambda each: each.price, default=None)


class OnDemandOnly:
    def choose(self, job: Job, moment: Moment) -> str | None:
        firm = cheapest(moment.offers, spot=False)
        return firm.name if firm else None


class Stay:
    """Where it is, for now."""

    def choose(self, job: Job, moment: Moment) -> str | None:
        return moment.on


class Greedy:
    """Spot whenever there is some, else wait."""

    def choose(self, job: Job, moment: Moment) -> str | None:
        mine = moment.offer(moment.on)
        if mine is not None and not mine.spot:
            return moment.on  # once it had to pay, it stays
        spot = cheapest(moment.offers, spot=True)
        return spot.name if spot else None


@dataclass(frozen=True)
class UniformProgress:
    """Of "Can't Be Late" (NSDI 2024): never behind the straight line from start to deadline, as far as spot allows."""

    hysteresis: float = 2.0  # changeovers that it must be ahead before it leaves on-demand

    def choose(self, job: Job, moment: Moment) -> str | None:
        spot, firm = cheapest(moment.offers, spot=True), cheapest(moment.offers, spot=False)
        done, pace = job.work - moment.left, job.work / job.time
        if moment.on is None:
            if spot is not None:
                return spot.name
            return firm.name if firm is not None and done < moment.now * pace else None
        ahead = done >= (moment.now + self.hysteresis * job.changeover) * pace
        return spot.name if spot is not None and ahead else moment.on


@dataclass
class Learned:
    """The cheapest way on by what was learned of each pool: see outlook.py."""

    records: Mapping[str, Record] = field(default_factory=dict)
    horizon: float = 24 * 3600.0  # seconds after which an outlook is made anew from what was learned since
    _outlooks: dict[str, Outlook] = field(default_factory=dict, init=False)

    def choose(self, job: Job, moment: Moment) -> str | None:
        mine, firm = moment.offer(moment.on), cheapest(moment.offers, spot=False)
        if mine is not None and not mine.spot:
            firm = mine  # one is as good as another
        spots = [each for each in moment.offers if each.spot]
        best = self._best(job, moment, [each for each in spots if each.up])
        if firm is None:
            return best.name if best else None
        if all(firm.price <= each.price for each in spots):
            return firm.name  # nothing is to be gained
        costs = self._costs(job, moment, best or spots[0], firm, up=best is not None)
        if too_late(costs.wait) and too_late(costs.spot):
            return firm.name
        steady = best is not None and self._stays(job, moment, best) >= _STEADY
        if best is not None and costs.spot <= costs.on_demand and (steady or costs.spot <= costs.wait):
            return best.name
        return None if costs.wait < costs.on_demand else firm.name

    def drop_old(self, job: Job, moment: Moment) -> bool:
        """Outlooks that hold no more. True: there were some, and to choose will take longer."""
        time = job.time - moment.now
        old = [name for name, each in self._outlooks.items() if not each.covers(moment.left, time, job.changeover)]
        for name in old:
            del self._outlooks[name]
        return bool(old)

    def _best(self, job: Job, moment: Moment, up: Sequence[Offer]) -> Offer | None:
        """The least for the time in which it works: what goes soon costs a changeover soon."""

        def cost(offer: Offer) -> float:
            record = self._record(offer.name)
            stays = record.up.left(record.age(job.began + moment.now))
            return offer.price * (stays + job.changeover) / stays

        return min(up, key=cost, default=None)

    def _stays(self, job: Job, moment: Moment, offer: Offer) -> float:
        """The chance that it is still there when the job works on it."""
        record = self._record(offer.name)
        return record.up.stays(record.age(job.began + moment.now), job.changeover)

    def _costs(self, job: Job, moment: Moment, offer: Offer, firm: Offer, *, up: bool) -> Costs:
        time = job.time - moment.now
        made = self._outlooks.get(offer.name)
        if made is None or not made.covers(moment.left, time, job.changeover):
            rates = self._rates(moment, offer, firm)
            made = self._outlooks[offer.name] = Outlook(rates, moment.left, time, job.changeover, self.horizon)
        mine = moment.offer(moment.on)
        on = "idle" if mine is None else "spot" if mine.spot else "on_demand"
        age = self._record(offer.name).age(job.began + moment.now)
        return made.costs(moment.left, time, up=up, age=age, on=on)

    def _rates(self, moment: Moment, offer: Offer, firm: Offer) -> Rates:
        spots = [each for each in moment.offers if each.spot]
        others = [self._record(each.name) for each in spots if each.name != offer.name]
        mine = self._record(offer.name)
        none_of_them = 1.0
        away = mine.down.rates()
        for record in others:
            none_of_them *= 1.0 - record.share
            away = [one + other for one, other in zip(away, record.down.rates(), strict=True)]
        return Rates(mine.up.rates(), away, offer.price, firm.price, 1.0 - none_of_them)

    def _record(self, name: str) -> Record:
        return self.records.get(name) or Record()
