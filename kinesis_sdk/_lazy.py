"""Names of a package that are imported on first use, so that importing the package itself costs almost nothing.

A package declares such names twice: as imports for type checkers, and as a table for the interpreter.

    TYPE_CHECKING = False  # type checkers read it as True
    if TYPE_CHECKING:
        from kinesis_sdk.metrics import MemoryMetrics as MemoryMetrics
    else:
        __all__, __getattr__, __dir__ = lazy_names(__name__, {"kinesis_sdk.metrics.memory": ("MemoryMetrics",)})

`tests/test_package.py` compares both declarations for every package. This module imports nothing, not even `typing`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def lazy_names(
    package: str, homes: Mapping[str, tuple[str, ...]], *, imported: Iterable[str] = ()
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package.

    ``__getattr__`` imports a name from its home on first use and stores it in the package, so it is called once for
    each name.

    Args:
        package: ``__name__`` of the package.
        homes: Names by the module from which each is imported.
        imported: Public names that the package has imported already.
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    names = [*imported, *home_of]

    def get(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import sys
        from importlib import import_module

        value: object = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return names, get, lambda: sorted(names)
