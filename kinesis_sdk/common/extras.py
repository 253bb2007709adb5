"""The message about an optional package that is not installed: one sentence that names the extra for it."""

from __future__ import annotations


def install_hint(purpose: str, package: str, extra: str) -> str:
    """Return the message for a missing package.

    Args:
        purpose: Feature that needs it, as the beginning of a sentence: "This command".
        package: Name of the package.
        extra: The extra that installs it.
    """
    # Not by the name of the project, which is on no index: pip would install whatever is registered under it.
    return f"{purpose} needs the package {package}, which the extra {extra!r} installs: pip install '.[{extra}]' in a clone of the project"
