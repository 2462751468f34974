"""The archive of a submission: every byte is prescribed, nothing is written outside its folder."""

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
    """Unpack bytes; return the result and the files, and check that nothing else was written."""
    folder.mkdir(parents=True)
    source, target = folder / "in.ai500", folder / "target"
    source.write_bytes(data)
    target.mkdir()
    result = archive.unpack(source, target)
    assert {path.name for path in folder.iterdir()} == {"in.ai500", "target"}
    assert not any(path.is_symlink() for path in target.rglob("*"))
    files = {p.relative_to(target).as_posix(): p.read_bytes() for p in target.rglob("*.*")}
    return result, files


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    result, files = unpacked(b"".join(archive.blocks(FILES)), tmp_path / "x")
    assert result.problems == []
    assert files == FILES
    assert {name: digest.bytes for name, digest in result.files.items()} == {
        name: len(content) for name, content in FILES.items()
    }


def test_events_have_a_separate_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = {"a/events.jsonl": b"x" * 60, "b.txt": b"y" * 90, "events.jsonl": b"z" * 60}
    data = b"".join(archive.blocks(packed))
    monkeypatch.setattr(archive, "MAX_EVENT_BYTES", 100)
    result, files = unpacked(data, tmp_path / "x")
    [problem] = result.problems
    assert problem.startswith("events.jsonl: ")
    assert "100 bytes" in problem
    assert sorted(files) == ["a/events.jsonl", "b.txt"]
    with pytest.raises(InputError) as raised:
        b"".join(archive.blocks(packed))
    assert raised.value.key == "events"


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
    reversed_files = dict(reversed(FILES.items()))
    assert b"".join(archive.blocks(FILES)) == b"".join(archive.blocks(reversed_files))


@pytest.mark.parametrize(
    "name",
    [
        "../x.txt", "a/../../x.txt", "/etc/x.txt", "C:x.txt", "c:/x.txt", "a\\x.txt", "a//x.txt",
        "./x.txt", "a/./x.txt", "", "a/", ".hidden", "a\nb.txt", "a\x1b[2J.txt", "é.txt", "nul",
        "a/CON.json", "lpt1.txt", "x.", "a b.txt", "x" * 101, "~root", "-rf",
    ],
)  # fmt: skip
def test_evil_names(name: str, tmp_path: Path) -> None:
    """Unsafe names can't be packed, and are not unpacked from another program's archive."""
    with pytest.raises(InputError):
        list(archive.blocks({name: b""}))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as file:
        entry = tarfile.TarInfo(name)
        entry.size = 4
        file.addfile(entry, io.BytesIO(b"evil"))
    result, files = unpacked(buffer.getvalue(), tmp_path / "x")
    assert files == {}
    assert result.problems
    assert all(problem.isprintable() for problem in result.problems)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE,
                                  tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])  # fmt: skip
def test_links_and_devices(kind: bytes, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        entry = tarfile.TarInfo("x.txt")
        entry.type, entry.linkname = kind, "/etc/passwd"
        file.addfile(entry)
    result, files = unpacked(buffer.getvalue(), tmp_path / "x")
    assert files == {}
    assert any(problem.startswith("x.txt") for problem in result.problems)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("a.txt", "a.txt", "duplicate"),
        ("A.txt", "a.txt", "duplicate"),
        ("a.txt", "a.txt/b.txt", "folder"),
        ("b.txt", "a.txt", "sorted"),
    ],
)
def test_clashes(first: str, second: str, reason: str, tmp_path: Path) -> None:
    archives = [b"".join(archive.blocks({name: b"x"})) for name in (first, second)]
    joined = archives[0][: -2 * archive.BLOCK] + archives[1]
    result, files = unpacked(joined, tmp_path / "x")
    assert files == {first: b"x"}
    assert [second in problem and reason in problem for problem in result.problems] == [True]


@given(data=st.data())
def test_every_changed_byte_is_detected(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In a header, in padding or at the end it is a problem, in a file another digest."""
    good = b"".join(archive.blocks(FILES))
    position = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[position] ^= data.draw(st.integers(1, 255))
    result, _ = unpacked(bytes(bad), tmp_path_factory.mktemp("changed") / "x")
    clean, _ = unpacked(good, tmp_path_factory.mktemp("clean") / "x")
    assert result.problems or result.files != clean.files


@pytest.mark.parametrize(
    "more", [b"\0", b"x", bytes(archive.BLOCK - 1), bytes(archive.BLOCK), bytes(20 * archive.BLOCK),
             archive.header("more.txt", 0), b"".join(archive.blocks(FILES))],
)  # fmt: skip
def test_a_longer_archive_is_refused(more: bytes, tmp_path: Path) -> None:
    good = b"".join(archive.blocks(FILES))
    assert not unpacked(good, tmp_path / "good")[0].problems
    assert unpacked(good + more, tmp_path / "longer")[0].problems


@given(cut=st.integers(0, 5000), more=st.binary(max_size=2000))
def test_cut_and_lengthened(
    cut: int, more: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    good = b"".join(archive.blocks(FILES))
    bad = good[:cut] + more
    result, _ = unpacked(bad, tmp_path_factory.mktemp("cut") / "x")
    assert bool(result.problems) == (bad != good)


def test_a_compressed_bomb_is_no_archive(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        entry = tarfile.TarInfo("bomb.txt")
        entry.size = 50_000_000
        file.addfile(entry, io.BytesIO(bytes(entry.size)))
    result, files = unpacked(buffer.getvalue(), tmp_path / "x")
    assert files == {}
    assert result.problems


def test_a_header_with_a_size_beyond_the_file(tmp_path: Path) -> None:
    """The header says gigabytes: nothing is written."""
    lying = archive.header("a.txt", 3 << 30) + b"x" * archive.BLOCK
    result, files = unpacked(lying, tmp_path / "x")
    assert files == {}
    assert "a.txt" in result.problems[0]


def test_a_flood_of_bad_files_ends_early(tmp_path: Path) -> None:
    flood = archive.header("a.txt", 0) * 5000
    result, files = unpacked(flood, tmp_path / "x")
    assert files == {"a.txt": b""}
    assert len(result.problems) == archive.MAX_PROBLEMS + 1
