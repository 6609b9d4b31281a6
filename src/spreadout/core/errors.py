"""The one exception that stands for bad input: its text is for a person, and the CLI exits with 2."""


class UserError(Exception):
    """Bad input. The message names the thing, the value found and the remedy, in one line.

    >>> import spreadout as so
    >>> try:
    ...     so.Experiment.of({"rounds": 0})
    ... except so.UserError as error:
    ...     print(error)
    experiment: rounds = 0: must be at least 1
    """
