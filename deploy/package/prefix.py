"""The folder that the wheel and the tarball install, with all libraries that its programs need."""

import licences
import shared_libraries
from contents import File


def complete(contents, torch_license):
    """Adds lib/muster/*.so. Returns the text of the licences."""
    libraries = shared_libraries.brought_along(contents)
    for name, content in libraries.items():
        contents[f"lib/muster/{name}"] = File(content)
    packages = [*licences.ARCHIVES, *map(licences.owner, libraries)]
    return licences.text(packages, torch_license)
