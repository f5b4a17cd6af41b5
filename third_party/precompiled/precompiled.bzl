"""Precompiled headers: what many files include is read once instead of once for each of them.

GCC takes NAME.gch in place of NAME where `-include NAME` asks for it, if NAME.gch lies in a folder
of the include path and was made with the same options. So a precompiled_header is a library whose
only header is NAME.gch, and defs.bzl has the rules for files that include NAME. There is no NAME
beside it: where the options differ, the compiler says so instead of reading all of it anew.

Bazel compiles a file again when one of those changes that the compiler names in its .d file. There
GCC names neither NAME.gch nor what is in it, unless both are compiled for that: -MD here,
-fpch-deps there. """

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = [dep[CcInfo] for dep in ctx.attr.deps]
    context = cc_common.merge_cc_infos(cc_infos = deps).compilation_context
    output = ctx.actions.declare_file(ctx.label.name + "/" + ctx.attr.included + ".gch")
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = ctx.file.header.path,
        output_file = output.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts +
                             ["-x", "c++-header", "-MD", "-MF", "/dev/null"],
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
        use_pic = True,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = "c++-compile",
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = "c++-compile",
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = "c++-compile",
            variables = variables,
        ),
        inputs = depset([ctx.file.header], transitive = [context.headers, toolchain.all_files]),
        outputs = [output],
        mnemonic = "CppPrecompile",
    )
    own = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([output]),
        system_includes = depset([output.dirname]),
    ))
    return [cc_common.merge_cc_infos(cc_infos = [own] + deps)]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(
            allow_single_file = [".hh"],
            mandatory = True,
            doc = "What is included in one.",
        ),
        "included": attr.string(mandatory = True, doc = "NAME of `-include NAME`."),
        "copts": attr.string_list(
            doc = "What the files that include it are compiled with, too (defs.bzl).",
        ),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
