"""Submissions to the list: `ai500 submit`, `verify`, `keygen`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ai500 import config as configuration
from ai500.cli.arguments import AsJson, RunPath, TrustedKeys
from ai500.cli.options import ConfigOptions, with_options
from ai500.cli.terminal import Terminal, console, print_json, rows, show_problems
from ai500.config import Config
from ai500.core import schema
from ai500.core.errors import InputError, JobError, RunCancelledError, RunFolderError
from ai500.core.reading import read_text
from ai500.core.units import human_bytes, human_si
from ai500.pipeline import scoring
from ai500.pipeline import stages as pipeline
from ai500.pipeline.programs import program_of
from ai500.records import Plan, Score, run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.formats import vflops
from ai500.rules.layers import Level
from ai500.submission import member_rerun, packing, replication, signing
from ai500.submission.confirmations import write_confirmation
from ai500.submission.description import SubmitOptions
from ai500.submission.manifest import Submission, contradictions_as_errors, open_submission
from ai500.submission.member_rerun import MemberReplication
from ai500.submission.predictions import PredictionCheck, check_predictions, class_store
from ai500.submission.replication import Comparison, Replication
from ai500.submission.rerun import members_config, rerun_config, system_differences
from ai500.submission.verify import TOLERANCE, Verification, recompute
from ai500.workloads.protocol import class_workload

# --runs sets the trials of a rerun, and its seed follows from the submission.
ENTRIES_ONLY = {"enough trials", "seed of the edition"}
DIFFERENCES_SHOWN = 20
SubmissionPath = Annotated[
    Path, typer.Argument(metavar="FILE", help="Submission, e.g. mine.ai500.")
]


def keygen(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="File for the private key, e.g. mine.pem.")
    ],
) -> None:
    """Make a key to sign submissions with.

    Writes the private key to FILE and the public key beside it.

    Example: ai500 keygen mine.pem
    """
    fingerprint = signing.make_key(path)
    print(f"private key {path}: keep it secret")
    print(f"public key  {signing.public_path(path)}: publish it")
    print(f"sha256:{fingerprint}")


def submit(
    path: RunPath,
    level: Annotated[Level, typer.Option("--level", help="Level of benchmarking, V2 §3.1.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, e.g. mine.ai500.")],
    key: Annotated[
        Path | None, typer.Option("--key", help="Private key to sign with; see keygen.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the submitter.")] = "",
    organization: Annotated[
        str, typer.Option("--organization", help="Organization of the submitter.")
    ] = "",
    system_name: Annotated[
        str,
        typer.Option("--system-name", help="Name of the system. Default: the cluster's or host's."),
    ] = "",
    contact: Annotated[str, typer.Option("--contact", help="Contact for questions.")] = "",
    edition: Annotated[
        str,
        typer.Option("--edition", help="Edition of the list, e.g. 2026-11. Default: the run's."),
    ] = "",
    notes: Annotated[
        Path | None,
        typer.Option("--notes", help="Text file to include, e.g. on a learning-rate policy."),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact", help="Replace the names of hosts, users and folders in all files."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Pack a run that follows the rules into one file for the list.

    Example: ai500 submit runs/valid --level hardware --out mine.ai500
    """
    options = SubmitOptions(
        level=level,
        name=name,
        organization=organization,
        system_name=system_name,
        contact=contact,
        edition=edition,
        notes=None if notes is None else _notes(notes),
    )
    info = packing.submit(RunFolder.open(path), out, options=options, key=key, redact=redact)
    if as_json:
        print_json({"submission": str(out), "info": info})
        return
    size = human_bytes(out.stat().st_size)
    console.print(f"wrote {out} ({size}, edition {info.edition})", soft_wrap=True, markup=False)
    if info.source.commit is None:
        console.print("disclosed: the commit of the source is unknown")
    elif info.source.dirty:
        console.print("disclosed: the source has uncommitted changes")
    if key is None:
        console.print("not signed; to sign: --key FILE, with a key from `ai500 keygen FILE`")


def _notes(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, InputError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"--notes {path}: {reason}.", key="--notes", path=path) from error


@with_options(without=("config", "workload", "problem_class", "runs"))
def verify(
    path: SubmissionPath,
    trusted_keys: TrustedKeys = None,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Repeat the run on this system, and compare.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Run folder of the rerun, new or interrupted."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=2, help="Trials. Default: the minimum of the class.")
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            "--members", min=2, help="Repeat this many members, drawn now, instead of all trials."
        ),
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", help="Largest relative difference of equal results.")
    ] = replication.MARGIN,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="[scheduler], [slurm], [data] … of this system."),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions", help="Run folder with the members' predictions, which are checked."
        ),
    ] = None,
    *,
    selected: ConfigOptions,
    as_json: AsJson = False,
) -> None:
    """Recompute a submission's score from its raw events.

    With --rerun, repeat the run on this system and compare the results. With
    --predictions, compute the qualities again from the members' predictions. Both
    write a record beside FILE, which the list reads.

    Example: ai500 verify mine.ai500 --rerun --out runs/again
    """
    if rerun != (out is not None):
        raise InputError(
            "--rerun needs --out FOLDER for the new run, and --out needs --rerun.", key="--out"
        )
    others = selected.overrides().keys() - ({"data.path"} if predictions else set())
    if not rerun and (runs or config or others):
        raise InputError(
            "--runs, --config, --scheduler and --set need --rerun; --data needs it or "
            "--predictions.",
            key="--rerun",
        )
    if members is not None and (not rerun or runs is not None):
        raise InputError("--members needs --rerun, and no --runs.", key="--members", value=members)
    replication.check_margin(margin)
    with open_submission(path, trusted_keys=trusted_keys) as submission:
        submission.require_submission()
        result = recompute(submission)
        summary = {
            "submission": str(path),
            "confirmed": result.confirmed,
            "valid": result.valid,
            "signature": submission.signature,
            **schema.encode(result),
        }
        if not as_json:
            _show_verification(submission, result)
        good = result.valid
        if predictions is not None and result.confirmed:
            checked = _check_predictions(
                submission, predictions, selected.overrides(), quiet=as_json
            )
            summary["predictions"] = checked
            good = good and checked.confirmed
        if out is not None and members is not None and result.confirmed:
            repeated_members = _repeat_members(
                submission, out, members, local=config, overrides=selected.overrides(),
                margin=margin, quiet=as_json,
            )  # fmt: skip
            summary["replication"] = repeated_members
            good = good and repeated_members.verdict == "replicated"
        elif out is not None and result.score is not None and result.confirmed:
            overrides = selected.overrides()
            with contradictions_as_errors(path.name):
                repetition = rerun_config(submission, local=config, runs=runs, overrides=overrides)
            repeated = _repeat(repetition, out, quiet=as_json)
            judged = _judge(submission, result.score, repeated, RunFolder(out), margin=margin)
            summary["replication"] = judged
            write_confirmation(
                path, "rerun", confirmed=judged.verdict == "replicated",
                statement=f"rerun: {judged.verdict}", details=schema.encode(judged),
            )  # fmt: skip
            if not as_json:
                _show_replication(judged, out)
            good = good and judged.verdict == "replicated"
    if as_json:
        print_json(summary)
    if not good:
        raise typer.Exit(1)


def _check_predictions(
    submission: Submission, folder: Path, overrides: dict[str, Any], *, quiet: bool
) -> PredictionCheck:
    """Check predictions, show the result, and write it beside the submission."""
    path = overrides.get("data.path")
    with contradictions_as_errors(submission.path.name), Terminal(quiet=quiet) as terminal:
        store = class_store(
            submission, None if path is None else Path(path), progress=terminal.progress
        )
        checked = check_predictions(submission, folder, store)
    statement = (
        f"quality recomputed from the predictions of {checked.members} members"
        if checked.confirmed
        else f"{len(checked.problems)} qualities or files are not those of the submission"
    )
    record = write_confirmation(
        submission.path, "predictions", confirmed=checked.confirmed, statement=statement,
        details=schema.encode(checked),
    )  # fmt: skip
    if not quiet:
        if checked.problems:
            show_problems(checked.problems)
        console.print(f"{statement}; recorded in {record}", soft_wrap=True, markup=False)
    return checked


def _repeat(config: Config, out: Path, *, quiet: bool) -> Score:
    """Run the repetition, or resume one that was interrupted."""
    folder = _prepared(config, out)
    with Terminal(quiet=quiet) as terminal:
        try:
            return pipeline.execute(folder, terminal)
        except RunCancelledError as error:  # `resume` would finish the run, but not compare it
            raise RunCancelledError("cancelled; run the same command again to continue.") from error


def _prepared(config: Config, out: Path) -> RunFolder:
    """Open the folder of this rerun, or make it."""
    if not RunFolder(out).state.exists():
        return pipeline.prepare(config, out)
    folder = RunFolder.open(out)
    if configuration.load(folder.config) != config:
        raise RunFolderError(
            f"{out} holds another run than this submission with these options gives.",
            path=out,
            remedy="Choose another --out.",
        )
    return folder


def _repeat_members(
    submission: Submission, out: Path, count: int, *, local: Path | None,
    overrides: dict[str, Any], margin: float, quiet: bool,
) -> MemberReplication:  # fmt: skip
    """Repeat members that a new seed chooses; compare them, and write the result."""
    plan = run_folder.read(Plan, submission.run.plan)
    if not program_of(plan).trains_class_model:
        raise InputError("--members: a search has no members of its own.", key="--members")
    member_rerun.choose(plan, count=count, seed=0)  # refuses a number before a folder is made
    with contradictions_as_errors(submission.path.name):
        config = members_config(submission, local=local, overrides=overrides)
    folder = _prepared(config, out)
    chosen = member_rerun.draw(submission.path, plan, out, count=count)
    with Terminal(quiet=quiet) as terminal:
        terminal.stage(
            f"members {', '.join(f'{m} of trial {t}' for t, m in chosen.members)}, drawn by seed "
            f"{chosen.seed}"
        )
        if failures := pipeline.train_members(folder, chosen.members, terminal):
            raise JobError("\n\n".join(failures), path=out)
    workload = class_workload(plan.workload, plan.definition)
    judged = member_rerun.judge_members(
        submission.run, folder, chosen, margin=margin,
        penalty_exponent=plan.definition.penalty_exponent, quality_name=workload.quality_name,
        direction=workload.quality_direction,
    )  # fmt: skip
    run_folder.write(out / "replication.json", judged)
    write_confirmation(
        submission.path, "rerun", confirmed=judged.verdict == "replicated",
        statement=f"rerun of {count} members, drawn by seed {chosen.seed}: {judged.verdict}",
        details=schema.encode(judged),
    )  # fmt: skip
    if not quiet:
        for comparison in judged.comparisons:
            rows(f"{comparison.figure}: {comparison.verdict}", _comparison_rows(comparison))
        console.print(f"{judged.verdict}; seed {chosen.seed}", soft_wrap=True, markup=False)
    return judged


def _judge(
    submission: Submission, claimed: Score, repeated: Score, rerun: RunFolder, *, margin: float
) -> Replication:
    plan = run_folder.read(Plan, rerun.plan)
    judged = replication.judge(
        claimed,
        repeated,
        penalty_exponent=plan.definition.penalty_exponent,
        margin=margin,
        direction=class_workload(plan.workload, plan.definition).quality_direction,
        other_system=tuple(system_differences(submission.run, rerun)),
        broken=tuple(broken_rules(rerun, submission.require_info().level)),
    )
    run_folder.write(rerun.path / "replication.json", judged)
    return judged


def broken_rules(rerun: RunFolder, level: Level) -> Iterator[str]:
    """Yield the violations of a rerun, except of rules that are about entries alone."""
    _, judgement = scoring.judge_run(rerun, level=level)
    for finding in judgement.violations:
        if finding.rule not in ENTRIES_ONLY:
            yield finding.cited


def _show_verification(submission: Submission, result: Verification) -> None:
    rows(submission.path.name, [("signature", submission.signature)])
    if result.problems:
        show_problems(result.problems)
    if result.differences:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("contradicts the events", "claimed", "recomputed"):
            table.add_column(title, overflow="fold")
        for difference in result.differences[:DIFFERENCES_SHOWN]:
            field = f"{difference.file}: {difference.key}"
            table.add_row(Text(field), Text(difference.claimed), Text(difference.recomputed))
        console.print(table)
        if (more := len(result.differences) - DIFFERENCES_SHOWN) > 0:
            console.print(f"… and {more} more")
    if result.confirmed and result.score is not None:
        console.print(
            f"confirmed: {result.compared} values follow from the raw events (relative tolerance "
            f"{TOLERANCE:g}); {vflops(result.score.vflops)}"
        )
    else:
        console.print("not confirmed")
    if result.broken:
        rows("Broken rules", [("", text) for text in result.broken])
        console.print(f"NOT VALID: {len(result.broken)} finding(s); the list does not rank it")


def _show_replication(judged: Replication, out: Path) -> None:
    for comparison in judged.comparisons:
        rows(f"{comparison.figure}: {comparison.verdict}", _comparison_rows(comparison))
    if judged.broken:
        rows("Rules that the rerun breaks", [("", text) for text in judged.broken])
    if judged.other_system:
        rows("Not the same system", [("", text) for text in judged.other_system])
    figures = out / "replication.json"
    console.print(f"{judged.verdict}; all raw figures: {figures}", soft_wrap=True, markup=False)


def _comparison_rows(figure: Comparison) -> list[tuple[str, str]]:
    def shown(value: float) -> str:
        return f"{human_si(value)}FLOPS" if figure.figure == "VFLOPS" else f"{value:.4f}"

    def described(values: tuple[float, ...], mean: float | None, spread: float | None) -> str:
        if mean is None:
            return "no complete trial"
        variation = "not known" if spread is None else f"{spread:.2%}"
        raw = ", ".join(map(shown, values))
        return f"mean {shown(mean)}, variation {variation} (trials: {raw})"

    pairs = [
        ("claimed", described(figure.claimed, figure.claimed_mean, figure.claimed_variation)),
        ("repeated", described(figure.repeated, figure.repeated_mean, figure.repeated_variation)),
    ]
    if figure.difference is not None:
        bounds = (
            ""
            if figure.interval is None
            else ", 90% interval {:+.2%} to {:+.2%}".format(*figure.interval)
        )
        pairs.append(
            ("difference", f"{figure.difference:+.2%}{bounds}; margin ± {figure.margin:.2%}")
        )
    return [*pairs, ("reason", figure.reason)]
