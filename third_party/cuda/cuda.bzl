"""CUDA's headers and NCCL, which third_party/cuda/install.sh brings to ~/.cache/muster/cuda."""

def _cuda_repository_impl(ctx):
    enabled = ctx.os.environ.get("MUSTER_CUDA") == "1"
    folder = ctx.os.environ.get("HOME", "/root") + "/.cache/muster/cuda"
    toolkit = "/usr/local/cuda"
    nccl = folder + "/wheels/nvidia/nccl"
    if enabled:
        for needed in [toolkit + "/include/cuda_runtime_api.h", nccl + "/include/nccl.h"]:
            if not ctx.path(needed).exists:
                fail("%s is missing: run third_party/cuda/install.sh" % needed)
        ctx.symlink(toolkit + "/include", "cuda/include")
        ctx.symlink(nccl + "/include", "nccl/include")
        ctx.symlink(folder + "/wheels/nvidia/cu13/include", "wheels/include")
    ctx.template("BUILD", Label("//third_party/cuda:cuda.BUILD"), {
        "{COMPATIBLE}": "[]" if enabled else "[\":absent\"]",
        "{CUDART}": toolkit + "/lib64",
        "{NCCL}": nccl + "/lib",
    })

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = ["HOME", "MUSTER_CUDA"],
    local = True,
)
