"""C++ sources for a proto file, made by Debian's protoc and gRPC plug-in."""

def muster_protos(name, srcs, service_srcs, visibility):
    """One cc_library with the messages of srcs and the services of service_srcs.

    The library also has their precompiled header. The library `messages` has only the messages,
    without gRPC.

    Args:
      name: the library.
      srcs: all proto files, relative to this package.
      service_srcs: the files of srcs that define a service.
      visibility: of the library and of `messages`.
    """
    messages = []
    for src in srcs:
        base = src[:-len(".proto")]
        messages += [base + ".pb.h", base + ".pb.cc"]
    stubs = []
    for src in service_srcs:
        base = src[:-len(".proto")]
        stubs += [base + ".grpc.pb.h", base + ".grpc.pb.cc"]
    services = " ".join(["$(location %s)" % src for src in service_srcs])
    stub_srcs = [out for out in stubs if out.endswith(".cc")]
    includes = " ".join([native.package_name() + "/" + src for src in stub_srcs])
    native.genrule(
        name = name + "_generate",
        srcs = srcs,
        outs = messages + stubs + ["services.cc"],
        cmd = " && ".join([
            "protoc -I. --cpp_out=$(GENDIR) $(SRCS)",
            "protoc -I. --grpc_out=$(GENDIR) " +
            "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin " + services,
            "printf '#include \"%s\"\\n' " + includes + " > $(location services.cc)",
        ]),
    )
    native.cc_library(
        name = "messages",
        srcs = [out for out in messages if out.endswith(".cc")],
        hdrs = [out for out in messages if out.endswith(".h")],
        copts = ["-O1"],
        visibility = visibility,
        deps = ["//third_party/system:protobuf"],
    )

    # One source file for all services, because gRPC's headers take longer to compile than the
    # services.
    native.cc_library(
        name = "services",
        srcs = ["services.cc"],
        hdrs = [out for out in stubs if out.endswith(".h")],
        copts = ["-O1"],
        textual_hdrs = stub_srcs,
        visibility = ["//third_party/precompiled:__pkg__"],
        deps = [
            ":messages",
            "//third_party/system:grpc",
        ],
    )
    native.cc_library(
        name = name,
        visibility = visibility,
        deps = [
            ":messages",
            ":services",
            "//third_party/precompiled:rpc",
        ],
    )
