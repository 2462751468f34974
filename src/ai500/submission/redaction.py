"""Replace the names of hosts, users and folders in the files of a run, the same in all of them.

Names are numbered in their order, so that sorted lists stay sorted, and are replaced in values and
in names of files; keys, numbers, digests and counted graphs stay as they are. The caller scores and
verifies the redacted copy: a name that is also a word of the rules ("pytorch") ends there.
"""

from __future__ import annotations

import getpass
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ai500.core.atomic import json_text

HOST_KEYS = ("host", "hostname", "node", "reference")
UNCHANGED = ("graph.json",)
"""Files whose digest is recorded, and that name operators only."""
PUBLIC = frozenset({
    "bin", "boot", "data", "dev", "etc", "home", "include", "lib", "lib64", "local", "mnt", "nix",
    "opt", "proc", "root", "run", "runs", "sbin", "scratch", "share", "shm", "site-packages",
    "dist-packages", "src", "sys", "tmp", "usr", "var", "Users", "work", "trials", "members",
    "placements", "systems", "meters", "slurm", "bootstraps", "ai500", "torch",
})  # fmt: skip
"""Parts of paths that every system or run folder has."""
_PATH = re.compile(r"""(?<![\w.:/~-])/[^\s"'`:,;=|()<>\[\]{}\\*?$]+""")
_USER = re.compile(r"/(?:home|Users)/([^/\s\"']+)")
_PUBLIC_PART = re.compile(
    r"[\d.]+|python[\d.]*|[0-9]{2,3}|.*\.(json|jsonl|txt|pt|npz|npy|py|so|sh)"
)


def redacted(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with pseudonyms for the names of hosts, users and folders."""
    replace = _replacer(files)
    return {replace(name): _rewritten(name, data, replace) for name, data in files.items()}


def _replacer(files: Mapping[str, bytes]) -> Callable[[str], str]:
    texts = {name: data.decode("utf-8", errors="replace") for name, data in files.items()}
    hosts, users, folders = set[str](), {getpass.getuser()}, set[str]()
    for name, text in texts.items():
        for document in _documents(name, text):
            hosts.update(_hosts(document))
        users.update(_USER.findall(text))
        for path in _PATH.findall(text):
            folders.update(_private_parts(path))
    users.discard("root")
    hosts.discard("localhost")
    # Hosts of several domains that begin alike are several: they have files of their own.
    domains = Counter(_short(host) for host in hosts if host != _short(host))
    short = {host: _short(host) if domains[_short(host)] < 2 else host for host in hosts}
    nodes = _numbered("node", set(short.values()))
    names = {
        **_numbered("folder", folders - users - hosts),
        **_numbered("user", users - hosts),
        **nodes,
        **{host: nodes[name] for host, name in short.items()},
    }
    if not names:
        return lambda text: text
    longest_first = sorted(map(re.escape, names), key=len, reverse=True)
    word = re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(longest_first)})(?![A-Za-z0-9_])")
    in_path = re.compile(rf"(?<=/)(?:{'|'.join(longest_first)})(?=/|$)")

    def replace_path(match: re.Match[str]) -> str:
        return in_path.sub(lambda part: names[part[0]], match[0])

    # Names of folders are words of any language: they are replaced in paths alone.
    outside = {name: new for name, new in names.items() if not new.startswith("folder")}

    def replace(text: str) -> str:
        text = _PATH.sub(replace_path, text)
        return word.sub(lambda match: outside.get(match[0], match[0]), text)

    return replace


def _short(host: str) -> str:
    """Return a host's name without its domain; an address is whole."""
    name = host.partition(".")[0]
    return host if name.isdigit() else name


def _numbered(kind: str, names: set[str]) -> dict[str, str]:
    width = len(str(len(names)))
    return {name: f"{kind}{number:0{width}d}" for number, name in enumerate(sorted(names), 1)}


def _private_parts(path: str) -> Iterator[str]:
    for part in PurePosixPath(path.rstrip(".")).parts[1:]:
        if part not in PUBLIC and not _PUBLIC_PART.fullmatch(part):
            yield part


def _documents(name: str, text: str) -> Iterator[Any]:
    if name.endswith(".json"):
        yield json.loads(text)
    elif name.endswith(".jsonl"):
        yield from (json.loads(line) for line in text.split("\n") if _is_json(line))


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _hosts(value: Any, key: str = "") -> Iterator[str]:
    """Yield the names of hosts: values of HOST_KEYS, and the names of a plan's nodes."""
    if isinstance(value, str) and value and key in HOST_KEYS:
        yield value
    elif isinstance(value, list):
        for item in value:
            if key == "nodes" and isinstance(item, dict) and isinstance(item.get("name"), str):
                yield item["name"]
            elif key == "nodes" and isinstance(item, str):
                yield item
            yield from _hosts(item, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _hosts(item, name)


def _rewritten(name: str, data: bytes, replace: Callable[[str], str]) -> bytes:
    if name.endswith(UNCHANGED):
        return data
    text = data.decode("utf-8", errors="replace")
    if name.endswith(".json"):
        return json_text(_values(json.loads(text), replace)).encode()
    if name.endswith(".jsonl"):
        return "\n".join(_lines(text.split("\n"), replace)).encode()
    return replace(text).encode()


def _lines(lines: Iterable[str], replace: Callable[[str], str]) -> Iterator[str]:
    for line in lines:
        if _is_json(line):
            yield json.dumps(_values(json.loads(line), replace), allow_nan=False)
        else:
            yield replace(line)  # empty, or torn by a crash


def _values(value: Any, replace: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, list):
        return [_values(item, replace) for item in value]
    if isinstance(value, dict):
        return {key: _values(item, replace) for key, item in value.items()}
    return value
