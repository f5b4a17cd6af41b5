"""Compiles many small files of one library together: what all of them take from templates is then
made a few times instead of once for each file."""

def together(name, srcs, parts):
    """Makes `parts` files, each of which includes every parts-th of the files.

    Args:
      name: what the made files begin with.
      srcs: files of this package. Their library has them as textual_hdrs. What they do not export
        must have different names.
      parts: how many files to make: at least as many as there are cores to compile them.

    Returns:
      The made files, for srcs of the library.
    """
    made = []
    for part in range(parts):
        lines = [
            "#include \\\"%s/%s\\\"" % (native.package_name(), src)
            for src in srcs[part::parts]
        ]
        made.append("%s_%d.cc" % (name, part))
        native.genrule(
            name = "%s_%d" % (name, part),
            outs = [made[-1]],
            cmd = "printf '%%s\\n' %s > $@" % " ".join(["\"%s\"" % line for line in lines]),
        )
    return made
