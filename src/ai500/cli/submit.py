"""From a run to the list: submit, verify, keygen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ai500 import config as configuration
from ai500.cli.options import AsJson, DataPath, RunPath, SchedulerName, Settings, TrustedKeys
from ai500.cli.terminal import Terminal, console, rows, show_problems
from ai500.config import Config
from ai500.core import schema
from ai500.core.errors import InputError, RunCancelledError, RunFolderError
from ai500.core.units import human_bytes, human_si
from ai500.pipeline import scoring
from ai500.pipeline import stages as pipeline
from ai500.records import Plan, Score, run_folder
from ai500.records.run_folder import RunFolder
from ai500.rules.layers import Level
from ai500.submission import packing, replication, signing
from ai500.submission.description import SubmitOptions
from ai500.submission.manifest import Submission, contradictions_as_errors, open_submission
from ai500.submission.replication import Comparison, Replication
from ai500.submission.rerun import rerun_config, system_differences
from ai500.submission.verify import TOLERANCE, Verification, recompute
from ai500.workloads.protocol import load_workload

DIFFERENCES_SHOWN = 20
SubmissionPath = Annotated[
    Path, typer.Argument(metavar="FILE", help="The submission, e.g. mine.ai500.")
]


def keygen(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="File for the private key, e.g. mine.pem.")
    ],
) -> None:
    """Make a key to sign submissions with.

    The private half goes into the file, the public one beside it.

    Example: ai500 keygen mine.pem
    """
    fingerprint = signing.make_key(path)
    print(f"private key {path}: keep it to yourself")
    print(f"public key  {signing.public_path(path)}: give it to those who check")
    print(f"sha256:{fingerprint}")


def submit(
    path: RunPath,
    level: Annotated[Level, typer.Option("--level", help="Level of benchmarking, V2 §3.2.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, e.g. mine.ai500.")],
    key: Annotated[
        Path | None, typer.Option("--key", help="Private key to sign with; see keygen.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Who submits.")] = "",
    organization: Annotated[str, typer.Option("--organization", help="Theirs.")] = "",
    system_name: Annotated[
        str, typer.Option("--system-name", help="Default: the cluster's name, or the host's.")
    ] = "",
    contact: Annotated[str, typer.Option("--contact", help="Whom to ask.")] = "",
    edition: Annotated[
        str, typer.Option("--edition", help="Of the list, e.g. 2026-11. Default: the run's.")
    ] = "",
    notes: Annotated[
        Path | None,
        typer.Option("--notes", help="A text to go with it, e.g. on a learning-rate policy."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pack a run into one file for the list, if it keeps the rules.

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
    info = packing.submit(RunFolder.open(path), out, options=options, key=key)
    if as_json:
        print(json.dumps({"submission": str(out), "info": schema.encode(info)}, indent=2))
        return
    size = human_bytes(out.stat().st_size)
    console.print(f"wrote {out} ({size}, edition {info.edition})", soft_wrap=True, markup=False)
    if info.source.commit is None:
        console.print("disclosed: no commit of the source that ran is known here")
    elif info.source.dirty:
        console.print("disclosed: the source that ran has changes that are in no commit")
    if key is None:
        console.print("not signed: --key FILE signs it, `ai500 keygen FILE` makes a key")


def _notes(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"--notes {path}: can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"--notes {path}: not a text in UTF-8.") from error


def verify(
    path: SubmissionPath,
    trusted_keys: TrustedKeys = None,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Repeat it on this system, and compare.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder of the rerun; goes on in it.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=2, help="Trials. Default: the class's least.")
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", help="Means this close are the same result.")
    ] = replication.MARGIN,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="This system's own [scheduler], [slurm], [data] …"),
    ] = None,
    data: DataPath = None,
    scheduler: SchedulerName = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Recompute a submission's score from its raw events.

    With --rerun, repeat the run itself on this system, and compare.

    Example: ai500 verify mine.ai500 --rerun --out runs/again
    """
    if rerun != (out is not None):
        raise InputError("--rerun and --out FOLDER go together: the new runs are kept there.")
    if not rerun and (runs or config or data or scheduler or settings):
        raise InputError("--runs, --config, --data, --scheduler and --set are for --rerun.")
    replication.check_margin(margin)
    with open_submission(path, trusted_keys=trusted_keys) as submission:
        submission.require_submission()
        result = recompute(submission)
        told: dict[str, Any] = {
            "submission": str(path),
            "confirmed": result.confirmed,
            "signature": submission.signature,
            **schema.encode(result),
        }
        if not as_json:
            _show_verification(submission, result)
        good = result.confirmed
        if out is not None and result.score is not None and good:
            own = _own_settings(data=data, scheduler=scheduler, settings=settings)
            with contradictions_as_errors(path.name):
                wanted = rerun_config(submission, local=config, runs=runs, overrides=own)
            repeated = _repeat(wanted, out, quiet=as_json)
            judged = _judge(submission, result.score, repeated, RunFolder(out), margin=margin)
            told["replication"] = schema.encode(judged)
            if not as_json:
                _show_replication(judged, out)
            good = judged.verdict == "replicated"
    if as_json:
        print(json.dumps(told, indent=2))
    if not good:
        raise typer.Exit(1)


def _own_settings(
    *, data: Path | None, scheduler: str | None, settings: list[str] | None
) -> dict[str, Any]:
    own = dict(configuration.parse_assignment(text) for text in settings or [])
    flags = {"data.path": None if data is None else str(data), "scheduler.kind": scheduler}
    return own | {key: value for key, value in flags.items() if value is not None}


def _repeat(wanted: Config, out: Path, *, quiet: bool) -> Score:
    """The rerun, or the rest of one that was interrupted."""
    if RunFolder(out).state.exists():
        folder = RunFolder.open(out)
        if configuration.load(folder.config) != wanted:
            raise RunFolderError(
                f"{out} holds another run than this submission with these options would give. "
                "Choose another --out."
            )
    else:
        folder = pipeline.prepare(wanted, out)
    with Terminal(quiet=quiet) as terminal:
        try:
            return pipeline.execute(folder, terminal)
        except RunCancelledError as error:  # `resume` would repeat it, and not compare
            raise RunCancelledError(
                "cancelled; nothing is lost. The same command goes on."
            ) from error


def _judge(
    submission: Submission, claimed: Score, repeated: Score, rerun: RunFolder, *, margin: float
) -> Replication:
    plan = run_folder.read(Plan, rerun.plan)
    judged = replication.judge(
        claimed,
        repeated,
        penalty_exponent=plan.definition.penalty_exponent,
        margin=margin,
        direction=load_workload(plan.workload).quality_direction,
        other_system=tuple(system_differences(submission.run, rerun)),
        broken=tuple(_broken(rerun, submission.require_info().level)),
    )
    run_folder.write(rerun.path / "replication.json", judged)
    return judged


def _broken(rerun: RunFolder, level: Level) -> Iterator[str]:
    """What the rules say against the rerun; how many trials it has is --runs' business."""
    _, judgement = scoring.judge_run(rerun, level=level)
    for one in judgement.findings:
        if one.severity == "violation" and one.rule != "enough trials":
            yield f"{one.message} ({one.source})"


def _show_verification(submission: Submission, result: Verification) -> None:
    rows(submission.path.name, [("signature", submission.signature)])
    if result.problems:
        show_problems(result.problems)
    if result.differences:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("what does not follow from the events", "claimed", "recomputed"):
            table.add_column(title, overflow="fold")
        for one in result.differences[:DIFFERENCES_SHOWN]:
            where = f"{one.file}: {one.key}"
            table.add_row(Text(where), Text(one.claimed), Text(one.recomputed))
        console.print(table)
        if (more := len(result.differences) - DIFFERENCES_SHOWN) > 0:
            console.print(f"… and {more} more")
    if result.confirmed and result.score is not None:
        console.print(
            f"confirmed: {result.compared} values follow from the raw events (relative tolerance "
            f"{TOLERANCE:g}); VFLOPS {human_si(result.score.vflops)}FLOPS"
        )
    else:
        console.print("not confirmed")


def _show_replication(judged: Replication, out: Path) -> None:
    for one in judged.comparisons:
        rows(f"{one.figure}: {one.verdict}", _comparison_rows(one))
    if judged.broken:
        rows("Rules that the rerun breaks", [("", text) for text in judged.broken])
    if judged.other_system:
        rows("Not the same system", [("", text) for text in judged.other_system])
    console.print(f"{judged.verdict}; all raw figures: {out / 'replication.json'}", soft_wrap=True)


def _comparison_rows(one: Comparison) -> list[tuple[str, str]]:
    def shown(value: float) -> str:
        return f"{human_si(value)}FLOPS" if one.figure == "VFLOPS" else f"{value:.4f}"

    def of(values: tuple[float, ...], mean: float | None, spread: float | None) -> str:
        if mean is None:
            return "no complete trial"
        varies = "not known" if spread is None else f"{spread:.2%}"
        raw = ", ".join(map(shown, values))
        return f"mean {shown(mean)}, variation {varies} (trials: {raw})"

    pairs = [
        ("claimed", of(one.claimed, one.claimed_mean, one.claimed_variation)),
        ("repeated", of(one.repeated, one.repeated_mean, one.repeated_variation)),
    ]
    if one.difference is not None:
        interval = one.interval
        sure = "" if interval is None else f", 90 % sure: {interval[0]:+.2%} to {interval[1]:+.2%}"
        pairs.append(("difference", f"{one.difference:+.2%}{sure}; margin ± {one.margin:.2%}"))
    return [*pairs, ("because", one.reason)]
