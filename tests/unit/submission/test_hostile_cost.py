"""The worst small submissions, each opened and verified within limits of memory and CPU.

`benchmarks/hostile_submissions.py` measures the same at 100 MB.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hostile_submissions import ATTACKS

MEGABYTES = 2
MAX_BYTES = 700 << 20
MAX_CPU_SECONDS = 90
MAX_SECONDS_EACH = 4.0
OPEN_ALL = """
import json, sys, time
from pathlib import Path
from ai500.submission import archive, packing
from ai500.submission.manifest import MANIFEST, open_submission
from ai500.submission.verify import recompute
from tests.support.hostile_submissions import ATTACKS
from tests.support.submitted import contents, packed, small_run
folder, size, seconds = Path(sys.argv[1]), int(sys.argv[2]), {}
small = contents(packed(small_run(folder / "run"), folder / "small.ai500"))
small.pop(MANIFEST)
for name, attack in ATTACKS.items():
    files = small | attack(small, size)
    if MANIFEST not in files:
        packing.seal(files, key=None)
    archive.pack(folder / "hostile.ai500", files)
    del files
    start = time.process_time()
    with open_submission(folder / "hostile.ai500") as submission:
        result = recompute(submission)
    seconds[name] = time.process_time() - start
    assert len(result.problems) <= 2100, name
print(json.dumps(seconds))
"""


@pytest.mark.slow
def test_each_attack_is_judged_within_limits(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))

    done = subprocess.run(
        [sys.executable, "-c", OPEN_ALL, str(tmp_path), str(MEGABYTES * 1_000_000)],
        capture_output=True, text=True, timeout=500, preexec_fn=limit,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    seconds: dict[str, float] = json.loads(done.stdout)
    assert seconds.keys() == ATTACKS.keys()
    assert not {name for name, each in seconds.items() if each > MAX_SECONDS_EACH}, seconds
