"""Typer's classes for the commands: imported when they run, with a help of plain words."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from ai500.cli.commands import COMMANDS, GROUPS
from ai500.cli.verbosity import verbosity_options

VALUES = {"path": "PATH", "int": "N", "float": "NUMBER", "str": "TEXT"}
"""Type of an option's value → its word in the help."""
USAGE = "COMMAND [OPTIONS]"
SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}


class PlainCommand(TyperCommand):
    """A command with -q and -v, whose help shows values as words, not as the parser's types."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params = [*self.params, *verbosity_options()]

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, each with the parser that it needs."""
        return [with_plain_parser(parameter) for parameter in super().get_params(ctx)]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: arguments in brackets may be left out."""
        arguments = [part for part in self.get_params(ctx) if part.param_type_name == "argument"]
        return ["[OPTIONS]", *(_argument(part) for part in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options with their values, defaults and bounds."""
        write_parameters(self.get_params(ctx), formatter)


class CommandGroup(TyperGroup):
    """The commands of the table: listed without their modules, imported when one is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: dict[str, Any] = _LazyCommands.fromkeys(COMMANDS)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, each with the parser that it needs."""
        return [with_plain_parser(parameter) for parameter in super().get_params(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the command of that name; None: there is none."""
        return self.commands.get(cmd_name)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of all commands, then the commands in their groups."""
        for heading, entries in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(entry.name, entry.summary) for entry in entries])
        write_parameters(self.get_params(ctx), formatter)


class PlainParser:
    """Parser of a parameter that takes any text, any path, or no value."""

    def __init__(self, kind: type[bool] | type[str] | type[Path]) -> None:
        self._kind = kind

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        """Return the value; None: the parameter was left out. Reading it reports what is wrong."""
        return None if value is None else self._kind(value)


def with_plain_parser(parameter: Any) -> Any:
    """Give a parameter without checks of its own a parser that needs no pydantic.

    Typer imports pydantic to parse even an option that was left out: half the time of `status`.
    """
    # These are attributes of typer 0.29; another version parses as it does.
    described = getattr(parameter, "type_descriptor", None)
    if described is None or getattr(parameter, "_runtime_param", described) is not None:
        return parameter
    settings = described.parameter_info
    checks = ("exists", "writable", "resolve_path", "allow_dash", "parser")
    is_plain = (
        parameter.nargs == 1
        and not parameter.multiple
        and settings.file_okay
        and settings.dir_okay
        and not any(getattr(settings, name, None) for name in checks)
    )
    if is_plain and described.annotation in (bool, str, Path):
        parameter._runtime_param = PlainParser(described.annotation)
    return parameter


class SubcommandGroup(TyperGroup):
    """A group of subcommands, such as `ai500 data`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with their first sentences, then the options."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, (command.help or "").partition("\n")[0])
                    for name, command in self.commands.items()
                ]
            )
        write_parameters(self.get_params(ctx), formatter)


class _LazyCommands(dict[str, Any]):
    """Commands by name; looking one up imports its module."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if command is None:
            command = self[name] = _import_command(name)
        return command

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - it would call itself

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        return [self[name] for name in self]


def _import_command(name: str) -> Any:
    module, _, attribute = COMMANDS[name].target.partition(":")
    target = getattr(import_module(module), attribute)
    if isinstance(target, typer.Typer):
        for subcommand in target.registered_commands:
            subcommand.cls = PlainCommand
        target.info.cls = SubcommandGroup
        target.info.options_metavar, target.info.subcommand_metavar = "", USAGE
        return typer.main.get_group(target)
    single = typer.Typer(**SETTINGS)
    single.command(name, cls=PlainCommand)(target)
    return typer.main.get_command(single)


def write_parameters(parameters: list[Any], formatter: Any) -> None:
    """Write two lists, of arguments and of options."""
    for kind, heading in (("argument", "Arguments"), ("option", "Options")):
        lines = [
            (_names(parameter), _meaning(parameter))
            for parameter in parameters
            if parameter.param_type_name == kind and not getattr(parameter, "hidden", False)
        ]
        if lines:
            with formatter.section(heading):
                formatter.write_dl(lines)


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    name += "" if parameter.nargs == 1 else " …"
    return name if parameter.required else f"[{name}]"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    # Short names first, as everywhere.
    names = ", ".join(sorted(parameter.opts, key=len))
    takes_value = not (parameter.is_flag or parameter.count)
    return f"{names} {parameter.metavar or _value(parameter)}" if takes_value else names


def _value(parameter: Any) -> str:
    # Typer had click's types before it had descriptors of its own.
    described = getattr(parameter, "type_descriptor", None)
    kind = str(described.annotation if described else parameter.type).lower()
    return next((word for part, word in VALUES.items() if part in kind), "TEXT")


def _meaning(parameter: Any) -> str:
    """Return the help with the default and the bounds in words."""
    minimum = getattr(parameter, "min", None)
    default = parameter.default
    notes = []
    if isinstance(default, str | int | float | Path) and not isinstance(default, bool):
        notes.append(f"default {default:g}" if isinstance(default, float) else f"default {default}")
    if minimum is not None:
        notes.append(f"at least {minimum:g}")
    return (parameter.help or "") + (f" [{'; '.join(notes)}]" if notes else "")
