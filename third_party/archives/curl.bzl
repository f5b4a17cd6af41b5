"""libcurl's archive, of Debian's libcurl4-openssl-dev: what else it needs is read from it."""

def _curl_archive_impl(ctx):
    found = ctx.execute(["g++", "-print-file-name=libcurl.a"]).stdout.strip()
    if not found.startswith("/"):
        fail("There is no libcurl.a: run third_party/install.sh")
    ctx.symlink(found, "libcurl.a")
    ctx.file("BUILD", "exports_files([\"libcurl.a\"])\n")

curl_archive = repository_rule(
    implementation = _curl_archive_impl,
    local = True,
)
