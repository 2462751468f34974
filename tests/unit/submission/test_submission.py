"""Submissions: packed, tampered with, forged, refused."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ai500.cli import main
from ai500.core import editions, events
from ai500.core.errors import EnvironmentLacksError, InputError, RuleError
from ai500.records.run_folder import RunFolder
from ai500.submission import archive, packing, signing
from ai500.submission.description import SubmitOptions
from ai500.submission.manifest import MANIFEST, SIGNATURE, Source, open_submission
from tests.support import changed_records
from tests.support.commands import Start
from tests.support.submitted import OPTIONS, contents, packed, small_run, submittable_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a small submission, signed."""
    folder = tmp_path_factory.mktemp("small")
    signing.make_key(folder / "key.pem")
    run = small_run(folder / "run")
    return contents(packed(run, folder / "small.ai500", key=folder / "key.pem"))


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run that breaks no rule; tests must not change it."""
    return submittable_run(tmp_path_factory.mktemp("official") / "run")


def repacked(files: dict[str, bytes], folder: Path) -> Path:
    path = folder / "again.ai500"
    archive.pack(path, files)
    return path


def unsigned(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if name != SIGNATURE}


def problems_of(files: dict[str, bytes], folder: Path) -> list[str]:
    with open_submission(repacked(files, folder)) as submission:
        return submission.problems


def test_a_clean_one_is_intact(small: dict[str, bytes], tmp_path: Path) -> None:
    with open_submission(repacked(small, tmp_path)) as submission:
        assert submission.problems == []
        assert submission.signed
        assert submission.require_info().organization == "Example University"
        folder = submission.run.path
    assert not folder.exists()


def test_a_changed_byte_in_every_file(small: dict[str, bytes], tmp_path: Path) -> None:
    """One changed byte of any file, signed or not, is a problem that names the file."""
    for name, content in small.items():
        for position in sorted({0, len(content) // 3, len(content) // 2, len(content) - 1}):
            changed = bytearray(content)
            changed[position] ^= 1
            problems = problems_of(small | {name: bytes(changed)}, tmp_path)
            assert any(name in problem for problem in problems), (name, position, problems)
        if name != SIGNATURE:
            problems = problems_of(unsigned(small) | {name: bytes(changed)}, tmp_path)
            assert any(name in problem for problem in problems), (name, problems)


@pytest.mark.parametrize("place", ["in its white space", "in a hash", "in a name"])
def test_a_changed_manifest_that_is_still_valid_json(
    place: str, small: dict[str, bytes], tmp_path: Path
) -> None:
    text = small[MANIFEST].decode()
    changed = {
        "in its white space": text.replace("  ", "\t", 1),
        "in a hash": text.replace('"sha256": "', '"sha256": "0', 1).replace("0" * 2, "0", 1),
        "in a name": text.replace('"plan.json"', '"plan.jsom"'),
    }[place]
    assert changed != text
    problems = problems_of(unsigned(small) | {MANIFEST: changed.encode()}, tmp_path)
    assert any(MANIFEST in problem for problem in problems)


def test_missing_and_unlisted_files(small: dict[str, bytes], tmp_path: Path) -> None:
    for name in small:
        if name != SIGNATURE:
            less = {key: value for key, value in small.items() if key != name}
            assert any(name in problem for problem in problems_of(less, tmp_path))
    [problem] = problems_of(small | {"notes.md": b"more"}, tmp_path)
    assert problem.startswith("notes.md: ")
    assert MANIFEST in problem


@pytest.mark.parametrize(
    "name",
    ["more.json", "trials/01/more.json", "trials/02/trial.json", "trials/01/members/002/log.txt",
     "trials/01/systems/a/b.json", "trials/01/members/000/graph/more.json", "trials/1/trial.json"],
)  # fmt: skip
def test_a_file_that_the_plan_does_not_need(
    name: str, small: dict[str, bytes], tmp_path: Path
) -> None:
    """Listed in the manifest, and nevertheless of no use to anyone who judges the run."""
    more = {key: value for key, value in unsigned(small).items() if key != MANIFEST}
    more[name] = small["trials/01/trial.json"] if name.endswith("trial.json") else b"{}"
    packing.seal(more, key=None)
    assert [problem for problem in problems_of(more, tmp_path) if problem.startswith(f"{name}: ")]


def test_regenerated_hashes_of_a_signed_one(small: dict[str, bytes], tmp_path: Path) -> None:
    """A new manifest for a changed file is not signed."""
    score = small["score.json"].replace(b'"vflops": 1', b'"vflops": 9', 1)
    assert score != small["score.json"]
    forged = unsigned(small) | {"score.json": score}
    del forged[MANIFEST]
    packing.seal(forged, key=None)
    forged[SIGNATURE] = small[SIGNATURE]
    [problem] = problems_of(forged, tmp_path)
    assert SIGNATURE in problem
    assert MANIFEST in problem


def test_signers(small: dict[str, bytes], tmp_path: Path) -> None:
    """Trusted keys make an unknown signer and a missing signature problems."""
    friends = tmp_path / "friends"
    friends.mkdir()
    fingerprint = signing.make_key(tmp_path / "mine.pem")
    (tmp_path / "mine.pub.pem").rename(friends / "A. Friend.pem")
    files = unsigned(small)
    del files[MANIFEST]
    packing.seal(files, key=tmp_path / "mine.pem")
    with open_submission(repacked(files, tmp_path), trusted_keys=friends) as submission:
        assert submission.problems == []
        assert submission.signer == "A. Friend"
        assert submission.fingerprint == fingerprint
        assert fingerprint in submission.signature
    for untrusted_files in (small, unsigned(small)):
        path = repacked(untrusted_files, tmp_path)
        with open_submission(path, trusted_keys=friends) as submission:
            assert [SIGNATURE in problem for problem in submission.problems] == [True]
    with open_submission(repacked(unsigned(small), tmp_path)) as submission:
        assert not submission.signed
        assert submission.signature.startswith("not signed")


def test_keys(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    signing.make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(InputError) as caught:
        signing.make_key(path)
    assert caught.value.path == path
    bad = tmp_path / "bad.pem"
    bad.write_text("not a key")
    with pytest.raises(InputError) as caught:
        signing.sign(b"", bad)
    assert caught.value.path == bad
    with pytest.raises(InputError) as caught:
        signing.sign(b"", tmp_path / "none.pem")
    assert caught.value.path == tmp_path / "none.pem"
    with pytest.raises(InputError) as caught:
        signing.load_trusted_keys(bad)
    assert caught.value.path == bad


def test_without_the_cryptography_package(
    small: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentLacksError) as raised:
        signing.make_key(tmp_path / "key.pem")
    assert raised.value.value == "cryptography"
    with open_submission(repacked(small, tmp_path)) as submission:
        assert submission.problems == []
        assert not submission.signed
        assert "not checked" in submission.signature


def test_the_same_run_gives_the_same_bytes(official: RunFolder, tmp_path: Path) -> None:
    options = replace(OPTIONS, notes="A policy of our own.\x1b[2J\n")
    for name in ("one.ai500", "two.ai500"):
        packing.submit(official, tmp_path / name, options=options)
    assert (tmp_path / "one.ai500").read_bytes() == (tmp_path / "two.ai500").read_bytes()
    with open_submission(tmp_path / "one.ai500") as submission:
        assert submission.problems == []
        assert submission.require_info().edition == editions.CURRENT
        assert submission.require_info().source == Source("0" * 64, "c" * 40, dirty=False)
        assert "ai500 run --config config.toml" in (submission.run.path / "run.sh").read_text()
        assert (submission.run.path / "notes.md").read_text().startswith("A policy of our own.")


def test_checkpoints_and_secrets_are_omitted_and_logs_cut(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    member = run.trial(1).member(0)
    member.log.write_bytes(b"begin " + b"x" * 300_000 + b"\x1b[31m end")
    member.checkpoint.write_bytes(b"weights")
    run.trial(1).barrier.write_text('{"secret": "token"}')
    files = contents(packed(run, tmp_path / "s.ai500"))
    log = files["trials/01/members/000/log.txt"].decode()
    assert len(log) < 70_000
    assert (log[:6], log[-4:]) == ("begin ", " end")
    assert "omitted" in log
    assert "\x1b" not in log
    assert not [name for name in files if "checkpoint" in name or "barrier" in name]


def _unfinished(run: RunFolder) -> None:
    run.trial(2).score.unlink()


def _no_record(run: RunFolder) -> None:
    run.trial(1).member(1).record.unlink()


def _dropped_weight_decay(run: RunFolder) -> None:
    path = run.trial(3).member(0).record
    record = changed_records.load(path)
    record["effective"]["groups"][0]["weight_decay"] = 0.0
    changed_records.save(path, record)


def _two_sources(run: RunFolder) -> None:
    path = run.trial(2).member(1).record
    record = changed_records.load(path)
    record["versions"]["source"] = "ab" * 32
    changed_records.save(path, record)


def _no_events(run: RunFolder) -> None:
    run.events.write_text("")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_unfinished, "trial 2 of 3"),
        (_no_record, "record.json"),
        (_dropped_weight_decay, "eight decay"),
        (_no_events, "no finished trial"),
        (_two_sources, "2 different versions of the source"),
    ],
)
def test_a_broken_run_is_refused(
    damage: Callable[[RunFolder], None], reason: str, tmp_path: Path
) -> None:
    run = submittable_run(tmp_path / "run")
    damage(run)
    with pytest.raises(RuleError) as caught:
        packing.submit(run, tmp_path / "s.ai500", options=OPTIONS)
    assert isinstance(caught.value.value, list)
    assert any(reason in text for text in caught.value.value)
    assert caught.value.path == run.path
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_all_the_reasons_at_once(tmp_path: Path) -> None:
    """Too few trials, a failed member, a name that can't be shown, an invalid edition."""
    run = submittable_run(tmp_path / "run", trials=2, failed=frozenset({1}))
    options = SubmitOptions(level="hardware", name="a\nb", edition="next year")
    with pytest.raises(RuleError) as refused:
        packing.submit(run, tmp_path / "s.ai500", options=options)
    text = str(refused.value)
    for reason in ("of at least 3", "incomplete", "members/001/record.json", "name", "edition"):
        assert reason in text, reason


def test_a_running_run_is_not_submitted(tmp_path: Path, official: RunFolder) -> None:
    with official.locked(), pytest.raises(RuleError) as caught:
        packing.submit(official, tmp_path / "s.ai500", options=OPTIONS)
    assert caught.value.key == "holder"
    assert caught.value.path == official.path


def test_a_torn_line_does_not_prevent_a_submission(tmp_path: Path) -> None:
    run = submittable_run(tmp_path / "run")
    with run.events.open("a") as file:
        file.write('{"event": "torn')
    packing.submit(run, tmp_path / "s.ai500", options=OPTIONS)


def test_counts_that_would_never_end(small: dict[str, bytes], tmp_path: Path) -> None:
    """10³⁰ members, trials or epochs are refused before a loop over them."""
    for key in ("trials", "ensemble_size", "epochs"):
        plan = json.loads(small["plan.json"].decode())
        record = plan["hyperparameters"] if key == "epochs" else plan
        record[key] = 10**30
        problems = problems_of(small | {"plan.json": json.dumps(plan).encode()}, tmp_path)
        assert any(
            problem.startswith("plan.json: ") and str(10**30) in problem for problem in problems
        )


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def ai500(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process; return exit code and output."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["ai500", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out + err

    return run


def test_from_run_to_verified_on_the_command_line(
    official: RunFolder, start: Start, ai500: Run, tmp_path: Path
) -> None:
    out, key = tmp_path / "mine.ai500", tmp_path / "key.pem"
    assert ai500("keygen", key)[0] == 0
    command = start(
        "submit", official.path, "--level", "hardware", "--out", out, "--key", key,
        "--organization", "[bold]Example[/bold]",
    )  # fmt: skip
    assert command.wait() == 0, command.err
    assert ai500("check", out, "--trusted-keys", tmp_path / "key.pub.pem")[0] == 0
    code, text = ai500("verify", out, "--json")
    assert (code, json.loads(text)["confirmed"]) == (0, True)
    code, text = ai500("verify", out)
    assert (code, "confirmed" in text, signing.available()) == (0, True, True)
    data = bytearray(out.read_bytes())
    data[data.index(b'"steps_per_epoch"') + 1] ^= 1
    out.write_bytes(data)
    for name in ("check", "verify"):
        code, text = ai500(name, out)
        assert code == 1
        assert "plan.json" in text
        assert max(map(len, text.splitlines())) <= 80


def test_user_errors(ai500: Run, official: RunFolder, tmp_path: Path) -> None:
    for words, text_part in (
        (("verify", tmp_path / "none.ai500"), "no such file"),
        (("verify", tmp_path / "none.ai500", "--rerun"), "--out"),
        (("verify", tmp_path / "none.ai500", "--runs", "3"), "--rerun"),
        (("verify", official.path), "is a folder"),
        (("submit", official.path, "--level", "free", "--out", "x.zip"), ".ai500"),
        (("submit", official.path, "--level", "other", "--out", "x.ai500"), "hardware"),
        (("submit", tmp_path, "--level", "free", "--out", "x.ai500"), "not a run folder"),
    ):
        code, text = ai500(*words)
        assert (code, text_part in text) == (2, True), text


def test_events_are_read_as_they_were_written(small: dict[str, bytes], tmp_path: Path) -> None:
    with open_submission(repacked(small, tmp_path)) as submission:
        submitted = list(events.read(submission.run.events))
    assert len(submitted) == small["events.jsonl"].count(b"\n")
