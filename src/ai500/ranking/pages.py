"""Pages of the list, rendered from templates that escape all text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from jinja2 import Environment
from markupsafe import Markup

from ai500.core.errors import AI500Error
from ai500.core.units import human_seconds
from ai500.pipeline.scoring import program_report
from ai500.ranking import charts, editions
from ai500.ranking.entries import Drawing, Entry, Origin
from ai500.ranking.proofs import MEANINGS, Check, statements
from ai500.ranking.standings import ListKey, Standing
from ai500.records import run_folder
from ai500.records.findings import Judgement, LayerVerdict
from ai500.records.run_folder import RunFolder
from ai500.report import run_sections
from ai500.report.formats import NOT_MEASURED, vflops
from ai500.report.meter_section import power_section
from ai500.report.page import environment
from ai500.report.run_data import RunData
from ai500.report.section import (
    Figure,
    Folded,
    Grid,
    Listing,
    Paragraph,
    Section,
    Table,
    figures_of,
)
from ai500.roofline import page as roofline_page
from ai500.roofline.place_run import place_run
from ai500.roofline.records import RunPlacement
from ai500.rules.decisions import DECISIONS
from ai500.rules.layers import LAYERS
from ai500.submission import manifest
from ai500.submission.archive import printable
from ai500.submission.manifest import NOTES, Info


@cache
def _environment() -> Environment:
    return environment(
        "ai500.ranking",
        decisions=DECISIONS,
        vflops=vflops,
        human_seconds=human_seconds,
        list_name=list_name,
        meanings=MEANINGS,
    )


def list_name(key: ListKey) -> str:
    """Return the name of a list, as a title."""
    workload, problem_class, level = key
    return f"{workload.replace('_', ' ').capitalize()}, class {problem_class}, {level} level"


@dataclass(frozen=True)
class Column:
    """Column of the list; `About` explains all of them."""

    key: str
    """Value of an entry or of its standing."""
    kind: str
    """Format of the values (`KINDS` of ranking.js)."""
    title: str
    meaning: str
    first: Literal["up", "down"] = "down"
    """Order after the first click."""

    @property
    def style(self) -> str:
        """Class in the style sheet."""
        return {"text": "", "system": "", "proof": "", "short": "short"}.get(self.kind, "number")


COLUMNS = (
    Column(
        "rank", "rank", "Rank",
        "Rank by VFLOPS among the systems of one workload, class and level. Small, “2–5”: the "
        "ranges of the trials overlap, and the trials leave any rank from 2 to 5 open.", "up",
    ),
    Column("system", "system", "System", "System and organization.", "up"),
    Column(
        "vflops", "vflops", "VFLOPS",
        "Valid FLOPS, the score: FLOPS × quality factor (penalty coefficient, V3 Eq. 7 and 8).",
    ),
    Column(
        "time_to_quality_seconds", "seconds", "Time to quality",
        "From the first batch to the end of training (V2 §5.3.2).", "up",
    ),
    Column("flops", "flops", "FLOPS", "Operations of all members / time (V3 Eq. 6)."),
    Column(
        "regulated_score", "flops", "Regulated",
        "A search's −ln(error) × FLOPS (AIPerf Eq. 3), shown beside its score.",
    ),
    Column(
        "vflops_per_watt", "per_watt", "VFLOPS/W",
        "Valid FLOPS per watt of the part named below it; compare only equal parts.",
    ),
    Column(
        "energy_rank", "rank", "Rank/W",
        "Rank by VFLOPS per watt among the systems of one workload, class and level whose meters "
        "cover the same part.", "up",
    ),
    Column(
        "flops_per_watt", "per_watt", "FLOPS/W",
        "FLOPS per watt of the part named below it; compare only equal parts.",
    ),
    Column(
        "quality_ratio", "quality", "Quality",
        "Quality of the ensemble / its target; ✓: the target is met, ✗: it is missed. Sorted by "
        "their ratio, where more is better.",
    ),
    Column("ensemble_size", "count", "M", "Ensemble size: models trained."),
    Column("parallel_degree", "count", "P", "P_degree: accelerators of a member."),
    Column(
        "system_scale", "count", "Scale", "Sys_scale: accelerators of the system (V3 Eq. 5)."
    ),
    Column("accelerator", "text", "Accelerator", "Accelerators that the members trained on.", "up"),
    Column("edition", "short", "Edition", "Edition of the list."),
    Column(
        "proven", "proof", "Proven",
        "Proof beyond the submitter's word, and whether a valid signature names the submitter.",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """Values that every page of a site shows."""

    title: str
    ranked: int
    rejected: int
    has_searches: bool = False
    """True if an entry is a search: the list then has a column of regulated scores."""
    names_checked: bool = False
    """True if a registry says whose the names are."""

    def page(self, template: str, *, root: str = "", **values: Any) -> str:
        """Render a page; `root` is its relative path to the front page."""
        return _environment().get_template(template).render(site=self, root=root, **values)

    @property
    def columns(self) -> list[Column]:
        """Columns of the list."""
        return [each for each in COLUMNS if each.key != "regulated_score" or self.has_searches]

    def index(self, lists: Mapping[ListKey, Sequence[Entry]]) -> str:
        """Render the front page: the list, and the best systems of each list as a chart."""
        top = [
            (" · ".join(key), charts.top_figure(members, list_name=list_name(key)))
            for key, members in lists.items()
        ]
        return self.page("index.html", top=top)

    def charts(
        self, lists: Mapping[ListKey, Sequence[Entry]], standings: Mapping[str, Standing]
    ) -> str:
        """Render the charts of each list."""
        sections = [
            Section(
                list_name(key),
                [
                    Grid([charts.top_figure(members, list_name=list_name(key)),
                          *charts.figures(members)]),
                    Folded("The figures as a table", [charts.table(members, standings)]),
                ],
            )
            for key, members in lists.items()
        ]  # fmt: skip
        return self.page("charts.html", sections=sections)

    def entry(
        self,
        entry: Entry,
        standing: Standing,
        same: Sequence[Entry],
        body: str,
        *,
        findings: Sequence[str] = (),
        checks: Sequence[Check] = (),
    ) -> str:
        """Render an entry's page: its ranks, its system's entries (`same`), and the body."""
        figure = None
        if len({other.edition for other in same}) > 1:
            title = "VFLOPS over editions"
            figure = Figure(
                title,
                editions.system_chart(same),
                "The system's best of each edition in this list.",
            )
        return self.page(
            "entry.html",
            root="../",
            entry=entry,
            standing=standing,
            same=sorted(same, key=lambda other: (other.edition, other.id)),
            figure=figure,
            body=Markup(body),
            findings=findings,
            proven=statements(entry, checks),
        )

    def history(self, lists: Mapping[ListKey, Sequence[Entry]]) -> str:
        """Render the best of each edition, list by list."""
        histories = []
        for key, entries in lists.items():
            title = list_name(key)
            figure = Figure(
                title,
                editions.history_chart(entries),
                "Orange: the sum over all systems, each by its best result of the edition. Blue: "
                "the best system (#1). Thin: systems with several editions, at most "
                f"{editions.MAX_SYSTEMS} of them.",
                f"VFLOPS over editions: {title}",
            )
            tables = editions.best_table(entries), editions.systems_table(entries)
            histories.append((figure, *tables))
        return self.page("history.html", lists=histories)


def roofline_section(run: RunFolder) -> Section | None:
    """Place a submission's run under the ceilings that it contains; None: it contains none.

    The ceilings are the submitter's; the run's point is computed again from its events.
    """
    if not run.roofline.is_file():
        return None
    try:
        with manifest.contradictions_as_errors("roofline.json"):
            submitted = run_folder.read(RunPlacement, run.roofline)
            placement = place_run(
                run, submitted.ceilings, memory_bytes_per_second=submitted.memory_bytes_per_second
            )
            section = Section(
                "Roofline",
                [
                    Paragraph("The ceilings are as submitted; the run's points are recomputed."),
                    Grid(roofline_page.placement_figures(placement)),
                    roofline_page.placement_table(placement),
                ],
            )
            drawn(section)  # ceilings that can't be drawn cost the drawing alone
            return section
    except AI500Error as error:
        return Section("Roofline", [_not_shown(run, error)])


def _not_shown(run: RunFolder, error: AI500Error) -> Paragraph:
    return Paragraph(f"Not shown: {printable(str(error).replace(str(run.path), 'the run'))}")


def drawn(section: Section | None) -> tuple[Drawing, ...]:
    """Draw the figures of a section."""
    blocks = () if section is None else section.blocks
    return tuple(
        Drawing(figure.title, figure.caption, str(figure.svg))
        for figure in figures_of(blocks)
        if figure.chart is not None
    )


def body(
    run: RunFolder,
    data: RunData,
    judgement: Judgement,
    info: Info,
    origin: Origin,
    *,
    roofline: Section | None,
) -> str:
    """Render the part of an entry's page that depends on the submission alone.

    What can't be drawn of a valid result is left out: its rank does not depend on a figure.
    """
    try:
        with manifest.contradictions_as_errors(origin.file):
            return _whole_body(run, data, judgement, info, origin, roofline=roofline)
    except manifest.SubmissionError as error:
        sections = [
            Section("Score", [_not_shown(run, error)]),
            _layers_section(judgement),
            _identity_section(data, info, origin),
        ]
        return _environment().get_template("entry_body.html").render(summary=[], sections=sections)


def _whole_body(
    run: RunFolder,
    data: RunData,
    judgement: Judgement,
    info: Info,
    origin: Origin,
    *,
    roofline: Section | None,
) -> str:
    program = program_report(data)
    score, *sections_after_score = program.sections
    recomputed = Paragraph("Recomputed from the submission's raw events.")
    sections = [
        replace(score, blocks=[recomputed, *score.blocks]),
        _layers_section(judgement),
        *sections_after_score,
        power_section(data),
        *([] if roofline is None else [roofline]),
        run_sections.system_section(data),
        Section("Hyper-parameters", [run_sections.hyperparameters_table(data)]),
        run_sections.software_section(data),
        _identity_section(data, info, origin),
    ]
    notes = run.path / NOTES
    if notes.is_file():
        text = Listing(notes.read_text(encoding="utf-8"), wrapped=True)
        sections.append(Section("Notes of the submitter", [text]))
    template = _environment().get_template("entry_body.html")
    return template.render(summary=program.summary, sections=sections)


def _layers_section(judgement: Judgement) -> Section:
    text = (
        f"Judged by rule set {judgement.rule_set} at the {judgement.level} level (V2 §3.1, §5), "
        "from the records of the members' processes."
    )
    facts = [
        replace(facts_table(verdict), title=f"Layer {verdict.layer}: {LAYERS[verdict.layer]}")
        for verdict in judgement.layers
    ]
    folded = Folded("Every layer's facts beside the reference", facts)
    return Section("The nine layers", [Paragraph(text), layers_table(judgement), folded])


def _identity_section(data: RunData, info: Info, origin: Origin) -> Section:
    contact = f"; contact: {info.contact}" if info.contact else ""
    text = (
        f"Submitted {info.created or 'at an unknown time'}{contact}; ai500 "
        f"{info.ai500_version or 'of unknown version'}."
    )
    return Section("Identity", [Paragraph(text), hashes_table(data, info, origin)])


def layers_table(judgement: Judgement) -> Table:
    """Tabulate the verdict and the findings of each layer, and of the procedure."""
    rows = [
        (f"{layer.layer} {LAYERS[layer.layer]}", layer.text, _messages(judgement, layer.layer))
        for layer in judgement.layers
    ]
    rows.append(("procedure", "follows the rules", _messages(judgement, None)))
    return Table(("layer", "verdict", "disclosed"), rows, style="layers")


def _messages(judgement: Judgement, layer: int | None) -> str:
    findings = [finding for finding in judgement.findings if finding.layer == layer]
    return "; ".join(finding.cited for finding in findings) or "—"


def facts_table(verdict: LayerVerdict) -> Table:
    """Tabulate a layer's facts beside the reference's; differences are marked."""
    rows, marked = [], set()
    for index, (name, reference, value) in enumerate(verdict.facts):
        differs = reference is not None and value is not None and reference != value
        if differs:
            marked.add(index)
        text = "not recorded" if value is None else f"≠ {value}" if differs else value
        rows.append((name, text, "free" if reference is None else reference))
    return Table(("", "this run", "reference"), rows, (), sorted(marked))


def layers_data(layers: Sequence[LayerVerdict]) -> dict[str, dict[str, str]]:
    """Return an entry's data for the page of comparison: layer → name → value."""
    return {
        f"{verdict.layer}": {"verdict": verdict.text}
        | {name: "not recorded" if value is None else value for name, _, value in verdict.facts}
        for verdict in layers
    }


def hashes_table(data: RunData, info: Info, origin: Origin) -> Table:
    """Tabulate the digests of the file, the source, the data and the weights."""
    digests = {record.weights_sha256 for record in data.members.values()}
    weights = sorted(filter(None, digests))
    rows = [
        ("submission", origin.sha256, origin.file),
        ("source code", info.source.sha256 or NOT_MEASURED, _commit(info)),
        *(("data", sha256, "store of a trial") for sha256 in info.data_sha256),
        *(("weights", sha256, "of a member of the trial shown") for sha256 in weights),
        ("signature", "valid" if origin.signed else "none", origin.signature),
    ]
    return Table(("", "SHA-256", ""), rows, style="hashes")


def _commit(info: Info) -> str:
    if info.source.commit is None:
        return "commit unknown"
    dirty = ", with uncommitted changes" if info.source.dirty else ""
    return f"commit {info.source.commit}{dirty}"


def script(name: str, value: object) -> str:
    """Write data as a script that pages can load from file:// too, where `fetch` is forbidden.

    `<`, `>`, `&` and the line ends U+2028 and U+2029 are escaped.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f"{name}({text});\n"
