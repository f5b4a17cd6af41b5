"""The folders that train touch the memory of tensors only through worker/device and operations of
LibTorch, so that they are the same for every device."""

import re

from tests.layering.sources import project_files, workspace

FOLDERS = ("worker/models/", "worker/optim/", "worker/parallel/", "worker/train/")
# Not tensors: the bytes of a file.
LEFT_OUT = ("worker/models/plugin/file.cc",)
# Targets on which only tests depend.
FOR_TESTS = re.compile(
    r"(_test|_fixture|conformance|test_model|test_net|holding_communicator)\.(cc|h)$"
)
TOUCHES = re.compile(
    r"\b(?:mutable_|const_)?data_ptr\b|\bmem(?:cpy|set|move|cmp)\b|\bresize_bytes_\w+"
)


def touches(text):
    """The numbers of the lines of C++ that touch memory by its address."""
    for number, line in enumerate(text.splitlines(), 1):
        if TOUCHES.search(line.split("//")[0]):
            yield number


def test_memory_of_tensors_is_touched_in_worker_device_only():
    files = [
        name
        for name in project_files()
        if name.startswith(FOLDERS)
        and name.endswith((".cc", ".h"))
        and name not in LEFT_OUT
        and not FOR_TESTS.search(name)
    ]
    assert len(files) > 100
    found = [
        f"{name}:{number}" for name in files for number in touches((workspace() / name).read_text())
    ]
    assert not found, "use worker/device/memory.h or host_values.h:\n" + "\n".join(found)


# A test of the check above.
def test_addresses_are_found():
    text = "\n".join(
        [
            "float* p = t.data_ptr<float>();",
            "std::memcpy(a, b, 3);  // copies",
            "device::CopyAll(a, b);  // not memcpy",
            "auto* q = t.const_data_ptr();",
            "at::native::resize_bytes_cpu(s, 0);",
            "metadata_ptr->x();",
        ]
    )
    assert list(touches(text)) == [1, 2, 4, 5]
