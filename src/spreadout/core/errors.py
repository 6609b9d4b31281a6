"""The one exception that stands for bad input: its text is for a person, and the CLI exits with 2."""

LONGEST = 1000  # characters of a message
# What torch and NumPy say, in errors like any other, of tensors larger than the memory or any address.
TOO_LARGE = (
    *("tried to allocate", "Storage size calculation overflowed", "integer multiplication overflow"),
    *("array is too big", "Maximum allowed dimension exceeded", "can't allocate memory"),
)


class UserError(Exception):
    """Bad input. The message names the thing, the value found and the remedy, in one line.

    >>> import spreadout as so
    >>> try:
    ...     so.Experiment.of({"rounds": 0})
    ... except so.UserError as error:
    ...     print(error)
    experiment: rounds = 0: must be at least 1
    """

    def __init__(self, text: object = "") -> None:
        super().__init__(one_line(str(text)))


def one_line(text: str) -> str:
    """A text that came in part from outside, fit for a terminal: no breaks, no control characters."""
    shown = "".join(c if c.isprintable() or c == " " else ascii(c)[1:-1] for c in text[: LONGEST + 1])
    return shown if len(text) <= LONGEST else f"{shown[:LONGEST]} …"


def memory_ran_out(error: BaseException) -> bool:
    """Whether somebody asked for more memory than there is."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or any(words in str(error) for words in TOO_LARGE)
