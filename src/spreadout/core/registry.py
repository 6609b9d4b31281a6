"""Parts by the names a config gives them: methods, sources, partitions, encoders, metrics, executors.

A part is registered where it is defined, by one decorator. A module of the user's own does the same, and
what it registers is known wherever the built-in parts are.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from spreadout.core.errors import UserError

T = TypeVar("T")
LARGEST, LARGEST_WHOLE = 3.4e38, 2**63 - 1


class Registry(Generic[T]):
    """Parts of one kind, by name, in the order they were registered.

    >>> colours: Registry[int] = Registry("colour")
    >>> colours.add("red", 0xFF0000)
    >>> colours["red"], list(colours)
    (16711680, ['red'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}

    def add(self, name: str, part: T) -> None:
        """Register a part. A name is given once; a module that is read again replaces its own."""
        known = self._parts.get(name)
        if known is not None and _home(known) != _home(part):
            raise UserError(f"{self.kind} {name!r}: {_home(known)} has that name; choose another")
        self._parts[name] = part

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            raise UserError(f"{self.kind} {name!r}: unknown{near(name, self._parts)}")
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def parts(self) -> list[T]:
        """All parts, each once, though it may go by several names."""
        return list({id(part): part for part in self._parts.values()}.values())


class Section(BaseModel):
    """A frozen part of a config: its options are its fields, unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    # Keys that are read only beside certain values of others: any of these, each all of its pairs.
    read_if: ClassVar[Mapping[str, tuple[Mapping[str, tuple[Any, ...]], ...]]] = {}

    def __init__(self, /, **values: Any) -> None:
        """Where a section is made in Python: there an error is one line, too."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UserError(self._explained(error, values)) from None

    # Sections inside others are not made by it, so that their errors say where they are.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def _explained(cls, error: ValidationError, values: Mapping[str, Any]) -> str:
        from spreadout.core.explained import explain

        return explain(error, cls.__name__, cls, values)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, about: ValidationInfo) -> Any:
        """`true` for a count or a rate is a slip, and would be taken as 1."""
        inside = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(one, bool) for one in inside):
            kinds = kinds_of(cls.model_fields[str(about.field_name)].annotation)
            if bool not in kinds and not {int, float}.isdisjoint(kinds):
                raise ValueError("must be a number, not true or false")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Tensors are in 32 bits: what does not fit is refused here, not in the middle of a round."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, float) and abs(value) > LARGEST:
                raise ValueError(f"{name}: {value:g} is too large for a 32-bit number")
            if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
                raise ValueError(f"{name}: is too large for a 64-bit number")
        return self


def kinds_of(annotation: Any) -> list[Any]:
    """The plain types that a field takes, in order."""
    inner = get_args(annotation)
    return [kind for part in inner for kind in kinds_of(part)] if inner else [annotation]


def conditions_of(section: type[Section]) -> dict[str, tuple[Mapping[str, tuple[Any, ...]], ...]]:
    """Its `read_if` with those of its bases."""
    found: dict[str, tuple[Mapping[str, tuple[Any, ...]], ...]] = {}
    for cls in reversed(section.__mro__):
        found |= cls.__dict__.get("read_if", {})
    return {key: any_of for key, any_of in found.items() if key in section.model_fields}


class NamedSection(Section):
    """A section whose `name` says which of the registered kinds it is."""

    registry: ClassVar[Registry[Any]]
    name: str

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names a config may call it by: those of its `name: Literal[...]`, or its default."""
        field = cls.model_fields["name"]
        return get_args(field.annotation) or ((field.default,) if isinstance(field.default, str) else ())

    @classmethod
    def register(cls) -> None:
        """Make it known to configs, under all its names."""
        if not cls.names():
            raise UserError(f'{cls.__qualname__}: give it a name, as `name: Literal["mine"] = "mine"`')
        for name in cls.names():
            cls.registry.add(name, cls)

    @classmethod
    def choose(cls, value: Any) -> Any:
        """Validate a config's section by the part it names; a bare name is a section of its own."""
        if isinstance(value, NamedSection):
            return value
        values = {"name": value} if isinstance(value, str) else value
        if not isinstance(values, Mapping):
            raise PydanticCustomError("model_type", "must be a section")
        name = values.get("name")
        if name is None:
            raise PydanticCustomError("name_missing", "is required")
        if name not in cls.registry:
            raise unknown_name(name, cls.registry)
        return cls.registry[name].model_validate(values)


def unknown_name(name: Any, known: Iterable[str]) -> PydanticCustomError:
    """What a validator raises of a name that nothing was registered under."""
    return PydanticCustomError("unknown_name", "unknown", {"name": name, "known": list(known)})


def near(word: str, known: Iterable[str]) -> str:
    """What somebody may have meant, and what there is."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}? Known: {', '.join(names)}"
    return f"; known: {', '.join(names)}"


IMPORTED: list[str] = []  # the user's own modules, in the order of import


def import_modules(names: Iterable[str]) -> None:
    """Import modules for what they register; the working directory is looked in too.

    They are remembered: a config made afterwards names them, so that its run can be resumed.
    """
    for name in names:
        here = os.getcwd()
        if here not in sys.path:
            sys.path.append(here)
        try:
            if _is_main(name):  # a script that names itself: what it registers is registered already
                sys.modules[name] = sys.modules["__main__"]
            importlib.import_module(name)
        except UserError as error:  # of what it registers
            raise UserError(f"import of {name}: {error}") from None
        except (Exception, SystemExit) as error:
            raise UserError(f"import of {name}: {_reason(name, error, here)}") from None
        if name not in IMPORTED:
            IMPORTED.append(name)


def _is_main(name: str) -> bool:
    """Whether this module is the script that is being run."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if name in sys.modules or main is None:
        return False
    found = importlib.util.find_spec(name) if "." not in name else None
    return found is not None and found.origin is not None and os.path.samefile(found.origin, main)


def _reason(name: str, error: BaseException, here: str) -> str:
    """Why a module cannot be imported, in one line."""
    said = str(error).partition("\n")[0]
    if name.endswith(".py") or os.sep in name:
        called = name.removesuffix(".py").replace(os.sep, ".").strip(".")
        return f"is the name of a file; give the module's own, {called}"
    if isinstance(error, ModuleNotFoundError) and error.name and name.startswith(error.name):
        return f"{said}; is it installed, or in {here}?"
    frames = traceback.extract_tb(error.__traceback__)
    own = [at for at in frames if not at.filename.startswith("<") and "importlib" not in at.filename]
    place = f" ({own[1].filename}:{own[1].lineno})" if len(own) > 1 else ""  # the first is ours
    return f"{type(error).__name__}: {said}{place}"


def _home(part: object) -> str:
    name = getattr(part, "__qualname__", None) or type(part).__qualname__
    return f"{getattr(part, '__module__', '')}.{name}"
