"""Malformed inputs through the real programs, one of each kind: the job fails without a restart,
and its error names the cause."""

import yaml

from tests.process import malformed_cases

NAMES = [
    "tokens-beyond-vocabulary",
    "per-rank-one-cut",
    "rows-cut-in-data",
    "rows-with-nan",
    "npy-too-wide",
    "idx-cut",
    "gzip-cut",
    "weights-of-another-shape",
    "index-file-above",
    "torchscript-cut",
    "plugin-cut-in-half",
    "plugin-for-another-interface",
    "groups-that-match-nothing",
]


def test_a_job_with_malformed_inputs_fails_for_good_and_says_why(muster):
    daemon = muster.musterd(local_slots=2)
    for name in NAMES:
        folder = muster.folder / name
        folder.mkdir()
        (folder / "job.yaml").write_text(yaml.safe_dump(malformed_cases.CASES[name].build(folder)))
        muster.cli("submit", folder / "job.yaml", "--id", name)
    for name in NAMES:
        case = malformed_cases.CASES[name]
        said = muster.cli("wait", name, expect=100)
        job = muster.cli("get", name, "-o", "json").json()
        assert job["state"] == "FAILED" and job.get("restarts", 0) == 0, job
        assert job["failure"]["node"], f"{name}: it names no node"
        for what in (case.path, case.expected, case.found):
            assert (
                what in job["failure"]["reason"]
            ), f"{name}: '{what}' is not in:\n{job['failure']['reason']}"
            assert what in said.out + said.err, f"{name}: '{what}' is not in:\n{said.out}{said.err}"
    muster.stop(daemon)
    muster.assert_no_process(at_once=True)
