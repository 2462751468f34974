"""Review of valid submissions together: whose they are, and which are the same work.

Names are checked first, so that a copy under a name that its key may not use delays no other entry.
Then the same work is found. One signer's: the first one received is ranked. Different signers':
neither is ranked until the committee decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ai500.ranking.entries import Ranked
from ai500.ranking.identity import Overlap, overlaps, same_weights
from ai500.ranking.registry import Decisions, Registry


@dataclass(frozen=True)
class Review:
    """Result of a review, by the entries' ids."""

    refused: dict[str, list[str]] = field(default_factory=dict)
    """Reasons against an entry that is valid by itself."""
    findings: dict[str, list[str]] = field(default_factory=dict)
    """Statements that an entry's page shows."""


def review(
    candidates: Sequence[Ranked], *, registry: Registry | None, decisions: Decisions
) -> Review:
    """Decide which valid submissions are ranked."""
    result = Review()
    eligible = []
    for candidate in candidates:
        if reason := _refusal(candidate, registry, decisions):
            result.refused[candidate.entry.id] = [reason]
        else:
            eligible.append(candidate)
    order = {} if registry is None else registry.order
    last = len(order)
    # A file's name decides nothing: without a record of receipt, its digest does.
    eligible.sort(key=lambda each: (order.get(each.claim.sha256, last), each.claim.sha256))
    _find_same_work(eligible, registry, decisions, result)
    _note_same_weights(eligible, registry, result)
    return result


def _refusal(candidate: Ranked, registry: Registry | None, decisions: Decisions) -> str:
    """Return the reason against a candidate alone; empty: there is none."""
    claim = candidate.claim
    if reason := decisions.refusal(claim.sha256):
        return reason
    if registry is None:
        return ""
    organization = candidate.entry.organization
    return registry.refusal(organization, claim.fingerprint, sha256=claim.sha256)


def _find_same_work(
    eligible: Sequence[Ranked], registry: Registry | None, decisions: Decisions, result: Review
) -> None:
    for first, second, overlap in _same_work(eligible):
        if decisions.settles(first.claim.sha256, second.claim.sha256):
            _note_both(result, first, second, f"shares {overlap.described} with")
        elif signer(first, registry) != signer(second, registry):
            _hold(result, first, second, overlap)
    # Apart: what shares work with an entry of another list is compared within its own as well.
    groups: dict[object, list[Ranked]] = {}
    for candidate in eligible:
        key = signer(candidate, registry), candidate.entry.list_key
        groups.setdefault(key, []).append(candidate)
    for group in groups.values():
        for first, second, overlap in _same_work(group):
            if decisions.settles(first.claim.sha256, second.claim.sha256):
                continue
            why = "received earlier" if registry is not None else "whose SHA-256 is the lower one"
            reason = f"{overlap.described} are those of {_name(first)}, {why}: one run counts once"
            result.refused.setdefault(second.entry.id, []).append(reason)
            text = f"{_name(second)} contains {overlap.described} of this run, and is not ranked."
            result.findings.setdefault(first.entry.id, []).append(text)


def _same_work(candidates: Sequence[Ranked]) -> Iterator[tuple[Ranked, Ranked, Overlap]]:
    """Yield the pairs that contain the same work, the earlier one first."""
    for overlap in overlaps([candidate.claim for candidate in candidates]):
        yield candidates[overlap.first], candidates[overlap.second], overlap


def _note_same_weights(
    eligible: Sequence[Ranked], registry: Registry | None, result: Review
) -> None:
    """Note equal weights of different signers on the pages of both."""
    for group in same_weights([candidate.claim for candidate in eligible]):
        members = [(eligible[place], signer(eligible[place], registry)) for place in group]
        for candidate, own in members:
            others = [other for other, its_signer in members if its_signer != own]
            if others:
                more = f" and {len(others) - 1} more" if len(others) > 1 else ""
                text = (
                    f"All members end with the weights of {_name(others[0])}{more}, at other "
                    "times: equal seeds give equal weights on equal systems only."
                )
                result.findings.setdefault(candidate.entry.id, []).append(text)


def signer(candidate: Ranked, registry: Registry | None) -> str:
    """Return who signed: the organization of a registered key, or the key's fingerprint.

    Without a signature it is the organization that the file names.
    """
    fingerprint = candidate.claim.fingerprint
    if registry is not None and fingerprint is not None and fingerprint in registry.owners:
        return registry.owners[fingerprint][0].name
    return fingerprint or f"unsigned: {candidate.entry.organization.strip().casefold()}"


def _hold(result: Review, first: Ranked, second: Ranked, overlap: Overlap) -> None:
    """Rank neither of two submissions of different signers."""
    for candidate, rival in ((first, second), (second, first)):
        reason = (
            f"the same work as {_name(rival)}, of another signer ({overlap.described}): "
            "neither is ranked until the committee decides"
        )
        result.refused.setdefault(candidate.entry.id, []).append(reason)


def _note_both(result: Review, first: Ranked, second: Ranked, relation: str) -> None:
    for candidate, rival in ((first, second), (second, first)):
        text = f"This run {relation} {_name(rival)}."
        result.findings.setdefault(candidate.entry.id, []).append(text)


def _name(candidate: Ranked) -> str:
    entry = candidate.entry
    return f"{entry.full_name or 'an entry without a name'} ({candidate.claim.file})"
