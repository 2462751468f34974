"""The site's pages from templates that escape all they are given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from ai500.core.units import human_seconds
from ai500.pipeline.reporting import program_report
from ai500.ranking import editions
from ai500.ranking.entries import Entry, Origin, Rejected
from ai500.ranking.standings import ListKey, Standing
from ai500.records.findings import Judgement, LayerVerdict
from ai500.records.run_folder import RunFolder
from ai500.report import run_sections, templating
from ai500.report.formats import NOT_MEASURED, flops
from ai500.report.meter_section import power_section
from ai500.report.run_data import RunData
from ai500.report.section import Figure, Folded, Listing, Paragraph, Section, Table
from ai500.rules.decisions import DECISIONS
from ai500.rules.layers import LAYERS
from ai500.submission.manifest import NOTES, Info


@cache
def _environment() -> Environment:
    return templating.environment(
        "ai500.ranking",
        decisions=DECISIONS,
        flops=flops,
        human_seconds=human_seconds,
        list_name=list_name,
    )


def list_name(key: ListKey) -> str:
    """A list in words."""
    workload, problem_class, level = key
    return f"{workload.replace('_', ' ')}, class {problem_class}, {level} level"


@dataclass(frozen=True)
class Site:
    """What every page of one site says."""

    title: str
    ranked: int
    rejected: int

    def page(self, template: str, *, root: str = "", **values: Any) -> str:
        """A page; `root` leads from it to the site's front page."""
        return _environment().get_template(template).render(site=self, root=root, **values)

    def entry(self, entry: Entry, standing: Standing, same: Sequence[Entry], body: str) -> str:
        """An entry's page: its places, its system's other entries, and the body."""
        figure = None
        if len({one.edition for one in same}) > 1:
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
            same=sorted(same, key=lambda one: (one.edition, one.id)),
            figure=figure,
            body=Markup(body),
        )

    def history(self, lists: Mapping[ListKey, Sequence[Entry]]) -> str:
        """The best of each edition, list by list."""
        shown = []
        for key, entries in lists.items():
            title = list_name(key)
            figure = Figure(
                title,
                editions.history_chart(entries),
                "Blue: the best result of each edition. Thin: systems that came more than once, "
                f"at most {editions.MOST_SYSTEMS} of them.",
                f"VFLOPS over editions: {title}",
            )
            shown.append((figure, editions.best_table(entries), editions.systems_table(entries)))
        return self.page("history.html", lists=shown)

    def rejected_page(self, rejected: Sequence[Rejected]) -> str:
        """Those that are not ranked, with the reasons."""
        return self.page("rejected.html", submissions=rejected)


def body(run: RunFolder, data: RunData, judgement: Judgement, info: Info, origin: Origin) -> str:
    """All of an entry's page that follows from the submission alone."""
    program = program_report(data)
    score, *others = program.sections
    recomputed = Paragraph("Recomputed from the submission's raw events.")
    sections = [
        replace(score, blocks=[recomputed, *score.blocks]),
        _layers_section(judgement),
        *others,
        power_section(data),
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
        "from what the members' own processes recorded."
    )
    facts = [
        replace(facts_table(one), title=f"Layer {one.layer}: {LAYERS[one.layer]}")
        for one in judgement.layers
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


VERDICTS = {
    "same": "same as the reference",
    "allowed": "changed, allowed",
    "forbidden": "changed, forbidden",
}


def in_words(verdict: LayerVerdict) -> str:
    """A layer's verdict; where no reference prescribes anything, nothing can have changed."""
    if verdict.verdict == "allowed" and all(wanted is None for _, wanted, _ in verdict.facts):
        return "free to choose"
    return VERDICTS[verdict.verdict]


def layers_table(judgement: Judgement) -> Table:
    """Each of the nine layers against the reference, with what the rules found."""
    rows = []
    for one in judgement.layers:
        found = [finding for finding in judgement.findings if finding.layer == one.layer]
        said = " ".join(f"{finding.message} ({finding.source})" for finding in found)
        rows.append((f"{one.layer} {LAYERS[one.layer]}", in_words(one), said or "—"))
    notes = " ".join(f"{one.message} ({one.source})" for one in judgement.findings if not one.layer)
    rows.append(("procedure", "as the rules ask", notes or "—"))
    return Table(("layer", "verdict", "disclosed"), rows, style="layers")


def facts_table(verdict: LayerVerdict) -> Table:
    """A layer's facts beside the reference's; what differs is marked."""
    rows, marked = [], set()
    for index, (what, reference, ours) in enumerate(verdict.facts):
        differs = reference is not None and ours is not None and reference != ours
        if differs:
            marked.add(index)
        value = "not recorded" if ours is None else f"≠ {ours}" if differs else ours
        rows.append((what, value, "free" if reference is None else reference))
    return Table(("", "this run", "reference"), rows, (), sorted(marked))


def layers_data(layers: Sequence[LayerVerdict]) -> dict[str, dict[str, str]]:
    """What the page of comparison needs of an entry: layer → name → value."""
    return {
        f"{one.layer}": {"verdict": in_words(one)}
        | {what: "not recorded" if ours is None else ours for what, _, ours in one.facts}
        for one in layers
    }


def hashes_table(data: RunData, info: Info, origin: Origin) -> Table:
    """What identifies the file, the source, the data and the weights."""
    weights = {one.weights_sha256 for one in data.members.values()}
    rows = [
        ("submission", origin.sha256, origin.file),
        ("source code", info.source.sha256 or NOT_MEASURED, _commit(info)),
        *(("data", sha256, "store of a trial") for sha256 in info.data_sha256),
        *(("weights", sha256, "of a member of the trial shown") for sha256 in sorted(weights)),
        ("signature", "valid" if origin.signed else "none", origin.signature),
    ]
    return Table(("what", "SHA-256", ""), rows, style="hashes")


def _commit(info: Info) -> str:
    if info.source.commit is None:
        return "of no known commit"
    dirty = ", with changes" if info.source.dirty else ""
    return f"commit {info.source.commit}{dirty}"


def script(name: str, value: object) -> str:
    """Data as a script that pages load, also from file://, where nothing can be fetched.

    `<`, `>` and `&` never stand in it, nor the line ends that only JavaScript knows.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f"{name}({text});\n"
