"""The API fuzzed from its own OpenAPI document: whatever comes in, no 500 comes out."""

import os
import subprocess
import sys
from pathlib import Path

from whistlestop.testing.server import ServerProcess


def test_no_request_made_from_the_openapi_document_gets_a_500(server: ServerProcess, tmp_path: Path) -> None:
    run = server.submit({"name": "t", "kind": "task", "command": ["true"]}, name="fuzzed")
    server.wait(run.id)
    examples = os.environ.get("FUZZ_EXAMPLES")
    # The values at the edges of every field take as long as all the rest: they are for `make soak`.
    few = ["--max-examples", "3", "--phases", "examples,fuzzing,stateful"]
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/api/v1/openapi.json",
        "--header", f"Authorization: Bearer {server.token}",
        "--checks", "not_a_server_error", *(["--max-examples", examples] if examples else few),
        "--exclude-path-regex", "stream$", "--request-timeout", "20", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "Traceback" not in server.output()
    assert server.client().whoami().role == "admin"
