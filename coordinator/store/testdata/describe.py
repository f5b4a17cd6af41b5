"""Prints the contents of a database field by field: a line for each value, `table key column =
value`.

It made version_13.txt from version_13.sql, which is `sqlite3 muster.db .dump` of a file that a
musterd of schema version 13 wrote: jobs that ended well, failed, were retried, skipped steps, had
losses that are not a number, were deleted, waited for slots, and one that ran when all processes
were killed. Run as: sqlite3 old.db < version_13.sql; python3 describe.py old.db > version_13.txt"""

import sqlite3
import struct
import sys

KEYS = {
    "jobs": ["id"],
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
    "logs": ["job_id", "sequence"],
}
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
    if isinstance(value, float):
        return f"bits {struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"
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
                if column not in keys:
                    lines.append(f"{table} {key} {column} = {text(row[column])}")
    print("\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
