"""Links a program for packages: from the objects of the usual build, with other libraries."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

# Libraries that a program takes from the machine on which it runs: LibTorch, and the parts of the C
# library.
_SHARED = ["c10", "c10_cuda", "cudart", "dl", "m", "pthread", "torch", "torch_cpu", "torch_cuda"]

# Libraries without an archive in Debian: //third_party/archives replaces them.
_COMPILED_IN = ["fmt", "spdlog"]

# Libraries that the archives of gRPC and protobuf need, and that Muster does not name itself.
_MORE = [
    "address_sorting",
    "cares",
    "crypto",
    "re2",
    "ssl",
    "upb",
    "z",
] + ["absl_" + name for name in [
    "bad_optional_access",
    "bad_variant_access",
    "debugging_internal",
    "demangle_internal",
    "exponential_biased",
    "hashtablez_sampler",
    "malloc_internal",
    "random_distributions",
    "random_internal_platform",
    "random_internal_pool_urbg",
    "random_internal_randen",
    "random_internal_randen_hwaes",
    "random_internal_randen_hwaes_impl",
    "random_internal_randen_slow",
    "random_internal_seed_material",
    "random_seed_gen_exception",
    "random_seed_sequences",
    "strerror",
]]

def _linked(flag, archives, shared):
    """What stands for a flag of the usual build; None: nothing."""
    if flag.startswith("-Wl,-rpath,"):
        return None
    if not archives or not flag.startswith("-l") or flag.startswith("-l:"):
        return flag
    name = flag[len("-l"):]
    if name in _COMPILED_IN:
        return None
    return flag if name in _SHARED or name in shared else "-l:lib%s.a" % name

def _packaged_program_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = [ctx.attr.main] + (ctx.attr.archives if ctx.attr.linkage == "archives" else [])
    context = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in deps]).linking_context
    inputs = []
    for linked in context.linker_inputs.to_list():
        flags = []
        for flag in linked.user_link_flags:
            stands = _linked(flag, ctx.attr.linkage == "archives", ctx.attr.shared)
            if stands:
                flags.append(stands)
        inputs.append(cc_common.create_linker_input(
            owner = linked.owner,
            libraries = depset(linked.libraries),
            user_link_flags = depset(flags),
            additional_inputs = depset(linked.additional_inputs),
        ))
    flags = ["-Wl,-s", "-Wl,--build-id=sha1"]
    flags += ["-Wl,-rpath," + path for path in ctx.attr.run_path]
    if ctx.attr.shared:
        # The path is an RPATH, which is also searched for libraries of libraries.
        flags.append("-Wl,--disable-new-dtags")
    if ctx.attr.linkage == "archives":
        flags += [_linked("-l" + name, True, ctx.attr.shared) for name in _MORE]
    linked = cc_common.link(
        actions = ctx.actions,
        feature_configuration = features,
        cc_toolchain = toolchain,
        name = ctx.label.name,
        linking_contexts = [cc_common.create_linking_context(
            linker_inputs = depset(inputs, order = "topological"),
        )],
        user_link_flags = flags,
    )
    return [DefaultInfo(files = depset([linked.executable]), executable = linked.executable)]

packaged_program = rule(
    implementation = _packaged_program_impl,
    executable = True,
    attrs = {
        "main": attr.label(
            mandatory = True,
            providers = [CcInfo],
            doc = "The library that has the program's function main.",
        ),
        "linkage": attr.string(
            mandatory = True,
            values = ["archives", "shared"],
            doc = "How Debian's libraries are linked.",
        ),
        "shared": attr.string_list(
            doc = "With \"archives\": libraries that are shared all the same, without \"lib\". " +
                  "A package brings them along, with what they need. If one of them needs a " +
                  "library that is also linked from its archive (OpenSSL), name that one, too: " +
                  "a process must not have two of it.",
        ),
        "run_path": attr.string_list(
            doc = "Where the loader looks for shared libraries first.",
        ),
        "archives": attr.label_list(
            default = [
                "//third_party/archives:below_curl",
                "//third_party/archives:spdlog",
            ],
            providers = [CcInfo],
        ),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
