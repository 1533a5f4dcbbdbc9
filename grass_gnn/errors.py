"""The one error that users see as a sentence."""


class GrassError(Exception):
    """Something the user can mend: the message is one clear sentence that names what is wrong.

    The command line prints the sentence alone (a traceback only with ``--debug``).
    """


def first_line(error: BaseException) -> str:
    """The first line of another library's error, as part of a sentence."""
    text = str(getattr(error, "reason", None) or error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".: ")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, of Python or of torch, says that there is no memory left."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and any(words in str(error) for words in ("allocate memory", "out of memory"))
    )
