"""What differs between two folders of artefacts."""

import hashlib
import tarfile

from .common import read_sums

# These differ because of what they list.
DERIVED = ("manifest.json", "oci/", "provenance.json")


def first_difference(first, second):
    """The first file that differs, within an archive its first member; nothing if all are the same."""
    ours, theirs = read_sums(first), read_sums(second)
    for name in sorted(ours | theirs, key=lambda name: (name.startswith(DERIVED), name)):
        if ours.get(name) == theirs.get(name):
            continue
        if name not in ours or name not in theirs:
            return f"{name} is in one of them alone"
        left, right = members(first / name), members(second / name)
        differing = [member for member in left | right if left.get(member) != right.get(member)]
        return f"{name}: {differing[0]} differs" if differing else f"{name} differs"
    return None


def members(path):
    """The members of an archive with what they consist of; none if the file is no archive."""
    if not tarfile.is_tarfile(path):
        return {}
    with tarfile.open(path) as archive:
        return {member.name: facts(archive, member) for member in archive}


def facts(archive, member):
    content = archive.extractfile(member)
    digest = hashlib.file_digest(content, "sha256").hexdigest() if content else None
    return member.mode, member.mtime, member.linkname, digest
