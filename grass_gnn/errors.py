"""Errors that users can fix. The command line shows the message instead of a traceback."""

import re

LONGEST_MESSAGE = 2000  # characters
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def _harmless(found: re.Match[str]) -> str:
    return " " if found[0].isspace() else found[0].encode("unicode_escape").decode("ascii")


class GrassError(ValueError):
    """An error that the user can fix; the message is one sentence that names the problem.

    The command line prints the message alone (a traceback only with ``--debug``). Subclasses tell
    programs what kind of error it is. Parts of a message may come from a file, such as the name of
    a column: very long messages are shortened, line breaks become spaces, and other control
    characters, which could make a terminal show something else, are written as ``\\x1b``.
    """

    def __init__(self, message: object = "") -> None:
        text = shortened(str(message).strip(), LONGEST_MESSAGE)
        super().__init__(_CONTROL.sub(_harmless, text))


class ConfigError(GrassError):
    """A setting or preset does not exist, has an invalid value, or contradicts another one."""


class DataError(GrassError):
    """A graph, a table or a target does not match what the task or the model expects."""


class RunError(GrassError):
    """A run folder or one of its files is missing, damaged, unfinished or in use."""


def first_line(error: BaseException) -> str:
    """The first line of another library's error message, without the full stop."""
    text = str(getattr(error, "reason", None) or error).strip() or type(error).__name__
    return shortened(text.splitlines()[0].rstrip(".: "), 300)


def shortened(text: str, length: int) -> str:
    """A text of at most ``length`` characters, without lone surrogates, which cannot be printed."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= length else text[: length - 1] + "…"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error from Python or torch means that memory ran out."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and any(words in str(error) for words in ("allocate memory", "out of memory"))
    )
