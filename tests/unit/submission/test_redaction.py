"""`ai500 submit --redact`: no name of a host, user or folder, and the submission still verifies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ai500.core import sealed_json
from ai500.core.atomic import json_text
from ai500.core.errors import InputError
from ai500.ranking.entries import Ranked
from ai500.records.run_folder import RunFolder
from ai500.submission import packing
from ai500.submission.manifest import open_submission
from ai500.submission.packing import submit
from ai500.submission.redaction import redacted
from ai500.submission.verify import recompute
from tests.support.submitted import OPTIONS, contents, submittable_run
from tests.support.synthetic_list import judged

HOST, USER = "login7.secret-site.example", "mustermann"
FOLDER = f"/home/{USER}/covert-project"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A valid run on a host with a name, whose files name a user and folders."""
    made = submittable_run(tmp_path / "run")
    for file in made.path.rglob("*.json*"):
        text = file.read_text()
        if file.suffix == ".json":
            text = json_text(sealed_json.unseal(json.loads(text))[0])
        for key in ("host", "hostname", "name", "node"):
            text = text.replace(f'"{key}": "host"', f'"{key}": "{HOST}"')
        file.write_text(text)
    log = made.trial(1).member(0).log
    log.write_text(f"on login7: read {FOLDER}/set-1/x.py, as {USER}, at 3 images/s\n")
    (made.trial(1).path / "slurm").mkdir()
    (made.trial(1).path / "slurm" / "001.sh").write_text(f"#SBATCH -w {HOST}\ntrial={FOLDER}/r\n")
    return made


def test_no_name_is_left_and_it_verifies_and_ranks(run: RunFolder, tmp_path: Path) -> None:
    out = tmp_path / "list" / "mine.ai500"
    out.parent.mkdir()
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    info = submit(run, out, options=OPTIONS, redact=True)
    files = contents(out)
    text = "\n".join([*files, *(data.decode() for data in files.values())])
    for name in (HOST, "login7", "secret-site", USER, "covert-project", "set-1", str(tmp_path)):
        assert name not in text, text[max(0, text.index(name) - 100) :][:200]
    with open_submission(out) as submission:
        result = recompute(submission)
        assert result.confirmed, result.problems
    (listed,) = judged(out.parent)
    assert isinstance(listed, Ranked), listed
    assert info.system_name == OPTIONS.system_name
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_the_same_name_is_the_same_pseudonym_everywhere(run: RunFolder) -> None:
    files = redacted(packing.collect(run))
    events = [json.loads(line) for line in files["events.jsonl"].decode().splitlines()]
    own = [
        json.loads(line)
        for line in files["trials/01/members/000/events.jsonl"].decode().splitlines()
    ]
    (host,) = {event["host"] for event in events + own}
    assert json.loads(files["plan.json"])["nodes"][0]["name"] == host
    assert json.loads(files["system.json"])["hostname"] == host
    assert f"-w {host}\n" in files["trials/01/slurm/001.sh"].decode()
    log = files["trials/01/members/000/log.txt"].decode()
    assert log.endswith("/x.py, as user1, at 3 images/s\n")


def test_nothing_but_names_changes(run: RunFolder) -> None:
    files = packing.collect(run)
    again = redacted(redacted(files))
    assert again == redacted(files)
    for name, data in files.items():
        if name.endswith("record.json"):
            before, after = json.loads(data), json.loads(redacted(files)[name])
            assert before["weights_sha256"] == after["weights_sha256"]
            assert before["effective"].keys() == after["effective"].keys()


def test_a_link_out_of_the_run_is_not_followed(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret\n")
    log = run.trial(1).member(1).log
    log.unlink()
    log.symlink_to(tmp_path / "secret")
    with pytest.raises(InputError) as caught:
        packing.collect(run)
    assert caught.value.path == log


def test_hosts_of_several_domains_stay_several() -> None:
    files = {
        f"trials/01/systems/{host}-000.json": json.dumps({"hostname": host}).encode()
        for host in ("gpu.a.example", "gpu.b.example", "cpu")
    }
    files["plan.json"] = b'{"nodes": ["cpu.a.example"]}'  # a host with its domain is the same one
    renamed = redacted(files)
    plan = json.loads(renamed.pop("plan.json"))
    hosts = {json.loads(data)["hostname"] for data in renamed.values()}
    assert len(hosts) == 3
    assert set(plan["nodes"]) < hosts
