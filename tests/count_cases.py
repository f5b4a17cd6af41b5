"""Counts test cases in the XML that Bazel keeps of each test target.

`--add FILE` appends "passed failed skipped" of the last `bazel test` to FILE; `--total FILE` prints
the sum as the last line of ./test.sh and exits with 1 when anything failed or nothing ran."""

import json
import pathlib
import sys
import xml.etree.ElementTree as ET

EVENTS = pathlib.Path("bazel-test-events.json")


def count_file(path):
    """(passed, failed, skipped) of one test.xml; a target without readable cases counts as one
    failure."""
    try:
        cases = list(ET.parse(path).getroot().iter("testcase"))
    except (ET.ParseError, OSError):
        return (0, 1, 0)
    failed = sum(
        1 for case in cases if case.find("failure") is not None or case.find("error") is not None
    )
    skipped = sum(
        1 for case in cases if case.find("skipped") is not None or case.get("status") == "notrun"
    )
    return (len(cases) - failed - skipped, failed, skipped)


def last_run():
    """Sums over the test results that the last `bazel test` named in its event file."""
    passed = failed = skipped = 0
    for line in EVENTS.read_text().splitlines():
        event = json.loads(line)
        if "targetCompleted" in event.get("id", {}) and not event.get("completed", {}).get(
            "success"
        ):
            failed += 1  # did not build
        if "testResult" not in event:
            continue
        result = event["testResult"]
        xml = [
            out["uri"] for out in result.get("testActionOutput", []) if out["name"] == "test.xml"
        ]
        counts = count_file(xml[0].removeprefix("file://")) if xml else (0, 0, 0)
        if result["status"] != "PASSED" and counts[1] == 0:
            counts = (counts[0], 1, counts[2])  # timed out, crashed, or leaked
            print("failed:", event["id"]["testResult"]["label"], result["status"], file=sys.stderr)
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
    return passed, failed, skipped


def main():
    mode, path = sys.argv[1:]
    if mode == "--add":
        with open(path, "a", encoding="utf-8") as file:
            print(*last_run(), file=file)
        return 0
    lines = [map(int, line.split()) for line in open(path, encoding="utf-8")]
    passed, failed, skipped = map(sum, zip(*lines)) if lines else (0, 1, 0)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
