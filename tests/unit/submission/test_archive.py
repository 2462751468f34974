"""The archive of a submission: every byte prescribed, nothing outside its folder."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.core.errors import InputError
from ai500.submission import archive

FILES = {"b.json": b"{}\n", "a/c.txt": b"x" * 700, "a/b/d.jsonl": b"", "a-b.md": b"y" * 512}


def unpacked(data: bytes, folder: Path) -> tuple[archive.Unpacked, dict[str, bytes]]:
    """What comes out of these bytes; nothing may appear beside the target."""
    folder.mkdir(parents=True)
    source, target = folder / "in.ai500", folder / "target"
    source.write_bytes(data)
    target.mkdir()
    result = archive.unpack(source, target)
    assert {path.name for path in folder.iterdir()} == {"in.ai500", "target"}
    assert not any(path.is_symlink() for path in target.rglob("*"))
    found = {p.relative_to(target).as_posix(): p.read_bytes() for p in target.rglob("*.*")}
    return result, found


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    result, found = unpacked(b"".join(archive.blocks(FILES)), tmp_path / "x")
    assert result.problems == []
    assert found == FILES
    assert {name: digest.bytes for name, digest in result.files.items()} == {
        name: len(content) for name, content in FILES.items()
    }


def test_events_have_a_bound_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a/events.jsonl": b"x" * 60, "b.txt": b"y" * 90, "events.jsonl": b"z" * 60}
    data = b"".join(archive.blocks(files))
    monkeypatch.setattr(archive, "MAX_EVENT_BYTES", 100)
    result, found = unpacked(data, tmp_path / "x")
    assert result.problems == ["events.jsonl: with it, the events have more than 100 bytes"]
    assert sorted(found) == ["a/events.jsonl", "b.txt"]
    with pytest.raises(InputError, match="events of a submission"):
        b"".join(archive.blocks(files))


def test_other_programs_read_it(tmp_path: Path) -> None:
    path = tmp_path / "x.ai500"
    archive.pack(path, FILES)
    with tarfile.open(path) as file:
        assert file.getnames() == sorted(FILES)
        assert {member.mtime for member in file.getmembers()} == {archive.TIME}
    listed = subprocess.run(["tar", "tf", path], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == sorted(FILES)
    assert listed.stderr == ""


def test_the_order_of_insertion_does_not_matter() -> None:
    turned = dict(reversed(FILES.items()))
    assert b"".join(archive.blocks(FILES)) == b"".join(archive.blocks(turned))


@pytest.mark.parametrize(
    "name",
    [
        "../x.txt", "a/../../x.txt", "/etc/x.txt", "C:x.txt", "c:/x.txt", "a\\x.txt", "a//x.txt",
        "./x.txt", "a/./x.txt", "", "a/", ".hidden", "a\nb.txt", "a\x1b[2J.txt", "é.txt", "nul",
        "a/CON.json", "lpt1.txt", "x.", "a b.txt", "x" * 101, "~root", "-rf",
    ],
)  # fmt: skip
def test_evil_names(name: str, tmp_path: Path) -> None:
    """They can't be packed, and are not unpacked where another program packed them."""
    with pytest.raises(InputError):
        list(archive.blocks({name: b""}))
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as file:
        entry = tarfile.TarInfo(name)
        entry.size = 4
        file.addfile(entry, io.BytesIO(b"evil"))
    result, found = unpacked(made.getvalue(), tmp_path / "x")
    assert found == {}
    assert result.problems
    assert all(problem.isprintable() for problem in result.problems)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE,
                                  tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])  # fmt: skip
def test_links_and_devices(kind: bytes, tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as file:
        entry = tarfile.TarInfo("x.txt")
        entry.type, entry.linkname = kind, "/etc/passwd"
        file.addfile(entry)
    result, found = unpacked(made.getvalue(), tmp_path / "x")
    assert found == {}
    assert any(problem.startswith("x.txt") for problem in result.problems)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("a.txt", "a.txt", "twice"),
        ("A.txt", "a.txt", "twice"),
        ("a.txt", "a.txt/b.txt", "as a file"),
        ("b.txt", "a.txt", "order"),
    ],
)
def test_clashes(first: str, second: str, reason: str, tmp_path: Path) -> None:
    one, other = (b"".join(archive.blocks({name: b"x"})) for name in (first, second))
    joined = one[: -2 * archive.BLOCK] + other
    result, found = unpacked(joined, tmp_path / "x")
    assert found == {first: b"x"}
    assert [second in problem and reason in problem for problem in result.problems] == [True]


@given(data=st.data())
def test_every_changed_byte_is_seen(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In a header, in the padding, at the end: seen. In a content: another digest."""
    good = b"".join(archive.blocks(FILES))
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    result, _ = unpacked(bytes(bad), tmp_path_factory.mktemp("changed") / "x")
    clean, _ = unpacked(good, tmp_path_factory.mktemp("clean") / "x")
    assert result.problems or result.files != clean.files


@given(cut=st.integers(0, 5000), more=st.binary(max_size=2000))
def test_cut_and_lengthened(
    cut: int, more: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    good = b"".join(archive.blocks(FILES))
    bad = good[:cut] + more
    result, _ = unpacked(bad, tmp_path_factory.mktemp("cut") / "x")
    assert bool(result.problems) == (bad != good)


def test_a_compressed_bomb_is_no_archive(tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as file:
        entry = tarfile.TarInfo("bomb.txt")
        entry.size = 50_000_000
        file.addfile(entry, io.BytesIO(bytes(entry.size)))
    result, found = unpacked(made.getvalue(), tmp_path / "x")
    assert found == {}
    assert result.problems


def test_a_size_that_is_not_there(tmp_path: Path) -> None:
    """The header promises gigabytes: nothing is written."""
    lying = archive.header("a.txt", 3 << 30) + b"x" * archive.BLOCK
    result, found = unpacked(lying, tmp_path / "x")
    assert found == {}
    assert "a.txt" in result.problems[0]


def test_a_flood_of_bad_files_ends_early(tmp_path: Path) -> None:
    flood = archive.header("a.txt", 0) * 5000
    result, found = unpacked(flood, tmp_path / "x")
    assert found == {"a.txt": b""}
    assert len(result.problems) == archive.MAX_PROBLEMS + 1
