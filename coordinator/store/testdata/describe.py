"""Prints the contents of a database field by field: a line for each value, `table key column =
value`. The columns of the three tables of a job are those of `jobs`.

It made version_19.txt from version_19.sql, which is a dump of a file that the musterd of version
0.3.0 wrote: jobs that ended well, failed, were retried, skipped steps, had losses that are not a
number, were tested, waited for slots, whose messages no receiver took, and one that ran when all
processes were killed. 0.3.0 brought some of them from the file of an older musterd. Most rows of
`steps` of the running job were left out. Run as: sqlite3 old.db < version_19.sql; python3
describe.py old.db > version_19.txt"""

import sqlite3
import sys

KEYS = {
    "jobs": ["id"],
    "job_life": ["job_id"],
    "job_progress": ["job_id"],
    "ranks": ["job_id", "rank"],
    "checkpoints": ["job_id", "path"],
    "failures": ["job_id", "position"],
    "commands": ["job_id", "number"],
    "trainability": ["job_id"],
    "trainability_changes": ["job_id", "version"],
    "events": ["job_id", "number"],
    "attempts": ["job_id", "attempt"],
    "nodes": ["node"],
    "node_marks": ["node"],
    "requests": ["request_id"],
    "steps": ["job_id", "step"],
    "validations": ["job_id", "step"],
    "tests": ["job_id", "step"],
    "deliveries": ["number"],
    "logs": ["job_id", "sequence"],
}
TABLES = {"job_life": "jobs", "job_progress": "jobs"}
# Bytes that are longer than this are told by their length and hash.
MOST = 32


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def text(value):
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    data = value.encode() if isinstance(value, str) else value
    if len(data) <= MOST and all(32 <= byte < 127 for byte in data):
        return f"'{data.decode()}'"
    return f"{len(data)} bytes {fnv(data):016x}"


def main():
    db = sqlite3.connect(sys.argv[1])
    db.row_factory = sqlite3.Row
    lines = []
    for table, keys in KEYS.items():
        for row in db.execute(f"SELECT * FROM {table}"):
            key = " ".join(str(row[column]) for column in keys)
            for column in row.keys():
                if column not in keys and column != "pass":
                    lines.append(f"{TABLES.get(table, table)} {key} {column} = {text(row[column])}")
    print("\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
