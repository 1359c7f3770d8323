"""`hearsay audit-log`: print who did what."""

from hearsay_server.commands.local import AsCsv, ConfigFile, Data, Url, opened, print_rows, when
from hearsay_server.storage import audit
from hearsay_server.storage.tokens import Tokens


def audit_log(
    data: Data = None, database: Url = None, config_file: ConfigFile = None, as_csv: AsCsv = False
) -> None:
    """Print who registered, closed, deleted, exported, backed up or changed tokens, and when.

    An act through a server has the token that it was done with; a command on the data itself has
    the user of the operating system.
    """
    with opened(data, database, config_file) as found:
        acts = audit.entries(found)
        labels = {token.id: token.label for token in Tokens(found).list()}
    if as_csv:
        heading = ["time", "token", "label", "user", "action", "survey", "detail"]
        rows = [
            [when(act.at), act.token, labels.get(act.token, ""), act.os_user, *_act(act)]
            for act in acts
        ]
    else:  # fits into 80 columns
        heading = ["time", "by", "action", "survey", "detail"]
        rows = [
            [when(act.at), labels.get(act.token) or act.token or act.os_user or "-", *_act(act)]
            for act in acts
        ]
    print_rows(heading, rows, as_csv)


def _act(act: audit.Entry) -> tuple[str, str, str]:
    """Return an act's name, survey and details."""
    detail = ", ".join(f"{name}: {_plain(value)}" for name, value in act.detail.items() if value)
    return act.action, act.survey, detail


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
