"""A user's error in Flower's log: one line, and no traceback.

Flower logs whatever an app raises with its traceback. The app must raise, or Flower would not know that
the run failed, and why. So in the log the traceback of an error that is a person's to mend gives way to
what it says.
"""

from __future__ import annotations

import logging

from spreadout.core.errors import UserError


class _InOneLine(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, UserError):
            record.msg, record.args = "%s: %s", (record.getMessage(), error)
            record.exc_info = record.exc_text = None
        return True


_FILTER = _InOneLine()


def log_user_errors_in_one_line() -> None:
    """For the rest of this process; other errors are logged as before."""
    logging.getLogger("flwr").addFilter(_FILTER)  # which is added once
