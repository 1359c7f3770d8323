"""The exceptions of all four packages, as one tree, each with the caller's remedy.

Exceptions without a module's name are defined here.

- `HearsayError`: catch it to catch every one below
  - `InvalidInput` (a `ValueError`): mend the argument, setting, file or call that is named
    - `NoSurvey` (`hearsay_server.storage.retention`): mend the survey's name, or create the survey
    - `NoTraining` (`hearsay_server.storage.trainings`): mend the name, or create the training
    - `NameTaken` (`hearsay_server.storage.trainings`): choose another name
    - `TooLarge` (`hearsay_server.serving.analyses`): ask for less, or by a quicker method
      - `TooLong` (`hearsay_server.serving.analyses`): the same
    - `Missing` (`hearsay.asking.views.options`): choose what a page needs
    - `UpdateRefused` (`hearsay.federated.encoding`): send an update that the training declares
    - `NoSum` (`hearsay_server.helper.held`): ask for a set that is large enough, all there, and new
    - `Refused` (`hearsay_server.ingest.intake`): drop the batch, or where not `final` send it again
  - `BudgetExhausted` (`dpsgd.accounting.accountant`): stop, and keep the model as it is
  - `NotReady`: wait, then do the same again
    - `NoReports` (`hearsay_server.answers.queries`): wait until devices have reported
    - `BeingDeleted` (`hearsay_server.storage.store`): wait until the old survey is deleted
    - `TooMany` (`hearsay_server.limits`): wait `retry_after` seconds
    - `Overloaded` (`hearsay_server.storage.writer`): wait until the disk has caught up
  - `PlanRefused`: mend what the app agreed to, or ask the operator for a plan that fits it
  - `AnswerRefused`: ask an honest server, or one of this version; nothing was written
  - `AttestationRefused` (`hearsay.attestation.claims`): send nothing; `condition` says what failed
  - `Unreachable` (`hearsay.sending.transport`, a `ConnectionError`): check the address, the
    network, TLS and the token, as `reason` says; then try again
  - `Answered` (`hearsay.sending.framing`): never reaches an app, which gets `Unreachable`
  - `Malformed` (`hearsay.sending.framing`): the same
    - `CutOff` (`hearsay.sending.framing`): the same
  - `Interrupted` (`hearsay.sending.connection`): the same
  - `Ended` (`hearsay_server.serving.status`): never reaches an app, whose call gets the status
    - `Denied` (`hearsay_server.serving.auth`): ask the operator for a token of the right role, or
      a new one
  - `MissingExtra` (an `ImportError`): install the extra that is named
  - `StorageFailed`: mend the disk, the database or the permissions, restore a backup, or install
    the version that wrote the data
    - `KeyLost` (`hearsay_server.at_rest`): set encryption_key to the key that is named
  - `ServerFailed`: free the address, or read the server's log; then start it again
  - `Skip` (`hearsay.federated.stepping`): raised by an app's own step, and never reaches the app
  - `Trouble` (`hearsay.trouble`): never reaches an app, which asks `Client.status` instead
"""

import contextlib
from collections.abc import Iterator

_OURS = ("ldp", "dpsgd", "hearsay", "hearsay_server")


class HearsayError(Exception):
    """The base class of every exception of `ldp`, `dpsgd`, `hearsay` and `hearsay_server`."""


class InvalidInput(HearsayError, ValueError):
    """An argument, setting, file or call is invalid; nothing was changed."""


class NotReady(HearsayError):
    """The result is not available yet: the same call can succeed later."""


class PlanRefused(HearsayError):
    """The server's plan breaks the terms the app agreed to, a cap, or a choice."""


class AnswerRefused(HearsayError):
    """A server's answer is none that an honest one gives; nothing of it was used or written."""


class MissingExtra(HearsayError, ImportError):
    """A package is not installed; the message names the extra of `hearsay` that has it."""


class StorageFailed(HearsayError):
    """The disk or the database fails, or holds data that is damaged or of another schema.

    It is no `OSError`: the reason is often the database's, which has no `errno`, and a handler
    for errors of a single file must not take it for one of them.
    """


class ServerFailed(HearsayError):
    """A server did not start, cannot listen, or ended."""


@contextlib.contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """Raise `MissingExtra`, naming `extra`, where an import in this context fails.

    `what` is the feature that needs the extra; the message names it and the missing package. No
    extra has a module of our own: where one is missing, its `ModuleNotFoundError` goes on.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _OURS:
            raise
        raise MissingExtra(
            f"{what} needs {error.name}: pip install 'hearsay-ldp[{extra}]'"
        ) from error
