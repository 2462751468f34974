"""The command line: help, JSON, and one clear message for each mistake."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main

from ai500.cli import app
from ai500.cli.commands import COMMANDS, GROUPS, CommandEntry
from ai500.cli.lazy_group import PlainParser
from ai500.config import load
from ai500.core.errors import (
    ConfigError,
    DataError,
    EnvironmentLacksError,
    InputError,
    JobError,
    RunFolderError,
)
from ai500.core.events import EventLog, read
from ai500.records import run_folder
from ai500.records.run_folder import RunFolder
from tests.support import changed_records
from tests.support.commands import SOURCE, Run, Start
from tests.support.metered import write_log
from tests.support.synthetic_run import Shape, write_synthetic_run

TWO_SLOTS = (
    "--set", "system.accelerators_per_node=2", "--set", "system.cores_per_slot=1",
    "--set", "system.device=cpu",
)  # fmt: skip


def fits(text: str, *, but_for: str | Path | None = None) -> bool:
    """Into 80 columns, but for lines with this name of a file."""
    lines = text.splitlines()
    assert lines
    return all(len(line) <= 80 or (but_for and str(but_for) in line) for line in lines)


def commands() -> list[list[str]]:
    names = []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        names += [[name]] if below is None else [[name, subcommand] for subcommand in below]
    return names


@pytest.mark.parametrize("on_screen", [True, False])
def test_a_message_is_a_line_of_a_log_and_fits_a_screen(
    ai500: Run, monkeypatch: pytest.MonkeyPatch, *, on_screen: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: on_screen)
    code, _, err = ai500("plan", "--set", "train.precission=bf16", "--class", "smoke")
    lines = err.splitlines()
    assert code == 2
    assert " ".join(err.split()).startswith("error: the configuration: train.precission")
    assert max(map(len, lines)) <= 80 if on_screen else len(lines) == 1
    assert len(err.rstrip()) > 80


def test_the_end_of_a_log_stays_as_it_was_written(
    ai500: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = f'  File "loop.py"\n    {"long " * 30}\nKeyError: 1'
    message = f"member 0 failed. {'Its log ends with this. ' * 5}\n\n{log}"

    def fails() -> None:
        raise JobError(message)

    monkeypatch.setattr("ai500.cli.app", fails)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    code, _, err = ai500("run")
    first, _, rest = err.partition("\n\n")
    assert (code, rest.rstrip()) == (1, log)
    assert max(map(len, first.splitlines())) <= 80


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(ai500: Run, command: list[str]) -> None:
    code, out, _ = ai500(*command, "--help")
    assert code == 0
    assert f"Example: ai500 {' '.join(command)}" in " ".join(out.split())
    assert fits(out)


@pytest.mark.parametrize("group", ["data", "study"])
def test_the_lists_of_commands_say_whole_sentences(ai500: Run, group: str) -> None:
    code, out, _ = ai500(group, "--help")
    assert (code, fits(out)) == (0, True)
    assert "..." not in out.partition("Commands:")[2], "a sentence was cut"


def test_the_help_lists_every_command_in_its_group(ai500: Run) -> None:
    code, out, _ = ai500("--help")
    assert (code, fits(out)) == (0, True)
    for heading, entries in GROUPS.items():
        listed = out.partition(f"\n{heading}:\n")[2].partition("\n\n")[0]
        lines = [" ".join(line.split()) for line in listed.splitlines()]
        assert lines == [f"{entry.name} {entry.summary}" for entry in entries]


@pytest.mark.parametrize("entry", COMMANDS.values(), ids=COMMANDS)
def test_the_summary_of_the_table_is_the_first_sentence_of_the_help(entry: CommandEntry) -> None:
    command = typer.main.get_command(app).commands[entry.name]  # type: ignore[attr-defined]
    assert (command.help or "").partition("\n")[0] == entry.summary


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_no_help_shows_the_types_of_the_argument_parser(ai500: Run, command: list[str]) -> None:
    _, out, _ = ai500(*command, "--help")
    for word in (
        "<path>",
        "<str>",
        "<int>",
        "<bool>",
        "[ARGS]",
        "range",
        "list[",
        "x>=",
        "{",
        "None",
        "False",
    ):
        assert word not in out.partition("\nOptions:")[2], f"{word} in the help of {command}"
    assert "COMMAND" not in out


IMPORTS_OF_A_COMMAND = """
import sys
sys.argv = ["ai500", *sys.argv[1:]]
from ai500.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("modules", *sorted({name.split(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["status"]], ids=" ".join)
def test_a_light_command_imports_no_heavy_package(finished_run: Path, words: list[str]) -> None:
    arguments = [*words, str(finished_run)] if words == ["status"] else words
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_OF_A_COMMAND, *arguments],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    imported = set(done.stdout.splitlines()[-1].split())
    heavy = {"numpy", "h5py", "torch", "optuna", "matplotlib", "jinja2", "PIL", "pandas", "scipy",
             "pydantic"}  # fmt: skip
    assert {"typer", "ai500"} <= imported
    assert not imported & heavy


def test_a_plain_parser_does_what_typers_does(tmp_path: Path) -> None:
    """Of each parameter that has one, for values that are left out, odd, or of any file."""
    (tmp_path / "file").touch()
    values = (None, "", "-", "a b", "~/x", "ä\udce9", "x" * 5000, str(tmp_path), f"{tmp_path}/file")
    plain = described = 0
    for words in commands():
        command = typer.main.get_command(app)
        for word in words:
            command = command.commands[word]  # type: ignore[attr-defined]
        context = command.make_context("ai500", [], resilient_parsing=True)
        for parameter in command.get_params(context):
            described += hasattr(parameter, "type_descriptor")  # not in every version of typer
            parser = getattr(parameter, "_runtime_param", None)
            if isinstance(parser, PlainParser) and parameter.type_descriptor.annotation is not bool:
                plain += 1
                ours = [parser.coerce(value, param=parameter, ctx=context) for value in values]
                parameter._runtime_param = None
                own = parameter.get_runtime_param()
                assert ours == [own.coerce(value, param=parameter, ctx=context) for value in values]
    assert plain > 50 or not described


def test_ctrl_c_while_it_is_loaded_is_no_traceback(start: Start, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    command = start("plan")  # Python looks in the folder it is started in first
    assert command.wait() == 130
    assert (command.out, command.err) == ("", "interrupted\n")


def test_version(ai500: Run) -> None:
    code, out, _ = ai500("--version")
    assert (code, out.split()[0]) == (0, "ai500")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(start: Start, shell: str) -> None:
    command = start("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert command.wait() == 0, command.err
    assert "AI500_COMPLETE" in command.out


def test_init_writes_a_file_and_never_over_one(ai500: Run, tmp_path: Path) -> None:
    assert ai500("init")[0] == 0
    code, _, err = ai500("init")
    assert code == 2
    assert "--force" in err
    assert ai500("init", "--force")[0] == 0
    assert ai500("plan")[0] == 0


def test_plan_as_a_table_fits_80_columns(ai500: Run) -> None:
    code, out, _ = ai500("plan", *TWO_SLOTS)
    assert (code, fits(out)) == (0, True)
    assert "4 members × 2 CPU slots of 2, 4 waves" in out
    assert "Eq. 5" not in out, "jargon is for -v"
    code, out, _ = ai500("plan", "-v", *TWO_SLOTS)
    assert (code, fits(out)) == (0, True)
    printed = " ".join(out.split())
    assert "V3 Eq. 5: Sys_scale 2 = M 4 × P_degree 2, in 4 waves (D13)" in printed
    assert "convention aiperf" in printed


def test_a_plan_says_first_whether_its_result_can_be_valid(ai500: Run) -> None:
    code, out, _ = ai500("plan", *TWO_SLOTS)
    first = " ".join(out.partition("Plan:")[0].split())
    assert (code, fits(out)) == (0, True)
    assert first.startswith("This run cannot be a valid result (2 reasons)")
    assert "enough trials 1 trial of at least 3. Add --runs valid." in first
    assert "one wave 4 waves" in first
    code, out, _ = ai500("plan", "--runs", "valid", *TWO_SLOTS)
    assert out.splitlines()[0] == "This run can be a valid result."
    assert "4 members × 1 CPU slot of 2, one wave, 2 share each" in " ".join(out.split())


def test_a_plan_of_many_nodes_is_short(ai500: Run) -> None:
    machine = ("system.nodes=64", "system.accelerators_per_node=8", "system.device=cuda")
    settings = (word for text in machine for word in ("--set", text))
    _, out, _ = ai500("plan", "--class", "full", *settings)
    printed = " ".join(out.split())
    assert "node01 … node64 64 nodes × 169.1 GB to the node's scratch" in printed
    assert "member 0 wave 1: node01 slots 0–7" in printed
    assert fits(out)


def test_plan_json_of_the_default(ai500: Run) -> None:
    code, out, _ = ai500("plan", "--json", "--set", "system.accelerators_per_node=2")
    assert code == 0
    plan = json.loads(out)
    assert plan["ensemble_size"] == 4
    assert plan["parallel_degree"] == 2
    assert plan["waves"] == 4
    assert plan["operations_per_trial"] == (
        plan["ensemble_size"]
        * plan["steps_per_epoch"]
        * plan["hyperparameters"]["epochs"]
        * (
            plan["global_batch_size"]
            * (plan["operations"]["forward_per_sample"] + plan["operations"]["backward_per_sample"])
            + plan["operations"]["update_per_step"]
        )
    )


@pytest.mark.parametrize(
    ("arguments", "kind", "key", "value"),
    [
        ("plan --set ensemble.size=x", ConfigError, "ensemble.size", "x"),
        ("plan --set ensemble.sizes=4", ConfigError, "ensemble.sizes", 4),
        ("plan --set ensemble.size", ConfigError, None, "ensemble.size"),
        ("plan --class huge", ConfigError, "problem_class", "huge"),
        ("plan --workload image", ConfigError, "workload", "image"),
        ("plan --set parallel.degree=7", ConfigError, "parallel.degree", 7),
        ("plan --set system.scale=99", ConfigError, "system.scale", 99),
        ("plan --set system.device=cuda", ConfigError, "system.device", "cuda"),
        ("plan --set train.batch_size=100000", ConfigError, "train.batch_size", 200_000),
        ("run --class full", DataError, None, "full"),
        ("data generate --class full", DataError, None, "full"),
        ("run --scheduler pbs", ConfigError, "scheduler.kind", "pbs"),
        ("plan --scheduler local --set container.image=x", ConfigError, "container.image", "x"),
        ("run --runs 0", InputError, "--runs", "0"),
        ("plan --runs many", InputError, "--runs", "many"),
        ("plan --set run.trials=0", ConfigError, "run.trials", 0),
        ("plan --set run.trials=all", ConfigError, "run.trials", "all"),
    ],
)
@pytest.mark.usefixtures("ai500")
def test_a_mistake_names_key_and_value(
    arguments: str, kind: type[InputError], key: str | None, value: object
) -> None:
    with pytest.raises(kind) as caught:
        app(arguments.split())
    error = caught.value
    assert (error.exit_code, error.key, error.value) == (2, key, value)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ("plan --config nowhere", ConfigError),
        ("plan --data nowhere", DataError),
        ("status nowhere", RunFolderError),
        ("resume nowhere", RunFolderError),
        ("score nowhere", RunFolderError),
        ("cancel nowhere", RunFolderError),
        ("data pack nowhere --out store", DataError),
        ("data check nowhere", DataError),
    ],
)
@pytest.mark.usefixtures("ai500")
def test_a_missing_file_is_named(arguments: str, kind: type[InputError]) -> None:
    with pytest.raises(kind) as caught:
        app(arguments.split())
    assert caught.value.exit_code == 2
    assert Path(str(caught.value.path)).name == "nowhere"


def test_an_unknown_command_exits_2(ai500: Run) -> None:
    code, _, err = ai500("frobnicate")
    assert (code, "frobnicate" in err) == (2, True)


@pytest.mark.parametrize(
    ("problem_class", "least"), [("smoke", 3), ("workstation", 5), ("full", 10)]
)
def test_runs_valid_are_the_least_runs_of_the_class(
    ai500: Run, problem_class: str, least: int
) -> None:
    machine = ("--set", "system.nodes=1", "--set", "system.accelerators_per_node=2")
    common = ("plan", "--json", "--class", problem_class, *machine)
    _, out, _ = ai500(*common, "--runs", "valid")
    assert json.loads(out)["trials"] == least
    _, out, _ = ai500(*common, "--set", 'run.trials="valid"')
    assert json.loads(out)["trials"] == least


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        (["system.nodes=4"], "scheduler.kind", "local"),
        (
            ["scheduler.launcher=podman", "container.image=x", 'container.runtime=["podmann"]'],
            "scheduler.launcher",
            "podman",
        ),
    ],
    ids=["several nodes", "no container runtime"],
)
@pytest.mark.usefixtures("ai500")
def test_a_run_that_this_machine_cannot_do_is_not_started(
    settings: list[str], key: str, value: str
) -> None:
    with pytest.raises(EnvironmentLacksError) as caught:
        app(["run", "--out", "run", *(word for text in settings for word in ("--set", text))])
    assert (caught.value.exit_code, caught.value.key, caught.value.value) == (3, key, value)
    assert not Path("run").exists()


@pytest.mark.usefixtures("ai500")
def test_a_folder_with_files_of_others_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(RunFolderError) as caught:
        app(["run", "--out", "thesis"])
    assert Path(str(caught.value.path)).name == "thesis"


def test_a_finished_run_is_not_overwritten(ai500: Run, finished_run: Path) -> None:
    code, _, err = ai500("run", "--out", finished_run)
    assert code == 2
    assert f"ai500 resume {finished_run}" in " ".join(err.split())


def test_score_of_a_finished_run_has_every_promised_key(ai500: Run, finished_run: Path) -> None:
    code, out, _ = ai500("score", finished_run, "--json")
    assert code == 0
    promised = {
        "flops", "vflops", "penalty_coefficient", "ensemble_quality", "members_mean_quality",
        "out_of_bag_quality", "seconds", "operations", "convention", "workload", "problem_class",
        "ensemble_size", "parallel_degree", "waves", "time_to_quality_seconds",
        "time_to_target_seconds",
    }  # fmt: skip
    score = json.loads(out)
    trial = run_folder.read_json(finished_run / "trials" / "01" / "score.json")
    assert promised <= score.keys()
    assert promised <= trial.keys()
    assert len(score["trials"]) == 2
    assert score["trials"][0] == trial
    assert score["flops"] == pytest.approx(sum(trial["flops"] for trial in score["trials"]) / 2)
    seeds = {trial["seed"] for trial in score["trials"]}
    assert len(seeds) == 2


def test_status_of_a_finished_run_fits_80_columns(ai500: Run, finished_run: Path) -> None:
    code, out, _ = ai500("status", finished_run)
    assert code == 0
    assert "2 of 2 members done" in out
    assert fits(out, but_for=finished_run)


@pytest.mark.parametrize(
    ("cause", "resumes"), [("signal", True), ("out_of_memory", False), ("not_started", False)]
)
def test_status_advises_what_a_failed_member_needs(
    ai500: Run, tmp_path: Path, cause: str, resumes: bool
) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape(trials=1, failed=frozenset({1})))
    run.score.unlink()
    run.trial(1).score.unlink(missing_ok=True)
    jobs = changed_records.load(run.trial(1).jobs)
    jobs[1] |= {"exit_code": 137, "cause": cause}
    changed_records.save(run.trial(1).jobs, jobs)
    code, out, _ = ai500("status", run.path)
    assert code == 0
    assert (f"to continue: ai500 resume {run.path}" in out) == resumes
    assert ("A resume alone would" in out) != resumes


def test_status_names_an_outage_of_the_scheduler(
    ai500: Run, finished_run: Path, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    shutil.copytree(finished_run, run.path)
    log = EventLog(run.events)
    with run.locked():
        log.emit("scheduler_unreachable", trial=2, reason="squeue failed with exit code 1")
        _, out, _ = ai500("status", run.path)
        assert "the scheduler has not answered since" in out
        assert "squeue failed with exit code 1" in out
        outage = json.loads(ai500("status", run.path, "--json")[1])["outage"]
        assert outage["reason"] == "squeue failed with exit code 1"
        log.emit("scheduler_reachable", trial=2, seconds=1.0)
        assert json.loads(ai500("status", run.path, "--json")[1])["outage"] is None


def test_status_check_and_report_name_a_sick_node(
    ai500: Run, finished_run: Path, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    shutil.copytree(finished_run, run.path)
    columns = [("nvml", "GPU-7", "memory_uncorrected_errors", None)]
    for trial in (1, 2):
        write_log(
            run.trial(trial).meters, host="n9", covers={}, columns=columns,
            times=[0.0, 60.0], values=lambda at: [at / 30],
        )  # fmt: skip
    sentence = "n9: GPU-7 had 2 uncorrectable memory (ECC) errors"
    _, out, _ = ai500("status", run.path)
    assert f"node to test: {sentence}" in out.replace("\n", "")
    (sign,) = json.loads(ai500("status", run.path, "--json")[1])["signs"]
    assert (sign["hosts"], sign["kind"]) == (["n9"], "memory uncorrected errors")
    findings = json.loads(ai500("check", run.path, "--json")[1])["findings"]
    named = [finding for finding in findings if finding["rule"] == "healthy nodes"]
    assert [finding["severity"] for finding in named] == ["note", "note"]
    assert f"trial 1: {sentence}" in named[0]["message"]
    assert ai500("report", run.path)[0] == 0
    page = run.report.read_text()
    assert "Nodes to test" in page
    assert sentence.removeprefix("n9: ") in page


def test_resume_changes_site_options_and_records_them(
    ai500: Run, finished_run: Path, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    shutil.copytree(finished_run, run.path)
    before = load(run.config)
    code, _, err = ai500("resume", run.path, "--set", "train.epochs=1")
    assert (code, "fixed when the run was planned" in " ".join(err.split())) == (2, True)
    assert load(run.config) == before
    settings = ["--set", "slurm.partition=long", "--set", "slurm.memory=64G"]
    code, _, err = ai500("resume", run.path, *settings)
    assert code == 0, err
    after = load(run.config)
    assert (after.slurm.partition, after.slurm.memory) == ("long", "64G")
    assert replace(after, slurm=before.slurm) == before
    (changed,) = [e for e in read(run.events) if e["event"] == "settings_changed"]
    assert changed["settings"] == {"slurm.partition": "long", "slurm.memory": "64G"}


def test_what_a_run_prints_fits_80_columns(ai500: Run, finished_run: Path) -> None:
    printed = (finished_run.parent / "printed.txt").read_text()
    assert "member 1  done  epoch 2/2" in printed
    assert printed.startswith("This run cannot be a valid result (")
    severities = [
        line.split()[0]
        for line in printed.partition("Findings\n")[2].splitlines()
        if re.match("  (violation|unchecked|note) ", line)
    ]
    assert severities == sorted(severities, key=("violation", "unchecked", "note").index)
    reasons = sum(severity != "note" for severity in severities)
    assert f"\nNOT A VALID RESULT ({reasons} reasons)\nScore: " in printed
    assert fits(printed, but_for=finished_run)
    code, score, _ = ai500("score", finished_run)
    assert (code, fits(score, but_for=finished_run)) == (0, True)
    assert score.startswith("NOT A VALID RESULT (")
    assert "aiperf" not in score
    _, score, _ = ai500("score", finished_run, "-v")
    assert "counted by convention aiperf" in " ".join(score.split())
    code, judgement, _ = ai500("check", finished_run)
    assert (code, fits(judgement, but_for=finished_run)) == (1, True)
    assert "Broken rules" in judgement


def test_cancel_of_a_run_that_does_not_run(ai500: Run, finished_run: Path) -> None:
    code, out, _ = ai500("cancel", finished_run)
    assert (code, "is not running" in out) == (0, True)


def test_a_corrupt_store_is_named_with_its_hash(
    ai500: Run, tiny_store: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(tiny_store, store)
    file = store / "train.images.npy"
    data = bytearray(file.read_bytes())
    data[-1000] ^= 1
    file.write_bytes(data)
    code, _, err = ai500("data", "check", store)
    assert code == 2
    assert "train.images.npy" in err
    assert "SHA-256" in err
    for stage in ("true", "false"):
        code, _, err = ai500(
            "run", "--data", store, "--out", tmp_path / stage, "--set", f"data.stage={stage}"
        )
        assert code == 2
        assert "train.images.npy" in err


def test_no_write_permission_is_exit_code_3(ai500: Run) -> None:
    code, _, err = ai500("run", "--out", "/proc/nowhere/run")
    assert code == 3
    assert "/proc/nowhere/run" in err
