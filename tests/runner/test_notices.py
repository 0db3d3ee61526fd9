"""Where notices come from: real questions to a server that speaks as AWS, GCP and Azure do, and that can misbehave."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from whistlestop.runner import sources
from whistlestop.runner.metadata import Answer, Unanswered, ask
from whistlestop.runner.notices import LEAVE_WITHIN, Kind, Notice, Source, Watch, sources_of, timed
from whistlestop.runner.sources import SOURCES
from whistlestop.testing.metadata import MetadataServer
from whistlestop.testing.wait import until


class Heard:
    """A watch, and what it passed on."""

    def __init__(self, asked: list[Source]) -> None:
        self.notices: list[Notice] = []
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        for source in asked:
            source.every = min(source.every, 0.02)
        self.watch = Watch(asked, take=self.notices.append, tell=self._tell)
        self.watch.start()

    def _tell(self, kind: str, text: str, **data: object) -> None:
        self.events.append((kind, text, data))

    def notice(self) -> Notice:
        return until(lambda: self.notices, what="a notice")[-1]


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def metadata() -> Iterator[MetadataServer]:
    with MetadataServer() as server:
        yield server


@pytest.fixture
def hear(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Heard]]:
    made: list[Heard] = []
    monkeypatch.setattr(sources, "GCP_AGAIN", 0.02)

    def begin(**named: str) -> Heard:
        made.append(Heard(sources_of(named)))
        return made[-1]

    yield begin
    for each in made:
        each.watch.stop()


def asked(server: MetadataServer, path: str) -> int:
    return sum(each.startswith(path) for _, each in list(server.asked))


# AWS


def test_aws_says_when_it_takes_the_instance_back(metadata: MetadataServer, hear: Callable[..., Heard]) -> None:
    heard = hear(aws=metadata.url)
    until(lambda: asked(metadata, "/latest/meta-data/events/maintenance/scheduled") > 1)
    assert not heard.notices
    at = int(time.time()) + 119
    metadata.aws_interrupts(at=at)
    notice = heard.notice()
    assert (notice.source, notice.kind, notice.deadline) == ("aws", Kind.FINAL, at)
    assert notice.text.startswith("AWS takes the instance back at ")
    assert notice.text.endswith("(terminate)")
    before = asked(metadata, "/latest/meta-data/spot/instance-action")
    until(lambda: asked(metadata, "/latest/meta-data/spot/instance-action") > before + 2)
    assert len(heard.notices) == 1  # said once
    assert not heard.events


def test_an_expired_token_is_renewed(metadata: MetadataServer, hear: Callable[..., Heard]) -> None:
    heard = hear(aws=metadata.url)
    until(lambda: asked(metadata, "/latest/meta-data/") > 2)
    metadata.forget_tokens()
    metadata.aws_recommends_rebalance()
    assert heard.notice().kind is Kind.ADVISORY
    assert asked(metadata, "/latest/api/token") >= 2
    assert not heard.events


def test_a_machine_without_tokens_is_asked_the_old_way(hear: Callable[..., Heard]) -> None:
    with MetadataServer(tokens=False) as metadata:
        metadata.aws_interrupts(at=time.time() + 60, action="stop")
        assert "stops the instance" in hear(aws=metadata.url).notice().text
        until(lambda: asked(metadata, "/latest/meta-data/") > 9)
        assert asked(metadata, "/latest/api/token") == 1


def test_what_is_scheduled_for_later_is_advice_until_it_is_near(
    metadata: MetadataServer, hear: Callable[..., Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = int(time.time()) + 3600
    metadata.aws_schedules(at=at, code="instance-retirement")
    heard = hear(aws=metadata.url)
    assert heard.notice().kind is Kind.ADVISORY
    assert "instance-retirement" in heard.notices[0].text
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600 - LEAVE_WITHIN + 1)
    until(lambda: len(heard.notices) == 2)
    assert (heard.notices[1].kind, heard.notices[1].deadline) == (Kind.FINAL, at)


def test_maintenance_that_could_have_begun_and_what_ends_nothing_are_advice(metadata: MetadataServer) -> None:
    source = SOURCES["aws"](metadata.url)[0]
    metadata.aws_schedules(at=time.time() - 3600, code="system-reboot")
    metadata.aws_schedules(at=time.time() + 60, code="system-maintenance")
    assert [notice.kind for notice in source.ask()] == [Kind.ADVISORY] * 2


def test_a_source_that_always_has_news_gives_advice_once_in_a_while(
    metadata: MetadataServer, hear: Callable[..., Heard]
) -> None:
    for hours in range(1, 200):
        metadata.aws_schedules(at=time.time() + 3600 * hours)
    heard = hear(aws=metadata.url)
    heard.notice()
    metadata.aws_schedules(at=time.time() + 3601)
    before = asked(metadata, "/latest/meta-data/spot")
    until(lambda: asked(metadata, "/latest/meta-data/spot") > before + 2)
    metadata.aws_interrupts(at=time.time() + 100)
    until(lambda: heard.notices[-1].kind is Kind.FINAL)
    assert [notice.kind for notice in heard.notices] == [Kind.ADVISORY, Kind.FINAL]


@pytest.mark.parametrize("skew", [-300.0, 300.0])
def test_the_clock_that_counts_is_that_of_who_says_it(metadata: MetadataServer, skew: float) -> None:
    """Theirs is ahead of ours, or behind."""
    metadata.skew = skew
    metadata.aws_interrupts(at=time.time() + skew + 100)
    metadata.azure_schedules("Preempt", at=time.time() + skew + 40)
    for cloud, seconds in (("aws", 100), ("azure", 40)):
        notice = timed(SOURCES[cloud](metadata.url)[0].ask()[0], time.time())
        assert notice.kind is Kind.FINAL
        assert notice.deadline == pytest.approx(time.time() + seconds, abs=3)


def test_a_spot_notice_is_final_whatever_its_time_says(metadata: MetadataServer) -> None:
    metadata.aws_interrupts(at=time.time() + 5000)
    metadata.azure_schedules("Preempt", at=time.time() + 5000)
    for cloud in ("aws", "azure"):
        assert timed(SOURCES[cloud](metadata.url)[0].ask()[0], time.time() + 0.01).kind is Kind.FINAL


def test_a_time_with_an_offset_is_read_with_it(metadata: MetadataServer) -> None:
    at = int(time.time()) + 60
    zone = timezone(timedelta(hours=2))
    metadata._aws["spot/instance-action"] = {"action": "stop", "time": datetime.fromtimestamp(at, zone).isoformat()}
    assert SOURCES["aws"](metadata.url)[0].ask()[0].deadline == at


def test_what_can_not_be_read_does_not_hide_what_can(metadata: MetadataServer) -> None:
    """The key as an early mock had it, beside a good recommendation."""
    source = SOURCES["aws"](metadata.url)[0]
    metadata._aws["spot/instance-action"] = {"instance-action": "terminate"}
    metadata.aws_recommends_rebalance()
    assert [notice.kind for notice in source.ask()] == [Kind.ADVISORY]


# GCP


def test_gcp_is_heard_the_moment_it_changes(metadata: MetadataServer, hear: Callable[..., Heard]) -> None:
    heard = hear(gcp=metadata.url)
    waiting = "/computeMetadata/v1/instance/preempted?wait_for_change=true&last_etag="
    until(lambda: asked(metadata, waiting))
    assert not heard.notices
    before = time.time()
    metadata.gcp_says(preempted="TRUE")
    notice = heard.notice()
    assert (notice.kind, notice.source) == (Kind.FINAL, "gcp")
    assert before + 30 <= notice.deadline <= time.time() + 30
    assert "GCP takes the instance back at" in notice.text
    assert asked(metadata, waiting) == 1  # it waited, and did not ask again and again


def test_a_gcp_machine_that_was_preempted_before_we_asked_says_so_at_once(
    metadata: MetadataServer, hear: Callable[..., Heard]
) -> None:
    metadata.gcp_says(preempted="TRUE")
    assert hear(gcp=metadata.url).notice().kind is Kind.FINAL


@pytest.mark.parametrize(
    ("event", "kind"),
    [("TERMINATE_ON_HOST_MAINTENANCE", Kind.FINAL), ("MIGRATE_ON_HOST_MAINTENANCE", Kind.ADVISORY)],
)
def test_maintenance_of_a_gcp_host_ends_or_moves_the_instance(
    metadata: MetadataServer, hear: Callable[..., Heard], event: str, kind: Kind
) -> None:
    heard = hear(gcp=metadata.url)
    metadata.gcp_says(maintenance_event=event)
    assert heard.notice().kind is kind


def test_the_headers_of_who_stands_in_for_gcp_are_read_however_they_are_written(
    metadata: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In front of it there may be a server in Go, as in GKE: it writes `Etag`."""

    def rewritten(*given: Any, **named: Any) -> Answer:
        status, headers, body = ask(*given, **named)
        return Answer(status, {name.title(): value for name, value in headers.items()}, body)

    monkeypatch.setattr(sources, "ask", rewritten)
    source = SOURCES["gcp"](metadata.url)[0]
    assert source.ask() == []
    metadata.gcp_says(preempted="TRUE")
    assert source.ask()[0].kind is Kind.FINAL
    assert "wait_for_change=true&last_etag=" in metadata.asked[-1][1]


# Azure


def test_azure_events_count_for_the_machines_that_they_name(
    metadata: MetadataServer, hear: Callable[..., Heard]
) -> None:
    at = int(time.time()) + 30
    metadata.azure_schedules("Preempt", at=at, resources=["vm_1"])
    metadata.azure_schedules("Freeze", at=at)
    heard = hear(azure=metadata.url)
    until(lambda: asked(metadata, "/metadata/scheduledevents?api-version=2020-07-01") > 3)
    assert not heard.notices
    metadata.azure_schedules("Preempt", at=at, resources=["vm_1", "vm_0"])
    several = heard.notice()
    assert (several.kind, several.deadline) == (Kind.FINAL, at)
    assert several.text.startswith("Azure takes the machine back at ")
    heard.watch.acknowledge(several)
    assert not metadata.acknowledged  # vm_1 may still be saving
    ours = metadata.azure_schedules("Preempt", at=at)
    until(lambda: len(heard.notices) == 2)
    heard.watch.acknowledge(heard.notices[1])
    assert metadata.acknowledged == [ours]


def test_azure_may_take_back_many_machines_of_a_set_at_once(metadata: MetadataServer) -> None:
    """Each is told of all of them."""
    for number in range(999, -1, -1):
        metadata.azure_schedules("Preempt", at=time.time() + 30, resources=[f"vm_{number}"])
    assert [notice.kind for notice in SOURCES["azure"](metadata.url)[0].ask()] == [Kind.FINAL]


def test_a_machine_may_be_told_its_name(metadata: MetadataServer, hear: Callable[..., Heard]) -> None:
    metadata.azure_schedules("Redeploy", at=time.time() + 60, resources=["scale_7"])
    assert "moves the machine" in hear(azure=f"{metadata.url}#scale_7").notice().text
    assert not asked(metadata, "/metadata/instance")


def test_azure_is_not_told_to_go_on_while_another_runner_is_there(metadata: MetadataServer) -> None:
    first, second = SOURCES["azure"](metadata.url)[0], SOURCES["azure"](metadata.url)[0]
    metadata.azure_schedules("Preempt", at=time.time() + 30)
    first.acknowledge(first.ask()[0])
    assert not metadata.acknowledged
    second.acknowledge(second.ask()[0])
    assert len(metadata.acknowledged) == 1


# A file


def test_a_file_is_a_notice_with_its_deadline_or_the_usual_one(tmp_path: Path, hear: Callable[..., Heard]) -> None:
    path = tmp_path / "notice"
    heard = hear(file=str(path))
    path.touch()
    notice = heard.notice()
    assert (notice.kind, notice.deadline) == (Kind.FINAL, pytest.approx(path.stat().st_mtime + 25))
    path.write_text(json.dumps({"in_seconds": 7, "text": "The cleaner comes", "kind": "final"}))
    until(lambda: heard.notices[-1].text == "The cleaner comes")
    assert heard.notices[-1].deadline == pytest.approx(path.stat().st_mtime + 7)
    path.write_text(json.dumps({"deadline": 4e9, "kind": "advisory"}))
    until(lambda: heard.notices[-1].deadline == 4e9)
    assert heard.notices[-1].kind is Kind.ADVISORY


def test_a_file_in_the_middle_of_being_written_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "notice"
    source = SOURCES["file"](str(path))[0]
    assert source.ask() == []
    path.touch()
    assert source.ask() == []
    path.write_text('{"in_sec')
    assert source.ask() == []
    path.write_text('{"in_seconds": 9}')
    assert source.ask()[0].deadline == pytest.approx(path.stat().st_mtime + 9)
    path.write_text("free words")
    assert source.ask() == []
    assert source.ask()[0].deadline == pytest.approx(path.stat().st_mtime + 25)  # it stays as it is: it exists


def test_a_file_of_the_past_is_not_heeded_and_said_once(tmp_path: Path, hear: Callable[..., Heard]) -> None:
    path = tmp_path / "notice"
    path.touch()
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    heard = hear(file=str(path))
    until(lambda: heard.events)
    assert "Remove it" in heard.events[0][1]
    path.write_text('{"in_seconds": 5}')
    assert heard.notice().kind is Kind.FINAL


# Whoever does not behave


@pytest.mark.parametrize("misbehaviour", ["garbage", "huge", "redirect", "500"])
@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_a_hostile_answer_is_said_once_and_nothing_else_happens(
    metadata: MetadataServer, hear: Callable[..., Heard], cloud: str, misbehaviour: str
) -> None:
    metadata.misbehaviour = misbehaviour
    heard = hear(**{cloud: metadata.url})
    until(lambda: heard.events and len(metadata.asked) > 4)
    assert not heard.notices
    assert not asked(metadata, "/elsewhere")
    metadata.misbehaviour = ""
    until(lambda: len(heard.events) == 2)
    metadata.misbehaviour = misbehaviour
    metadata.gcp_says()  # whoever waits for a change hears of it
    count = len(metadata.asked)
    until(lambda: len(metadata.asked) > count + 2)
    assert [event[0] for event in heard.events] == ["notice_source"] * 2
    assert [event[2]["answers"] for event in heard.events] == [False, True]


@pytest.mark.parametrize("misbehaviour", ["silent", "dripping"])
def test_an_answer_has_to_be_whole_in_time(metadata: MetadataServer, misbehaviour: str) -> None:
    metadata.misbehaviour = misbehaviour
    began = time.monotonic()
    with pytest.raises(Unanswered, match=r"no answer within 0\.3 s"):
        ask(metadata.url, "/", timeout=0.3)
    assert time.monotonic() - began < 10


def test_nobody_there_is_said_in_words(hear: Callable[..., Heard]) -> None:
    heard = hear(aws="http://127.0.0.1:1")
    until(lambda: heard.events)
    assert "Connection refused" in heard.events[0][1]


def test_no_proxy_is_asked(
    metadata: MetadataServer, hear: Callable[..., Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    metadata.aws_interrupts(at=time.time() + 60)
    assert hear(aws=metadata.url).notice()


def test_a_source_that_nobody_knows_is_named(hear: Callable[..., Heard]) -> None:
    heard = hear(oracle="http://x")
    until(lambda: heard.events)
    assert "nobody knows how to ask 'oracle'" in heard.events[0][1]
