"""Checkpoints in a bucket: a real S3 server, a real run, and everything that can be asked of them."""

import subprocess
import sys
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from whistlestop.client.checkpoints import download
from whistlestop.testing.s3 import S3Server
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until


def given(s3: S3Server, bucket: str) -> list[str]:
    return [
        "--checkpoints", f"s3://{bucket}/some/prefix", "--checkpoints-endpoint", s3.endpoint,
        "--checkpoints-region", s3.options["region"],
    ]  # fmt: skip


def names(s3: S3Server, bucket: str) -> list[str]:
    store = S3Store(
        bucket,
        endpoint=s3.endpoint,
        region=s3.options["region"],
        access_key_id=s3.env["AWS_ACCESS_KEY_ID"],
        secret_access_key=s3.env["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )
    return [item["path"] for page in obstore.list(store) for item in page]


def test_a_run_saves_to_a_bucket_and_a_deleted_one_leaves_nothing_there(
    s3: S3Server, programs: Path, tmp_path: Path
) -> None:
    bucket = s3.bucket()
    with ServerProcess(tmp_path / "server", extra=given(s3, bucket)) as server:
        client = server.client()
        assert client.probe_storage().fit
        phase = {"name": "train", "command": "python train.py", "checkpoint": {"every": "20 steps", "keep": 5}}
        run = server.submit(phase, directory=programs)
        assert server.wait(run.id).status == "completed"
        newest, *others = client.checkpoints(run.id)
        assert (newest.step, newest.newest, newest.verified) == (50, True, True)
        assert (newest.path or "").startswith(f"s3://{bucket}/some/prefix/{run.id}/train/")
        assert client.verify_checkpoint(run.id, newest.id).intact
        detail = client.checkpoint(run.id, newest.id)
        fetched = download(client, run.id, detail, tmp_path / "here")
        assert (fetched.files, fetched.bytes) == (len(detail.files), newest.bytes)
        assert client.remove_checkpoint(run.id, others[0].id).changed
        assert client.restore_checkpoint(run.id, others[0].id).checkpoint.pinned
        child = client.continue_run(run.id, step=others[0].step)
        assert server.wait(child.id).status == "completed"
        assert client.run(child.id).phases[0].attempts[0].resumed_from == others[0].step
        for each in (child.id, run.id):
            client.delete(each)
        until(lambda: not names(s3, bucket), within=60, what="the bucket to be empty")
        assert server.complaints() == []


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ("s3://", "names no bucket"),
        ("ftp://x/y", "speaks ftp"),
        ("s3://there-is-no-such-bucket/x", "can't be kept there"),
    ],
)
def test_a_wrong_place_is_refused_at_start_in_words(s3: S3Server, tmp_path: Path, where: str, word: str) -> None:
    words = ["up", "--port", "0", "--data", str(tmp_path), "--checkpoints", where]
    if where.startswith("s3://there"):
        words += ["--checkpoints-endpoint", s3.endpoint]
    done = subprocess.run(
        [sys.executable, "-m", "whistlestop.cli.main", *words], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode in (1, 2), done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr
