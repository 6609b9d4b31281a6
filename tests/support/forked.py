"""Commands and scripts in processes of their own that need not load PyTorch again.

One process loads everything once and does nothing else; each call is a fork of it. What a call registers,
imports or changes is gone with it, as with a new interpreter, which takes seconds to start.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

LOADED = (
    "spreadout",
    "spreadout.cli.main",
    "spreadout.report.page",
    "spreadout.report.terminal",
    "spreadout.runs.compare",
    "spreadout.runs.audit",
    "spreadout.runs.predict",
    "sklearn.datasets",
)


def spreadout(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line."""
    return _call({"module": "spreadout", "argv": ["spreadout", *args]}, cwd)


def python(code: str, *args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A script given as text."""
    return _call({"code": code, "argv": ["-c", *args]}, cwd)


def script(path: Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A script in a file."""
    return _call({"path": str(path), "argv": [str(path)]}, cwd)


def _call(what: dict[str, Any], cwd: Path | None) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as told:
        call = {**what, "cwd": str(cwd or Path.cwd()), "told": told, "environ": dict(os.environ)}
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(call) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        said = [(Path(told) / name).read_text(encoding="utf-8") for name in ("stdout", "stderr")]
    return subprocess.CompletedProcess(call["argv"], code, *said)


@cache
def _server() -> subprocess.Popen[str]:
    """The process that is forked; it ends with this one."""
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # as in the tests themselves
    )
    atexit.register(process.communicate)  # nothing more comes: it leaves
    return process


def serve(calls: IO[str], replies: IO[str]) -> None:
    """Fork for every line that comes; answer with how the fork ended."""
    for name in LOADED:
        __import__(name)
    sys.modules["spreadout"].run  # noqa: B018  (loads what the package loads late)
    for line in calls:
        child = os.fork()
        if child == 0:
            _run(json.loads(line))
        _, status = os.waitpid(child, 0)
        replies.write(f"{os.waitstatus_to_exitcode(status)}\n")
        replies.flush()


def _run(call: dict[str, Any]) -> NoReturn:
    """In the fork: as a new interpreter would, to its end."""
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(call["told"]) / name, os.O_WRONLY | os.O_CREAT), stream)
    os.close(0)
    os.chdir(call["cwd"])
    os.environ.clear()
    os.environ.update(call["environ"])
    sys.argv[:] = call["argv"]
    sys.path[0] = str(Path(call["path"]).parent) if "path" in call else call["cwd"]
    code: object = 0
    try:
        if "code" in call:
            exec(compile(call["code"], "<string>", "exec"), {"__name__": "__main__"})
        elif "path" in call:
            runpy.run_path(call["path"], run_name="__main__")
        else:
            runpy.run_module(call["module"], run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code or 0))  # type: ignore[call-overload]


if __name__ == "__main__":
    # What is loaded may print; only replies go where replies are read.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)
