"""Tests of the counts of ./test.sh: each case once, and the number of cases under each
sanitizer."""

import json

from tests import count_cases

PASSED = '<testcase classname="{0}" name="a"/>'
FAILED = '<testcase classname="{0}" name="a"><failure/></testcase>'
SKIPPED = '<testcase classname="{0}" name="a"><skipped/></testcase>'


def run(folder, name, targets):
    """The events of a `bazel test`: `targets` is {label: (status, its cases in XML)}."""
    events = folder / f"{name}.json"
    lines = []
    for number, (label, (status, cases)) in enumerate(targets.items()):
        if status == "NOT BUILT":
            lines.append({"id": {"targetCompleted": {"label": label}}, "completed": {}})
            continue
        if status == "LEFT OUT":
            rule = "cc_test rule" if cases else "cc_library rule"
            identity = {"targetConfigured": {"label": label}}
            lines.append({"id": identity, "configured": {"targetKind": rule}})
            aborted = {"reason": "SKIPPED", "description": "build was skipped"}
            lines.append({"id": {"targetCompleted": {"label": label}}, "aborted": aborted})
            continue
        xml = folder / f"{name}-{number}.xml"
        xml.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
        outputs = [{"name": "test.xml", "uri": f"file://{xml}"}]
        lines.append(
            {
                "id": {"testResult": {"label": label}},
                "testResult": {"status": status, "testActionOutput": outputs},
            }
        )
    events.write_text("\n".join(map(json.dumps, lines)))
    return events


def total(folder, **runs):
    results = folder / "results"
    for name, targets in runs.items():
        count_cases.add(results, name, run(folder, name, targets))
    return count_cases.total(results)


def test_a_case_of_two_configurations_counts_once(tmp_path):
    cases = {"//a:test": ("PASSED", PASSED.format("A") + PASSED.format("B"))}
    lines, code = total(tmp_path, asan=cases, tsan=cases, plain={"//b:test": cases["//a:test"]})
    assert code == 0
    assert lines == [
        "2 cases ran without a sanitizer",
        "2 cases ran with AddressSanitizer and UndefinedBehaviorSanitizer",
        "2 cases ran with ThreadSanitizer",
        "4 passed, 0 failed",
    ]


def test_what_fails_in_one_configuration_has_failed(tmp_path):
    lines, code = total(
        tmp_path,
        asan={"//a:test": ("PASSED", PASSED.format("A"))},
        tsan={"//a:test": ("FAILED", FAILED.format("A"))},
    )
    assert code == 1 and lines[-1] == "0 passed, 1 failed"


def test_a_report_at_the_end_of_a_process_is_a_failure(tmp_path):
    """A leak, or a race: every case has passed, and the process ends with another code."""
    lines, code = total(tmp_path, asan={"//a:test": ("FAILED", PASSED.format("A"))})
    assert code == 1 and lines[-1] == "1 passed, 1 failed"


def test_what_does_not_build_or_has_no_cases_is_a_failure(tmp_path):
    lines, code = total(tmp_path, plain={"//a:test": ("NOT BUILT", ""), "//b:test": ("PASSED", "")})
    assert code == 1 and lines[-1] == "0 passed, 2 failed"


def test_events_that_end_in_the_middle_of_a_line_are_a_failure(tmp_path):
    """Bazel was killed, or the disk is full: what is there counts, and it is not all."""
    events = run(tmp_path, "plain", {"//a:test": ("PASSED", PASSED.format("A"))})
    events.write_text(events.read_text() + '\n{"id": {"testResult": {"lab')
    results = tmp_path / "results"
    count_cases.add(results, "plain", events)
    lines, code = count_cases.total(results)
    assert code == 1 and lines[-1] == "1 passed, 1 failed"


def test_skipped_cases_are_counted_apart(tmp_path):
    cases = PASSED.format("A") + SKIPPED.format("B")
    lines, code = total(tmp_path, plain={"//a:test": ("PASSED", cases)})
    assert code == 0 and lines[-1] == "1 passed, 0 failed, 1 skipped"
    assert lines[0] == "1 cases ran without a sanitizer"


def test_a_test_that_bazel_leaves_out_is_skipped_and_a_library_is_nothing(tmp_path):
    """Bazel tells of both as of targets that did not build, with the reason SKIPPED."""
    cases = PASSED.format("A")
    targets = {
        "//a:test": ("PASSED", cases),
        "//b:test": ("LEFT OUT", cases),
        "//b:library": ("LEFT OUT", ""),
    }
    lines, code = total(tmp_path, plain=targets)
    assert code == 0 and lines[-1] == "1 passed, 0 failed, 1 skipped"


def test_no_case_at_all_is_no_success(tmp_path):
    lines, code = total(tmp_path, plain={})
    assert code == 1 and lines[-1] == "0 passed, 0 failed"
