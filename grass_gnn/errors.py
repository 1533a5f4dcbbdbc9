"""Errors that users can fix. The command line shows the message instead of a traceback."""

LONGEST_MESSAGE = 2000  # characters


class GrassError(ValueError):
    """An error that the user can fix; the message is one sentence that names the problem.

    The command line prints the message alone (a traceback only with ``--debug``). Subclasses tell
    programs what kind of error it is. Very long messages are shortened, since parts of them may
    come from a file.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(shortened(str(message), LONGEST_MESSAGE))


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
