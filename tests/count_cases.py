"""Counts test cases in the XML that Bazel keeps of each test target, each case once.

    count_cases.py --add RESULTS CONFIGURATION EVENTS
    count_cases.py --total RESULTS

`--add` appends the result of each case of one `bazel test`. EVENTS is its --build_event_json_file.
CONFIGURATION is the way of compiling: plain, asan or tsan. `--total` says how many cases ran in
each configuration and prints the sum as the last line of ./test.sh. A case that ran in several
configurations counts once, and has failed if it failed in any. Ends with 1 when anything failed or
nothing ran."""

import collections
import json
import pathlib
import sys
import xml.etree.ElementTree as ET

TITLES = {
    "plain": "without a sanitizer",
    "asan": "with AddressSanitizer and UndefinedBehaviorSanitizer",
    "tsan": "with ThreadSanitizer",
}
# From the best to the worst.
RESULTS = ("skipped", "passed", "failed")


def cases_of_file(path):
    """{name: result} of one test.xml; empty if it has no readable cases."""
    try:
        cases = list(ET.parse(path).getroot().iter("testcase"))
    except (ET.ParseError, OSError):
        return {}
    found = {}
    for case in cases:
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            found[name] = "failed"
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            found[name] = "skipped"
        else:
            found[name] = "passed"
    return found


def cases_of_run(events):
    """{"label case": result} of the test results in a file of events. A target that did not build,
    whose process failed without a failed case, or that has no cases, is itself a failed case. A
    test that Bazel leaves out, because it cannot be built in this configuration (comm/nccl without
    CUDA), is itself a skipped one."""
    found, labels, tests = {}, set(), set()
    for line in pathlib.Path(events).read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            # Bazel did not finish the line: it was killed, or the disk is full.
            found[f"{events} ends in the middle of a line"] = "failed"
            break
        identity = event.get("id", {})
        if event.get("configured", {}).get("targetKind", "").endswith("_test rule"):
            tests.add(identity["targetConfigured"]["label"])
        if "targetCompleted" in identity and not event.get("completed", {}).get("success"):
            label = identity["targetCompleted"]["label"]
            if event.get("aborted", {}).get("reason") != "SKIPPED":
                found[f"{label} (does not build)"] = "failed"
            elif label in tests:
                found[f"{label} (not for this configuration)"] = "skipped"
        if "testResult" not in event:
            continue
        label, result = identity["testResult"]["label"], event["testResult"]
        labels.add(label)
        xml = [
            out["uri"] for out in result.get("testActionOutput", []) if out["name"] == "test.xml"
        ]
        cases = cases_of_file(xml[0].removeprefix("file://")) if xml else {}
        found.update({f"{label} {name}": came_to for name, came_to in cases.items()})
        if result["status"] != "PASSED" and "failed" not in cases.values():
            # Timed out, crashed, or leaked.
            found[f"{label} ({result['status']})"] = "failed"
    # Some of several shards may have no cases.
    with_cases = {name.split(" ", 1)[0] for name in found}
    found.update({f"{label} (no readable cases)": "failed" for label in labels - with_cases})
    return found


def add(results, configuration, events):
    cases = cases_of_run(events)
    with open(results, "a", encoding="utf-8") as file:
        for name, result in cases.items():
            file.write(f"{configuration}\t{result}\t{name}\n")
    for name, result in cases.items():
        if result == "failed":
            print(f"failed {TITLES[configuration]}: {name}", file=sys.stderr)


def total(results):
    """The lines to print, and the exit code."""
    ran, worst = collections.Counter(), {}
    for line in pathlib.Path(results).read_text(encoding="utf-8").splitlines():
        configuration, result, name = line.split("\t", 2)
        ran[configuration] += result != "skipped"
        worst[name] = max(worst.get(name, result), result, key=RESULTS.index)
    lines = [f"{ran[name]} cases ran {title}" for name, title in TITLES.items()]
    sums = collections.Counter(worst.values())
    skipped = f", {sums['skipped']} skipped" if sums["skipped"] else ""
    lines.append(f"{sums['passed']} passed, {sums['failed']} failed{skipped}")
    return lines, 0 if sums["failed"] == 0 and sums["passed"] > 0 else 1


def main():
    mode, results, *more = sys.argv[1:]
    if mode == "--add":
        add(results, *more)
        return 0
    lines, code = total(results)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
