"""docs/reference/errors.md has the reasons of all errors: the table of the code, which has every
reason that the coordinator's sources give."""

import re

from tests.layering import sources

TABLE = "coordinator/service/reasons.cc"
# The places that make an error of a call. The reason follows the code, as a text or a constant.
MADE = re.compile(
    r"(?:Refuse|Stale|Precondition|too_late|Full|Lacks)\(\s*(?:absl::StatusCode::\w+,\s*)?"
)
REASON = re.compile(r'"([A-Z][A-Z_]+)"')
# Reasons that are constants or come from elsewhere.
OTHERS = {
    "CERTIFICATE_REVOKED",  # common/rpc/access.cc, and the next four
    "NODE_NOT_ALLOWED",
    "ROLE_NOT_ALLOWED",
    "ROLE_UNKNOWN",
    "METHOD_UNKNOWN",
    "STORE_TROUBLE",  # common/lease/lease.h
    "DOWNLOAD_GONE",  # worker/agent
    "DOWNLOAD_UNREADABLE",  # worker/agent
    "BACKUP_FAILED",  # with the code of the store
    "AGENT_TOO_OLD",  # CheckProtocol (coordinator/cluster/handlers), and the next one
    "PROGRAM_TOO_NEW",
}


def read(path):
    return (sources.workspace() / path).read_text()


def table():
    return dict(re.findall(r'\{"([A-Z_]+)",\s*"([^"]+)"\}', read(TABLE)))


def given():
    """The reasons that the sources of the coordinator give."""
    found = set()
    for path in sources.project_files():
        if not path.startswith("coordinator/") or not path.endswith((".cc", ".h")):
            continue
        if path.endswith("_test.cc") or path == TABLE:
            continue
        text = read(path)
        for made in MADE.finditer(text):
            reason = REASON.match(text, made.end())
            if reason:
                found.add(reason[1])
    return found


def test_the_page_has_the_table_of_the_code():
    page = read("docs/reference/errors.md")
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.+) \|$", page, re.MULTILINE)
    assert dict(rows) == table()
    assert [reason for reason, _ in rows] == sorted(table())


def test_the_table_has_every_reason_that_is_given():
    reasons = given()
    assert len(reasons) > 60
    assert reasons - set(table()) == set()
    assert set(table()) - reasons - OTHERS == set(), "nothing gives these"
