"""Malformed plug-ins."""

import re
import struct

from tests.process import inputs
from tests.process.malformed_case import changed_file, changed_job, cut, first

PLUGIN = "focal.so"


def plugin(name, expected, found, change):
    changed_file(name, "plugin", PLUGIN, change, expected=expected, found=found)


def stamped(old, new):
    assert len(old) == len(new)

    def change(data):
        assert data.count(old) >= 1, old
        return data.replace(old, new)

    return change


def for_another_machine(data):
    return data[:18] + struct.pack("<H", 183) + data[20:]  # e_machine: AArch64


plugin(
    "plugin-that-is-text",
    "a shared library",
    "text that begins with '#!/bin/sh'",
    lambda _: b"#!/bin/sh\ntouch pwned\n",
)
plugin(
    "plugin-that-is-python",
    "a shared library",
    "a Python pickle",
    lambda _: inputs.pickled(b"N."),
)
plugin("plugin-cut-in-header", "at least 64 bytes", "found 40", first(40))
plugin("plugin-cut-after-header", "is cut off: expected at least", "found 64", first(64))
plugin(
    "plugin-cut-in-half",
    "is cut off: expected at least",
    "found",
    lambda data: data[: len(data) // 2],
)
plugin("plugin-without-its-end", "is cut off: expected at least", "found", cut(16))
plugin(
    "plugin-for-another-machine",
    "for this machine (ELF machine 62",
    "machine 183",
    for_another_machine,
)
plugin("plugin-for-32-bits", "64 bits)", "32 bits", lambda data: data[:4] + b"\1" + data[5:])
plugin(
    "plugin-for-another-interface",
    "this worker against '3'",
    "built against '9'",
    stamped(b"stamp:interface=3;", b"stamp:interface=9;"),
)
plugin(
    "plugin-for-another-torch",
    "this worker against '2.13.0'",
    "built against '2.14.0'",
    lambda data: re.sub(rb";torch=2\.13", b";torch=2.14", data),
)
plugin("plugin-for-another-abi", "ABI=1'", "ABI=0'", stamped(b"CXX11_ABI=1;", b"CXX11_ABI=0;"))
plugin(
    "plugin-without-stamp",
    "a Muster plug-in",
    "without MUSTER_PLUGIN",
    stamped(b"muster-plugin-stamp:", b"master-plugin-stamp:"),
)
plugin(
    "plugin-without-entry",
    "MUSTER_PLUGIN makes it",
    "no symbol muster_plugin_entry",
    stamped(b"muster_plugin_entry\0", b"master_plugin_entry\0"),
)
plugin(
    "plugin-that-is-another-library",
    "a Muster plug-in",
    "without MUSTER_PLUGIN",
    lambda _: open("/usr/lib/x86_64-linux-gnu/libz.so.1", "rb").read(),
)
changed_job(
    "plugin-unknown-model",
    "plugin",
    {"model.plugin.name": "vocal"},
    PLUGIN,
    "focal, plain",
    "no model 'vocal'",
    by="session",
)
changed_job(
    "plugin-unknown-option",
    "plugin",
    {"model.plugin.options.depth": "3"},
    PLUGIN,
    "allowed: classes",
    "unknown options: depth",
    by="session",
)
changed_job(
    "plugin-option-no-number",
    "plugin",
    {"model.plugin.options.width": "wide"},
    PLUGIN,
    "option width: expected an integer",
    "'wide'",
    by="session",
)
changed_job(
    "plugin-option-missing",
    "plugin",
    {"model.plugin.options.classes": None},
    PLUGIN,
    "option classes: expected an integer",
    "nothing",
    by="session",
)
changed_job(
    "plugin-without-name",
    "plugin",
    {"model.plugin.name": None},
    "model.plugin.name",
    "one of the plug-in's models",
    "is missing",
)
